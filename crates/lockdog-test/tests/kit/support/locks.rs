//! A lock of each shape on servers of its own.

use std::time::Duration;

use lockdog::request::{LockRequest, TryLockRequest};
use lockdog::{Client, Guard, Lock, MultiLock, RedLock};
use lockdog_test::Server;

/// A lock with this name, or a lock of several locks with this name on several servers.
pub(crate) struct Fixture {
    pub(crate) servers: Vec<Server>,
    pub(crate) clients: Vec<Client>,
    pub(crate) lock: AnyLock,
}

pub(crate) enum AnyLock {
    Plain(Lock),
    Multi(MultiLock),
    Quorum(RedLock),
}

impl Fixture {
    /// One fixture for each shape of a lock.
    pub(crate) async fn each() -> [Self; 3] {
        let plain = Self::of(1, |locks| AnyLock::Plain(locks[0].clone())).await;
        let multi = Self::of(2, |locks| AnyLock::Multi(MultiLock::new(locks))).await;
        let quorum = Self::of(3, |locks| {
            AnyLock::Quorum(RedLock::new(locks).max_lease(Duration::from_secs(600)))
        });
        [plain, multi, quorum.await]
    }

    async fn of(servers: usize, lock: impl FnOnce(Vec<Lock>) -> AnyLock) -> Self {
        let servers: Vec<Server> = (0..servers).map(|_| Server::new()).collect();
        let mut clients = Vec::new();
        for server in &servers {
            clients.push(server.client().await);
        }
        let lock = lock(clients.iter().map(|client| client.lock(NAME)).collect());
        Self {
            servers,
            clients,
            lock,
        }
    }

    pub(crate) fn lock(&self) -> LockRequest {
        match &self.lock {
            AnyLock::Plain(lock) => lock.lock(),
            AnyLock::Multi(lock) => lock.lock(),
            AnyLock::Quorum(lock) => lock.lock(),
        }
    }

    pub(crate) fn try_lock(&self) -> TryLockRequest {
        match &self.lock {
            AnyLock::Plain(lock) => lock.try_lock(),
            AnyLock::Multi(lock) => lock.try_lock(),
            AnyLock::Quorum(lock) => lock.try_lock(),
        }
    }

    pub(crate) async fn held(&self) -> Guard {
        self.lock().await.expect("the lock is free")
    }

    /// On how many servers an owner has it.
    pub(crate) fn taken(&self) -> usize {
        let mut servers = self.servers.iter();
        servers
            .by_ref()
            .filter(|it| it.holder(NAME).is_some())
            .count()
    }

    /// Every server has it.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken() == self.servers.len()
    }
}

pub(crate) const NAME: &str = "orders";
