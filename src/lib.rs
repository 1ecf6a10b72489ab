//! Distributed locks for tokio on Redis and Valkey, compatible with Redisson.
//!
//! # Start here
//!
//! Add lockdog to a service that uses tokio, and connect to the Redis server that all processes share.
//! Processes that use the same lock name on the same server exclude each other. You need not know
//! Redisson.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lockdog::Result<()> {
//! let client = lockdog::Client::connect("redis://127.0.0.1:6379").await?;
//! let lock = client.lock("orders:42"); // sends nothing yet
//!
//! // Waits for the lock. The watchdog renews the lease until the guard is unlocked or dropped.
//! let guard = lock.lock().await?;
//! guard.unlock().await?;
//!
//! // Waits at most 5 s, and holds the lock for at most 30 s.
//! let (wait, lease) = (Duration::from_secs(5), Duration::from_secs(30));
//! match lock.try_lock().wait(wait).lease(lease).await? {
//!     Some(guard) => drop(guard), // dropping the guard releases the lock, too
//!     None => println!("another owner holds the lock"),
//! }
//!
//! // Cancels the work if the lock is lost.
//! lock.with(|_held| async { /* work */ }).await?;
//!
//! client.shutdown().await; // releases what is still held
//! # Ok(())
//! # }
//! ```
//!
//! | you want | use |
//! | --- | --- |
//! | to connect | [`Client::connect`]; [`Client::builder`] for settings; [`Client::scope`] shuts down by itself |
//! | one lock | [`Client::lock`], which returns a [`Lock`] |
//! | many readers or one writer | [`Client::read_write_lock`] |
//! | an order between the waiters of all clients | [`Client::fair_lock`] |
//! | fencing tokens: growing numbers by which a store rejects late writes | [`Client::fenced_lock`] |
//! | at most `n` holders at a time | [`Client::permit_semaphore`], [`Client::semaphore`] |
//! | to wait until a count is zero | [`Client::count_down_latch`] |
//! | one leader, with a term and a value | [`Client::election`] |
//! | to lock some values of a group | [`Client::group_lock`] |
//! | several locks together | [`MultiLock`] |
//! | a lock that survives the loss of a server | [`RedLock`] |
//! | code that takes a lock of any kind | [`AnyLock`] |
//! | to know whether you still hold the lock | [`Guard`]: [`is_valid`](Guard::is_valid), [`lost`](Guard::lost) |
//! | to let branches of one task exclude each other | [`Lock::exclusive`] |
//! | settings | [`ClientBuilder`] and the module [`config`] |
//! | the options of a call: wait, lease, owner | the module [`request`] |
//! | to find out what went wrong | [`Error`] and the module [`error`] |
//! | the state of locks and servers | the module [`report`] |
//! | metrics and alerts | the module [`observe`], [`Client::stats`] |
//! | the locks of all clients, and who holds them | [`Client::locks`], [`Client::inspect`] |
//!
//! `docs/guide.md` in the repository is a guide that takes ten minutes to read. Two of its rules:
//!
//! - The owner of a lock is the tokio task. A task that holds a lock can acquire it again. Two branches
//!   of `join!` in one task do not exclude each other; use [`Lock::exclusive`] for them.
//! - Keep the guard. `if lock.try_lock().await?.is_some()` drops it immediately and runs without the lock.
//!
//! # Words
//!
//! A *lock* is a name on a server. An *owner*, by default a tokio task, *holds* the lock. Its *hold*
//! counts how often the owner acquired the lock. Redis keeps a hold for a *lease*. The client's
//! *watchdog* renews the lease of a hold that was acquired without one. A *guard* is the value that a
//! caller gets for one acquire. A hold that ends before its owner ends it is *lost*.
//!
//! # From Redisson
//!
//! | Redisson | lockdog |
//! | --- | --- |
//! | `RedissonClient` | [`Client`] |
//! | `useSentinelServers()` | [`ClientBuilder::sentinel`] |
//! | `useClusterServers()` | [`ClientBuilder::cluster`] |
//! | `RedissonMultiLock` | [`MultiLock`] |
//! | `RedissonRedLock` | [`RedLock`] |
//! | `RLock` | [`Lock`] and, for each acquire, a [`Guard`] |
//! | `getSpinLock(name)`, `getNonReentrantLock(name)` | [`Client::spin_lock`], [`Client::non_reentrant_lock`] |
//! | `getPermitExpirableSemaphore(name)` | [`PermitSemaphore`] and, for each acquire, a [`LeasedPermit`] |
//! | `getFencedLock(name)`, `lockAndGetToken()` | [`Client::fenced_lock`], [`Guard::token`] |
//! | the thread, `threadId` | [`Owner`] |
//! | `lock(lease, unit)` | [`lock.lock()`](Lock::lock)[`.lease(d)`](request::LockRequest::lease) |
//! | `tryLock(wait, lease, unit)` | [`lock.try_lock()`](Lock::try_lock)[`.wait(d)`](request::TryLockRequest::wait)[`.lease(d)`](request::TryLockRequest::lease) |
//! | `unlock()` | [`Guard::unlock`], or a drop; [`Lock::unlock`] for code that keeps no guard |
//! | `IllegalMonitorStateException` | [`Error::NotHeld`], [`Error::Lost`], [`Error::AlreadyHeld`] |
//! | `lockWatchdogTimeout` | [`ClientBuilder::watchdog_lease`] |
//!
//! The documentation of an item names the Redisson call, if there is one. `docs/porting-from-redisson.md`
//! lists all of them.
//!
//! # What it promises
//!
//! - At most one owner holds a lock. A read lock may have several holders; then no writer holds it. This
//!   assumes that the server keeps the key until its TTL ends, and that clock rates differ by less than
//!   1 %.
//! - A guard reports a lost lock before another owner can hold it, as long as the server keeps the key:
//!   [`Guard::lost`], [`Guard::lost_token`], [`Guard::is_valid`]. [`Lock::with`] cancels the work then.
//!   If the key disappears (deleted, flushed, or lost in a failover), the guard reports it at the next
//!   renewal: renewals are sent every third of the lease. A guard with a fixed lease reports it when
//!   the lease ends. With Sentinel or a cluster, guards report it as soon as the client sees the
//!   failover.
//! - A dropped future, a dropped guard, an aborted task or a panic leaves no lock behind. The client
//!   releases it in the background as soon as the server answers. A process that dies, or that returns
//!   from `main` without [`Client::shutdown`], leaves the lock for one lease, and a permit of
//!   [`Client::semaphore`] until [`Semaphore::reclaim`].
//! - If a command is sent twice, arrives late or gets no reply, it takes effect once, or the client undoes
//!   it.
//! - Every wait ends within its limit, with or without a message from the server.
//!   [`TryLockRequest::wait`](request::TryLockRequest::wait) and
//!   [`TryPermitRequest::wait`](request::TryPermitRequest::wait) name the three exceptions.
//! - A [`RedLock`] on several independent servers tolerates the loss of fewer than half of them. A server
//!   that was restarted may have lost its data. A client that detects the restart ignores the server's
//!   grants until all earlier leases have ended. [`RedLock::fenced`] adds tokens that grow.
//!
//! # In tests
//!
//! Under `tokio::time::pause()`, or `#[tokio::test(start_paused = true)]`, calls to a real server fail at
//! random, most of them immediately. While the answer is under way the runtime is idle, so its clock jumps
//! to the next timer, which is the limit of the call. Do not pause the time in tests that use a real
//! server. The crate `lockdog-test` is a server inside the test, and works with the paused clock.
//!
//! # What it does not promise
//!
//! - That only the holder writes. The process may be paused for longer than the lease between a check
//!   of the guard and the write. Where that matters, the store must refuse the late write:
//!   [`Guard::token`].
//! - Exclusion on one server after a failover to a replica without the lock, a restart without data, or
//!   an eviction. Two owners may then hold the lock until the one that lost it learns of the loss, as above.
//!   `docs/quorum.md` says which of these a [`RedLock`] tolerates.
//! - An order between the waiters of different clients, except with [`Client::fair_lock`]. The waiters of
//!   one client are served first in, first out.
//! - Authorization. Every user who may write to the server can end a lock.
//!
//! `docs/failure-model.md` lists the faults, and the tests that show what happens.
//!
//! # When not to use it
//!
//! In one process, use `tokio::sync::Mutex`; it needs no server. If you protect one row of a database,
//! let the database lock the row or refuse a late write. If you have a consensus store and no Java
//! service, use the locks of that store; they stay held when one of its servers fails.
//!
//! # Features
//!
//! - `deadpool`: `ClientBuilder::pool`, which takes a connection pool of the `deadpool-redis` crate. On by
//!   default.
//! - `tls`: `rediss://`, `rediss+sentinel://` and `rediss+cluster://` URLs, by rustls, with the system's
//!   certificates or those of [`ClientBuilder::tls`]. On by default.
//! - `tower`: `lockdog::tower::OwnerLayer`, which gives each request of a tower or axum service an owner of
//!   its own. Off by default.

