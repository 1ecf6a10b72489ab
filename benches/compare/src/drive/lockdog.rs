//! lockdog itself.

use lockdog::config::Reentry;
use lockdog::{Client, Guard, Lock, RedLock};

use crate::Result;
use crate::drive::library::Library;
use crate::protocol::Request;

/// A client for each server.
pub(crate) struct Lockdog(Vec<Client>);

pub(crate) enum Named {
    One(Lock),
    Quorum(RedLock),
}

impl Library for Lockdog {
    type Lock = Named;
    type Held = Guard;

    fn refuses(workload: &str) -> Option<&'static str> {
        match workload {
            "rtt" | "idle" | "serial" => Some("the bare protocol's"),
            _ => None,
        }
    }

    async fn connect(request: &Request) -> Result<Self> {
        let reentry = match request.workload.as_str() {
            "W7-local" => Reentry::Local,
            _ => Reentry::Counted,
        };
        let mut clients = Vec::with_capacity(request.urls.len());
        for url in &request.urls {
            let client = Client::builder().url(url).reentry(reentry);
            clients.push(client.build().await?);
        }
        Ok(Self(clients))
    }

    fn lock(&self, name: &str) -> Named {
        match &self.0[..] {
            [client] => Named::One(client.lock(name)),
            clients => Named::Quorum(RedLock::new(clients.iter().map(|client| client.lock(name)))),
        }
    }

    async fn acquire(lock: &Named) -> Result<Guard> {
        Ok(match lock {
            Named::One(lock) => lock.lock().await?,
            Named::Quorum(lock) => lock.lock().await?,
        })
    }

    async fn unlock(held: Guard) -> Result<()> {
        held.unlock().await?;
        Ok(())
    }

    async fn close(self) {
        for client in self.0 {
            client.shutdown().await;
        }
    }
}
