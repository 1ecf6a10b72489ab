//! A lock on many servers: which owner gets it, the state of each server, and the reports when some
//! servers are down.

mod acceptance;
mod basics;
mod clients;
mod ends;
mod faults;
mod forgotten;
mod guards;
mod interop;
mod leases;
mod logs;
mod members;
mod nesting;
mod options;
mod recording;
mod reports;
mod shapes;
mod waiting;

use std::time::{Duration, Instant};

use lockdog::error::InstanceState;
use lockdog::request::TryLockRequest;
use lockdog::{Client, Guard, RedLock};

use crate::fixture::Servers;
use crate::support::eventually;
use crate::support::prelude::{WITHIN_A_LEASE as SOON, ms};

impl Servers {
    /// A lock of this name on all servers, of clients that no other lock uses.
    async fn lock(&self, name: &str) -> RedLock {
        lock_of(&self.clients().await, name)
    }

    /// One client for each server, whose waiters are woken only by messages and TTLs during the test.
    async fn clients_without_polling(&self) -> Vec<Client> {
        self.clients_with(|builder| builder.poll_cap(NEVER)).await
    }

    /// The hold count of the lock on each server, of any holder.
    async fn counts(&self, name: &str) -> Vec<u64> {
        let mut counts = Vec::new();
        for redis in &self.redis {
            let hash = redis.hash(name).await;
            let count = |count: &String| count.parse::<u64>().expect("a count");
            counts.push(hash.values().map(count).sum());
        }
        counts
    }

    /// Waits until the servers have these counts, because the client releases instances in the
    /// background.
    async fn assert_counts<const N: usize>(&self, name: &str, expected: [u64; N]) {
        let mut seen = Vec::new();
        let deadline = Instant::now() + SOON;
        while seen != expected {
            assert!(
                Instant::now() < deadline,
                "the servers count {seen:?}, expected {expected:?}"
            );
            tokio::time::sleep(ms(5)).await;
            seen = self.counts(name).await;
        }
    }

    /// On how many servers the lock is taken.
    async fn taken(&self, name: &str) -> usize {
        let mut taken = 0;
        for redis in &self.redis {
            taken += usize::from(redis.exists(name).await);
        }
        taken
    }

    /// Checks that no server has a key of any lock.
    async fn assert_clean(&self) {
        for redis in &self.redis {
            redis.assert_clean().await;
        }
    }
}

fn lock_of(clients: &[Client], name: &str) -> RedLock {
    RedLock::new(clients.iter().map(|client| client.lock(name)))
}

/// Waits until the guard counts this number of instances as acquired.
async fn has(guard: &Guard, acquired: usize) {
    eventually(SOON, "this number of instances is acquired", async || {
        states(guard)
            .iter()
            .filter(|state| matches!(state, InstanceState::Acquired))
            .count()
            == acquired
    })
    .await;
}

/// What a quorum decides about a request that makes one round or waits briefly. It is repeated if it fails: an
/// instance has at most half a second to answer, and a busy machine takes longer.
pub(crate) async fn decided(request: impl Fn() -> TryLockRequest) -> Option<Guard> {
    let deadline = Instant::now() + SOON;
    loop {
        match request().await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_retriable() && Instant::now() < deadline, "{error}"),
        }
    }
}

fn states(guard: &Guard) -> Vec<InstanceState> {
    let instances = guard.instances().into_iter();
    instances.map(|instance| instance.state).collect()
}

/// Longer than any test lasts.
const NEVER: Duration = Duration::from_secs(120);