// docs.rs shows which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "unit tests spawn tasks to have several owners"
    )
)]

mod background;
/// What `benches/micro` measures.
#[cfg(lockdog_bench)]
#[doc(hidden)]
#[path = "../benches/micro/inside.rs"]
pub mod bench;
mod client;
mod clock;
mod contend;
mod diagnosis;
mod election;
pub mod error;
mod guard;
mod hold;
mod key;
mod latch;
mod lease;
mod lock;
mod lock_request;
mod multi_lock;
mod object;
pub mod observe;
/// Tests of private items on real servers.
#[cfg(test)]
#[path = "../tests/on_servers/mod.rs"]
mod on_servers;
mod owner;
mod panics;
mod permit_semaphore;
mod permits;
mod read_write_lock;
mod red_lock;
mod script;
mod semaphore;
mod server;
mod session;
/// Tests that simulate the engine on virtual time.
#[cfg(test)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;
mod slot;
/// The private servers and faulty networks of the integration tests.
#[cfg(test)]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "not all of it is needed here"
)]
#[path = "../tests/it/support/mod.rs"]
mod support;
mod survey;
#[cfg(test)]
mod user_code;
mod wait;
mod watchdog;

pub use client::{Client, ClientBuilder};
pub use election::{Election, Leadership, Leading};
pub use error::{Error, Result};
pub use guard::{Guard, Held};
pub use key::{PermitId, Value};
pub use latch::CountDownLatch;
pub use lock::{AnyLock, Lock};
pub use multi_lock::MultiLock;
pub use owner::Owner;
pub use permit_semaphore::{LeasedPermit, PermitSemaphore};
pub use read_write_lock::{ReadGuard, ReadWriteLock, UpgradeError, WriteGuard};
pub use red_lock::RedLock;
pub use semaphore::{Permit, Semaphore};
pub use session::Unlocked;

