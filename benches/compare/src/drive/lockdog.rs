//! lockdog itself.

use std::time::Duration;

use lockdog::config::{Preference, Reentry};
use lockdog::{Client, Guard, Lock, Permit, ReadGuard, RedLock, Semaphore, WriteGuard};

use crate::Result;
use crate::drive::crew::{PERMITS, names};
use crate::drive::library::Library;
use crate::protocol::Request;

pub(crate) struct Lockdog {
    /// One for each server, or for the cluster.
    clients: Vec<Client>,
    kind: Kind,
}

/// What the cell is about.
#[derive(Clone, Copy)]
enum Kind {
    /// Locks of a kind that this function makes.
    Lock(fn(&Client, &str) -> Lock),
    /// Plain locks with leases that the watchdog does not renew.
    Leased,
    ReadWrite(Preference),
    Semaphore,
}

pub(crate) enum Named {
    One(Lock),
    Leased(Lock, Duration),
    Quorum(RedLock),
    Read(Lock<ReadGuard>),
    Write(Lock<WriteGuard>),
    Semaphore(Semaphore),
}

pub(crate) enum Hold {
    Lock(Guard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit),
}

impl Library for Lockdog {
    type Lock = Named;
    type Held = Hold;

    fn refuses(workload: &str) -> Option<&'static str> {
        match workload {
            "rtt" | "idle" | "serial" | "latch" | "campaign" => Some("the bare protocol's"),
            _ => None,
        }
    }

    async fn connect(request: &Request) -> Result<Self> {
        let reentry = match request.workload.as_str() {
            "W7-local" => Reentry::Local,
            _ => Reentry::Counted,
        };
        let mut clients = Vec::with_capacity(request.urls.len());
        if request.workload == "W18" {
            clients.push(Client::builder().cluster(&request.urls).build().await?);
        } else {
            for url in &request.urls {
                let client = Client::builder().url(url).reentry(reentry);
                clients.push(client.build().await?);
            }
        }
        let kind = Kind::of(request)?;
        if let (Kind::Semaphore, Some(client)) = (kind, clients.first()) {
            for name in names(request) {
                // False if another client of this cell was first.
                client.semaphore(name).try_set_permits(PERMITS).await?;
            }
        }
        Ok(Self { clients, kind })
    }

    fn lock(&self, name: &str) -> Named {
        let lock: fn(&Client, &str) -> Lock = match (self.kind, self.clients.first()) {
            (Kind::Lock(lock), _) => lock,
            (Kind::Leased, Some(client)) => {
                return Named::Leased(client.lock(name), lease_of(name));
            }
            (Kind::ReadWrite(first), Some(client)) => {
                return Named::Read(client.read_write_lock(name).prefer(first).read());
            }
            (Kind::Semaphore, Some(client)) => return Named::Semaphore(client.semaphore(name)),
            (_, None) => |client, name| client.lock(name),
        };
        match &self.clients[..] {
            [client] => Named::One(lock(client, name)),
            clients => Named::Quorum(RedLock::new(
                clients.iter().map(|client| lock(client, name)),
            )),
        }
    }

    fn write_lock(&self, name: &str) -> Named {
        match (self.kind, self.clients.first()) {
            (Kind::ReadWrite(first), Some(client)) => {
                Named::Write(client.read_write_lock(name).prefer(first).write())
            }
            _ => self.lock(name),
        }
    }

    async fn acquire(lock: &Named) -> Result<Hold> {
        Ok(match lock {
            Named::One(lock) => Hold::Lock(lock.lock().await?),
            Named::Leased(lock, lease) => Hold::Lock(lock.lock().lease(*lease).await?),
            Named::Quorum(lock) => Hold::Lock(lock.lock().await?),
            Named::Read(lock) => Hold::Read(lock.lock().await?),
            Named::Write(lock) => Hold::Write(lock.lock().await?),
            Named::Semaphore(semaphore) => Hold::Permit(semaphore.acquire().await?),
        })
    }

    async fn unlock(held: Hold) -> Result<()> {
        match held {
            Hold::Lock(guard) => drop(guard.unlock().await?),
            Hold::Read(guard) => drop(guard.unlock().await?),
            Hold::Write(guard) => drop(guard.unlock().await?),
            Hold::Permit(permit) => permit.release().await?,
        }
        Ok(())
    }

    async fn close(self) {
        for client in self.clients {
            client.shutdown().await;
        }
    }
}

impl Kind {
    fn of(request: &Request) -> Result<Self> {
        Ok(match (request.workload.as_str(), request.api.as_deref()) {
            ("W9a" | "W9b" | "W9c", None) => Self::ReadWrite(Preference::Writers),
            ("W9b" | "W9c", Some("readers-first")) => Self::ReadWrite(Preference::Readers),
            ("W11a" | "W11b" | "W11c", None) => Self::Semaphore,
            ("W8a" | "W8b" | "W8c" | "W8w", None) => {
                Self::Lock(|client, name| client.fair_lock(name))
            }
            ("W1", Some("other-shape")) => Self::Leased,
            (_, None | Some("plain")) => Self::Lock(|client, name| client.lock(name)),
            (_, Some("fenced")) => Self::Lock(|client, name| client.fenced_lock(name)),
            (_, Some("spin")) => Self::Lock(|client, name| client.spin_lock(name)),
            (_, Some("non-reentrant")) => {
                Self::Lock(|client, name| client.non_reentrant_lock(name))
            }
            (_, Some(other)) => return Err(format!("{other} is no kind of lock").into()),
        })
    }
}

/// One of several, so that neighbours have different ones.
fn lease_of(name: &str) -> Duration {
    Duration::from_secs(match name.len() % 3 {
        0 => 5,
        1 => 60,
        _ => 600,
    })
}
