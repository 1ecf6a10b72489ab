//! The read/write lock. RW1 to RW8 are the invariants of `docs/design.md`.

mod acceptance;
mod basics;
mod cluster;
mod exclusion;
mod faults;
mod force;
mod frozen;
mod input;
mod leases;
mod modes;
mod nemesis;
mod replay;
mod upgrades;
mod waits;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockdog::{Client, ClientBuilder, Owner, ReadGuard, ReadWriteLock, WriteGuard};
use tokio::task::JoinHandle;

use crate::support::prelude::{LONG, SOON, ms, poll_once};
use crate::support::{eventually, until_ok};

/// The lock under test.
struct Document {
    rw: ReadWriteLock,
}

type Fixture = crate::fixture::Fixture<Document>;

impl Fixture {
    async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        Self::of(set, |client| Document {
            rw: client.read_write_lock(NAME),
        })
        .await
    }

    /// The lock through a client whose waiters are woken only by messages and the ends of leases during
    /// the test.
    async fn another(&self) -> ReadWriteLock {
        self.another_with(|builder| builder.poll_cap(LONG)).await
    }

    async fn another_with(
        &self,
        set: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> ReadWriteLock {
        self.connect(set).await.read_write_lock(NAME)
    }

    async fn hash(&self) -> BTreeMap<String, String> {
        self.redis.hash(NAME).await
    }

    /// The mode, and how many holders there are. Checks RW1.
    async fn mode(&self) -> (String, usize) {
        let mut hash = self.hash().await;
        let mode = hash.remove("mode").unwrap_or_default();
        let writers: Vec<&String> = hash.keys().filter(|it| it.ends_with(":write")).collect();
        assert_eq!(writers.len(), usize::from(mode == "write"), "{hash:?}");
        if let [writer] = writers[..] {
            let owner = |field: &str| field.split('.').next().unwrap().to_owned();
            assert!(hash.keys().all(|it| owner(it) == owner(writer)), "{hash:?}");
        }
        (mode, hash.len())
    }

    async fn eventually_mode(&self, mode: &str, holders: usize) {
        eventually(
            SOON,
            &format!("{holders} hold it, mode {mode:?}"),
            async || self.mode().await == (mode.to_owned(), holders),
        )
        .await;
    }

    /// Waits until a waiter is subscribed and had time for the poll that follows.
    async fn somebody_waits(&self) {
        eventually(SOON, "a waiter is subscribed", async || {
            self.redis.channels().await.contains(&CHANNEL.to_owned())
        })
        .await;
        tokio::time::sleep(ms(100)).await;
    }

    async fn announced(&self) -> bool {
        self.redis.exists(ANNOUNCEMENT).await
    }

    /// RW4: lockdog leaves no key, and no key is without a TTL.
    async fn assert_clean(&self) {
        self.redis.assert_clean().await;
        self.redis.eventually_empty().await;
    }
}

/// A new owner for each call.
async fn read(rw: &ReadWriteLock) -> ReadGuard {
    let request = rw.read().lock().owner(&Owner::new());
    request.await.expect("nothing is wrong with the server")
}

async fn write(rw: &ReadWriteLock) -> WriteGuard {
    let request = rw.write().lock().owner(&Owner::new());
    request.await.expect("nothing is wrong with the server")
}

/// A read hold of a new owner with a lease that a busy machine may exceed, and a moment before the server began to
/// count.
async fn read_for(lease: Duration, rw: &ReadWriteLock) -> (ReadGuard, Instant) {
    until_ok(SOON, async || {
        let asked = Instant::now();
        let granted = rw.read().lock().owner(&Owner::new()).lease(lease).await;
        granted.map(|guard| (guard, asked))
    })
    .await
}

/// As `read_for`, for this owner.
async fn write_for(lease: Duration, rw: &ReadWriteLock, owner: &Owner) -> (WriteGuard, Instant) {
    until_ok(SOON, async || {
        let asked = Instant::now();
        let granted = rw.write().lock().owner(owner).lease(lease).await;
        granted.map(|guard| (guard, asked))
    })
    .await
}

async fn may_read(rw: &ReadWriteLock) -> bool {
    let tried = rw.read().try_lock().owner(&Owner::new()).await;
    match tried.expect("nothing is wrong with the server") {
        Some(guard) => guard.unlock().await.is_ok(),
        None => false,
    }
}

async fn may_write(rw: &ReadWriteLock) -> bool {
    let tried = rw.write().try_lock().owner(&Owner::new()).await;
    match tried.expect("nothing is wrong with the server") {
        Some(guard) => guard.unlock().await.is_ok(),
        None => false,
    }
}

fn reader(rw: &ReadWriteLock) -> JoinHandle<ReadGuard> {
    let rw = rw.clone();
    tokio::spawn(async move { read(&rw).await })
}

fn writer(rw: &ReadWriteLock) -> JoinHandle<WriteGuard> {
    let rw = rw.clone();
    tokio::spawn(async move { write(&rw).await })
}

/// A writer that releases the lock as soon as it has it.
fn turn(rw: &ReadWriteLock) -> JoinHandle<()> {
    let rw = rw.clone();
    tokio::spawn(async move {
        let guard = write(&rw).await;
        guard.unlock().await.expect("it holds the lock");
    })
}

async fn within_soon<T>(waiter: JoinHandle<T>) -> T {
    let guard = tokio::time::timeout(SOON, waiter).await;
    guard.expect("it is woken").expect("it does not panic")
}

const NAME: &str = "doc";
const CHANNEL: &str = "redisson_rwlock:{doc}";
const ANNOUNCEMENT: &str = "lockdog_writer:{doc}";

/// A lease that a busy machine can renew in time.
const LEASE: Duration = Duration::from_secs(6);
