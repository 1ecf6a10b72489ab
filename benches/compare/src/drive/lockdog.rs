//! lockdog itself.

use lockdog::{Client, Guard, Lock, Reentry};

use crate::Result;
use crate::drive::library::Library;
use crate::protocol::Request;

pub(crate) struct Lockdog(Client);

impl Library for Lockdog {
    type Lock = Lock;
    type Held = Guard;

    fn refuses(workload: &str) -> Option<&'static str> {
        match workload {
            "W6" => Some("RedLock is not there yet"),
            "rtt" | "idle" | "serial" => Some("the bare protocol's"),
            _ => None,
        }
    }

    async fn connect(request: &Request) -> Result<Self> {
        let url = request.urls.first().ok_or("a URL is missing")?;
        let reentry = match request.workload.as_str() {
            "W7-local" => Reentry::Local,
            _ => Reentry::Counted,
        };
        let client = Client::builder().url(url).reentry(reentry);
        Ok(Self(client.build().await?))
    }

    fn lock(&self, name: &str) -> Lock {
        self.0.lock(name)
    }

    async fn acquire(lock: &Lock) -> Result<Guard> {
        Ok(lock.lock().await?)
    }

    async fn unlock(held: Guard) -> Result<()> {
        held.unlock().await?;
        Ok(())
    }

    async fn close(self) {
        self.0.shutdown().await;
    }
}
