//! lockdog itself.

use lockdog::config::Reentry;
use lockdog::{Client, Guard, Lock, RedLock};

use crate::Result;
use crate::drive::library::Library;
use crate::protocol::Request;

pub(crate) struct Lockdog {
    /// One for each server.
    clients: Vec<Client>,
    /// Makes a lock of the kind that the cell is about.
    lock: fn(&Client, &str) -> Lock,
}

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
        let lock: fn(&Client, &str) -> Lock = match request.api.as_deref() {
            None => |client, name| client.lock(name),
            Some("fenced") => |client, name| client.fenced_lock(name),
            Some("spin") => |client, name| client.spin_lock(name),
            Some("non-reentrant") => |client, name| client.non_reentrant_lock(name),
            Some(other) => return Err(format!("{other} is no kind of lock").into()),
        };
        Ok(Self { clients, lock })
    }

    fn lock(&self, name: &str) -> Named {
        let lock = |client: &Client| (self.lock)(client, name);
        match &self.clients[..] {
            [client] => Named::One(lock(client)),
            clients => Named::Quorum(RedLock::new(clients.iter().map(lock))),
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
        for client in self.clients {
            client.shutdown().await;
        }
    }
}