/// Settings of a [`ClientBuilder`] and of requests.
pub mod config {
    /// The `deadpool-redis` crate, in the version that
    /// [`ClientBuilder::pool`](crate::ClientBuilder::pool) needs.
    #[cfg(feature = "deadpool")]
    pub use deadpool_redis;
    /// The pool for [`ClientBuilder::pool`](crate::ClientBuilder::pool).
    #[cfg(feature = "deadpool")]
    pub use deadpool_redis::Pool;

    pub use crate::lock::Preference;
    pub use crate::server::{
        Connector, Credentials, Protocol, ReplicaAck, Replicas, Time, TlsSettings, Transport,
    };
    pub use crate::session::Reentry;
    pub use crate::wait::{Backoff, Wake};
}

/// What the calls of locks, semaphores and elections return before you await them.
///
/// A request does nothing until it is awaited. Its methods set the options of the call. [`Locks`](request::Locks) and
/// [`Leaders`](request::Leaders) return one item for each call of `next`.
pub mod request {
    pub use crate::election::{CampaignRequest, Leaders, TimedCampaignRequest};
    pub use crate::lock::ForceUnlockRequest;
    pub use crate::lock_request::{FromGuard, LockRequest, TryLockRequest, UnlockRequest};
    pub use crate::permit_semaphore::{PermitRequest, TryPermitRequest};
    pub use crate::read_write_lock::UpgradeRequest;
    pub use crate::semaphore::{SemaphoreRequest, TrySemaphoreRequest};
    pub use crate::survey::Locks;
}

/// Layers for services of tower and axum. Needs the feature `tower`.
#[cfg(feature = "tower")]
pub mod tower {
    pub use crate::owner::{OwnerLayer, OwnerService};
}

/// Reports of clients, locks and guards about their state.
///
/// The whole crate has one rule for integers. A count of what exists at one moment is `u32`. A running total, a
/// fencing token, a term and an id are `u64`. A number that Redis keeps, and that can be negative, is `i64`: the free
/// permits of a semaphore, its size, and the count of a latch. Only `add_permits` takes an `i32`, as in Java.
pub mod report {
    pub use crate::client::{Connected, ShutdownReport, Stats};
    pub use crate::diagnosis::{Diagnosis, Finding, FindingKind};
    pub use crate::election::Leader;
    pub use crate::guard::Verdict;
    pub use crate::key::lock_hash;
    pub use crate::lock::{HoldInfo, HolderInfo, Ttl, WaiterInfo};
    pub use crate::semaphore::PermitHolder;
    pub use crate::survey::{ConnectionInfo, LockInfo, LockKind};
}

/// The token that [`Guard::lost_token`] returns.
pub use tokio_util::sync::CancellationToken;
/// The id that [`Client::id`] returns.
pub use uuid::Uuid;

#[cfg(test)]
mod tests {
    use std::panic::{RefUnwindSafe, UnwindSafe};

    use super::*;

    #[test]
    fn handles_are_unwind_safe() {
        fn may_cross<T: UnwindSafe + RefUnwindSafe + Send + Sync + 'static>() {}
        may_cross::<Client>();
        may_cross::<Lock>();
        may_cross::<MultiLock>();
        may_cross::<RedLock>();
        may_cross::<PermitSemaphore>();
        may_cross::<Semaphore>();
        may_cross::<ReadWriteLock>();
        may_cross::<CountDownLatch>();
        may_cross::<Election>();
        may_cross::<Owner>();
    }
}

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the recipes, one of which needs the layer of tower.
#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../docs/cookbook.md")]
struct Cookbook;

/// Compiles the examples of the deployments.
#[cfg(doctest)]
#[doc = include_str!("../docs/deployments.md")]
struct Deployments;

/// Compiles the example of the election.
#[cfg(doctest)]
#[doc = include_str!("../docs/election.md")]
struct ElectionPage;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide.md")]
struct Guide;

/// Compiles the example of the handbook.
#[cfg(doctest)]
#[doc = include_str!("../docs/operations.md")]
struct Operations;

/// Compiles the examples of the porting guide.
#[cfg(doctest)]
#[doc = include_str!("../docs/porting-from-redisson.md")]
struct Porting;
