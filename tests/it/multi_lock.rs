//! Several locks as one, on real servers: all or none, also during faults.

mod apart;
mod basics;
mod cancelled;
mod conflicts;
mod exclusion;
mod faults;
mod interop;
mod kinds;
mod lost;

use lockdog::{Client, Guard, Lock, MultiLock, Owner};

use crate::fixture::Servers;
use crate::support::eventually;
use crate::support::prelude::{LONG, SOON, ms};

/// Servers, and a client of each.
struct Fixture {
    clients: Vec<Client>,
    servers: Servers,
}

impl Fixture {
    async fn start(servers: usize) -> Self {
        let servers = Servers::start(servers).await;
        let clients = servers.clients().await;
        Self { servers, clients }
    }

    /// A client of each server, as another process has them.
    async fn others(&self) -> Vec<Client> {
        self.servers.clients().await
    }

    /// A multi lock of locks of this fixture's clients, by the number of the client and the name.
    fn multi(&self, members: &[(usize, &str)]) -> MultiLock {
        multi(&self.clients, members)
    }

    /// The lock in another client's hands, for longer than the test lasts.
    async fn held_elsewhere(&self, server: usize, name: &str) -> Guard {
        let lock = self.others().await[server].lock(name);
        lock.lock().lease(LONG).await.expect("it is free")
    }

    /// The counts of a lock's holders; there should be one at most.
    async fn counts(&self, server: usize, name: &str) -> Vec<String> {
        self.servers.redis[server]
            .hash(name)
            .await
            .into_values()
            .collect()
    }

    async fn is_free(&self, server: usize, name: &str) -> bool {
        !self.servers.redis[server].exists(name).await
    }

    /// Checks that no server has anything left except keys that the test wrote.
    async fn assert_clean(&self) {
        for redis in &self.servers.redis {
            redis.assert_clean().await;
            // A lease ends, and a background release arrives, slightly later.
            eventually(SOON, "no key is left", async || {
                redis.keys().await.is_empty()
            })
            .await;
        }
    }

    /// Loads every script of a plain cycle and resets the statistics.
    async fn warm_up(&self, clients: &[Client]) {
        let locks = clients.iter().map(|client| client.lock("warm-up"));
        let lock = MultiLock::new(locks);
        let guard = lock.lock().await.expect("it is free");
        guard.unlock().await.expect("it is held");
        for redis in &self.servers.redis {
            redis.reset_stats().await;
        }
    }

    /// How often scripts were called since the last reset.
    async fn scripts(&self, server: usize) -> u64 {
        let stats = self.servers.redis[server].commandstats().await;
        ["evalsha", "eval"]
            .map(|name| stats.get(name).copied().unwrap_or(0))
            .into_iter()
            .sum()
    }
}

fn multi(clients: &[Client], members: &[(usize, &str)]) -> MultiLock {
    let locks = members
        .iter()
        .map(|(client, name)| clients[*client].lock(name));
    MultiLock::new(locks.collect::<Vec<Lock>>())
}

/// Starts a task that waits for the lock as an owner of its own and reports when it has it.
fn waiter(lock: &MultiLock) -> tokio::task::JoinHandle<Guard> {
    let request = lock.lock().owner(&Owner::new());
    tokio::spawn(async move { request.await.expect("nothing is wrong with the servers") })
}
