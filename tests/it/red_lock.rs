//! A lock on many servers: who gets it, what stands on each server, and what is told when some of
//! them are gone.

mod basics;
mod faults;

use std::time::Duration;

use lockdog::{Client, ClientBuilder, RedLock};

use crate::support::{Redis, RedisServer};

/// Some servers, and the test's own view of each.
struct Servers {
    all: Vec<RedisServer>,
    views: Vec<Redis>,
}

impl Servers {
    async fn start(n: usize) -> Self {
        let (mut all, mut views) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let server = RedisServer::start().await;
            views.push(server.redis().await);
            all.push(server);
        }
        Self { all, views }
    }

    /// One client for each server.
    async fn clients(&self) -> Vec<Client> {
        self.clients_with(|builder| builder).await
    }

    /// One client for each server, made otherwise than usual.
    async fn clients_with(&self, settings: impl Fn(ClientBuilder) -> ClientBuilder) -> Vec<Client> {
        let mut clients = Vec::new();
        for server in &self.all {
            let builder = settings(Client::builder().url(server.url()));
            clients.push(builder.build().await.expect("it runs"));
        }
        clients
    }

    /// A lock of this name on all servers, of clients that nobody else uses.
    async fn lock(&self, name: &str) -> RedLock {
        lock_of(&self.clients().await, name)
    }

    /// On how many servers the lock is taken.
    async fn taken(&self, name: &str) -> usize {
        let mut taken = 0;
        for view in &self.views {
            taken += usize::from(view.exists(name).await);
        }
        taken
    }

    /// No server has anything left of any lock.
    async fn assert_clean(&self) {
        for view in &self.views {
            view.assert_clean().await;
        }
    }
}

fn lock_of(clients: &[Client], name: &str) -> RedLock {
    RedLock::new(clients.iter().map(|client| client.lock(name)))
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What happens behind is done by then.
const SOON: Duration = Duration::from_secs(10);
