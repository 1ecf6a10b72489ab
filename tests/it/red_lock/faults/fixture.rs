//! Some servers, each behind a proxy that can cause faults.

use std::time::{Duration, Instant};

use lockdog::error::{Instance, InstanceState};
use lockdog::{Client, ClientBuilder, Error, Guard, RedLock};

use super::{LEASE, NAME};
use crate::fixture::connected;
use crate::red_lock::{SOON, lock_of, ms};
use crate::support::{Proxy, RedisServer, eventually};

pub(super) struct Fixture {
    pub(super) servers: Vec<RedisServer>,
    /// One for each server, or none at all.
    pub(super) proxies: Vec<Proxy>,
}

impl Fixture {
    /// Servers that are reached directly.
    pub(super) async fn start(n: usize) -> Self {
        let mut servers = Vec::new();
        for _ in 0..n {
            servers.push(RedisServer::start().await);
        }
        Self::of(servers)
    }

    /// Servers that keep their data when they are killed.
    pub(super) async fn persistent(n: usize) -> Self {
        let mut servers = Vec::new();
        for _ in 0..n {
            servers.push(RedisServer::builder().persistent().start().await);
        }
        Self::of(servers)
    }

    /// Servers with a proxy before each.
    pub(super) async fn proxied(n: usize) -> Self {
        let mut test = Self::start(n).await;
        for server in &test.servers {
            test.proxies.push(Proxy::start(server).await);
        }
        test
    }

    pub(super) fn of(servers: Vec<RedisServer>) -> Self {
        Self {
            servers,
            proxies: Vec::new(),
        }
    }

    /// A client for each server, behind the proxies if there are any.
    pub(super) async fn clients(&self) -> Vec<Client> {
        self.clients_with(|builder| builder).await
    }

    pub(super) async fn clients_with(
        &self,
        settings: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Vec<Client> {
        let mut clients = Vec::new();
        for (member, server) in self.servers.iter().enumerate() {
            let proxy = self.proxies.get(member);
            let url = proxy.map_or_else(|| server.url(), |proxy| proxy.url().to_owned());
            clients.push(client(&url, &settings).await);
        }
        clients
    }

    /// A lock on all servers, of clients that no other lock uses.
    pub(super) async fn lock(&self) -> RedLock {
        red_lock(&self.clients().await)
    }

    /// As [`Fixture::lock`], past the proxies.
    pub(super) async fn direct_lock(&self) -> RedLock {
        red_lock(&self.direct_clients_with(|builder| builder).await)
    }

    pub(super) async fn direct_clients_with(
        &self,
        settings: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Vec<Client> {
        let mut clients = Vec::new();
        for server in &self.servers {
            clients.push(client(&server.url(), &settings).await);
        }
        clients
    }

    /// Whether the lock's key exists on a running server.
    pub(super) async fn is_taken(&self, member: usize) -> bool {
        self.servers[member].redis().await.exists(NAME).await
    }

    /// On how many running servers the lock is taken.
    pub(super) async fn taken(&self) -> usize {
        let mut taken = 0;
        for member in 0..self.servers.len() {
            taken += usize::from(self.runs(member) && self.is_taken(member).await);
        }
        taken
    }

    /// Waits until the lock is taken on this number of servers.
    pub(super) async fn await_taken(&self, n: usize) {
        let what = format!("{n} servers have the lock");
        eventually(SOON, &what, async || self.taken().await == n).await;
    }

    /// Checks that every remaining key on the running servers is released or expires with its lease,
    /// and that no client renews it.
    pub(super) async fn assert_nothing_stays(&self) {
        self.assert_nothing_stays_of(LEASE).await;
    }

    /// As [`Fixture::assert_nothing_stays`], for another lease.
    pub(super) async fn assert_nothing_stays_of(&self, lease: Duration) {
        for (member, server) in self.servers.iter().enumerate() {
            if !self.runs(member) {
                continue;
            }
            let redis = server.redis().await;
            let mut most = lease.as_millis() as i64;
            loop {
                let left = redis.pttl(NAME).await;
                if left == -2 {
                    break;
                }
                assert!(
                    (0..=most).contains(&left),
                    "server {member} has it for {left} ms, after {most} ms"
                );
                most = left;
                tokio::time::sleep(ms(10)).await;
            }
            redis.assert_clean().await;
        }
    }

    fn runs(&self, member: usize) -> bool {
        self.servers[member].is_running()
    }
}

/// Less than a sixth of the lease, which limits an attempt to connect, too.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_millis(400);

pub(super) async fn client(url: &str, settings: impl Fn(ClientBuilder) -> ClientBuilder) -> Client {
    let builder = Client::builder()
        .url(url)
        .watchdog_lease(LEASE)
        .command_timeout(COMMAND_TIMEOUT)
        .poll_cap(ms(200));
    connected(settings(builder)).await
}

/// With a quarantine short enough for a test.
pub(super) fn red_lock(clients: &[Client]) -> RedLock {
    lock_of(clients, NAME).max_lease(LEASE)
}

/// Acquires a lock that is free or will be soon.
pub(super) async fn take(lock: &RedLock) -> Guard {
    let taken = lock.try_lock().wait(SOON * 2).await;
    taken
        .expect("enough servers answer")
        .expect("the lock becomes free")
}

/// Releases it. On a busy machine answers may be late, and then the client completes the release in the
/// background.
pub(super) async fn give_back(guard: Guard) {
    match guard.unlock().await {
        Ok(_) | Err(Error::UnlockUnconfirmed(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Checks that another owner does not acquire the lock, because a quorum is held.
pub(super) async fn assert_busy(lock: &RedLock) {
    let taken = lock.try_lock().owner(&lockdog::Owner::new()).await;
    match taken {
        Ok(None) => {}
        // A busy machine may be late.
        Err(Error::NoQuorum(_)) => {}
        Ok(Some(_)) => panic!("two have it"),
        Err(error) => panic!("{error}"),
    }
}

/// The state of each instance as one letter: acquired, held by another, quarantined, unreachable and so
/// on.
pub(super) fn states_as_letters(instances: &[Instance], test: &Fixture) -> String {
    let mut letters = vec!['?'; instances.len()];
    for instance in instances {
        let member = test.member(instance);
        letters[member] = match instance.state {
            InstanceState::Acquired => 'A',
            InstanceState::HeldByAnother { .. } => 'H',
            InstanceState::Quarantined { .. } => 'Q',
            InstanceState::Unreachable { .. } => 'U',
            InstanceState::Late => 'L',
            InstanceState::Lost => 'X',
            InstanceState::Forgetful => 'F',
            _ => '-',
        };
    }
    letters.into_iter().collect()
}

/// Waits until the guard reports these states.
pub(super) async fn await_states(guard: &Guard, test: &Fixture, wanted: &str) {
    let until = Instant::now() + SOON;
    loop {
        let found = states_as_letters(&guard.instances(), test);
        if found == wanted {
            return;
        }
        assert!(Instant::now() < until, "{found} and not {wanted}");
        tokio::time::sleep(ms(5)).await;
    }
}

impl Fixture {
    /// The number of the instance's server, because instances are in the order of the clients' ids.
    pub(super) fn member(&self, instance: &Instance) -> usize {
        let is_at = |port: u16| instance.server.ends_with(&format!(":{port}"));
        let at = (0..self.servers.len()).find(|member| {
            is_at(self.servers[*member].port())
                || self
                    .proxies
                    .get(*member)
                    .is_some_and(|proxy| is_at(proxy.port()))
        });
        at.expect("it is one of these servers")
    }
}
