//! Redisson's distributed locks for tokio services, on the same Redis keys as the Java services
//! beside them.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lockdog::Result<()> {
//! let client = lockdog::Client::connect("redis://127.0.0.1:6379").await?;
//! let lock = client.lock("orders:42");
//!
//! let guard = lock.lock().await?; // waits; the watchdog keeps the lease alive
//! guard.unlock().await?; // or just drop it
//!
//! let busy = lock.try_lock().wait(Duration::from_secs(1)).await?.is_none();
//! # Ok(())
//! # }
//! ```
//!
//! # Words
//!
//! A *lock* is a name on a server. An *owner*, as a rule a tokio task, *holds* it: its *hold* counts
//! how often it acquired the lock. Redis keeps a hold for a *lease*; the client's *watchdog* renews
//! the lease of a hold that was acquired without one. A *guard* stands for one acquire. A hold that
//! is gone against its owner's will is *lost*.
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
//! | the thread, `threadId` | [`Owner`] |
//! | `lock(lease, unit)` | [`lock.lock()`](Lock::lock)[`.lease(d)`](LockRequest::lease) |
//! | `tryLock(wait, lease, unit)` | [`lock.try_lock()`](Lock::try_lock)[`.wait(d)`](TryLockRequest::wait)[`.lease(d)`](TryLockRequest::lease) |
//! | `unlock()` | [`Guard::unlock`], or a drop; [`Lock::unlock`] for code that keeps no guard |
//! | `IllegalMonitorStateException` | [`Error::NotHeld`], [`Error::Lost`], [`Error::AlreadyHeld`] |
//! | `lockWatchdogTimeout` | [`ClientBuilder::watchdog_lease`] |
//!
//! Each item's documentation names its counterpart, `docs/porting-from-redisson.md` has them all.
//!
//! # What it promises
//!
//! - At most one owner holds a lock, as long as the server keeps the key until its TTL and the
//!   clocks' rates differ by less than one percent.
//! - As long as the server keeps the key, a guard tells that its lock is lost no later than another
//!   could have it: [`Guard::lost`], [`Guard::lost_token`], [`Guard::is_valid`]. [`Lock::with`] cancels
//!   the work then. Where the key is deleted, flushed or lost in a failover, it tells so at its next
//!   renewal (a third of the lease at most), or with a fixed lease at its end; with sentinels or a
//!   cluster, as soon as the switch is known.
//! - A dropped future, a dropped guard, an aborted task or a panic leaves no lock behind for longer
//!   than it takes to tell Redis, while the process goes on. A process that dies, or returns from
//!   `main` without [`Client::shutdown`], leaves it for one lease.
//! - Whatever is sent twice, late, or unanswered has the effect of once, or is undone.
//! - No wait is longer than it was told to be, and no message has to arrive for it to end. A wait below
//!   10 ms has 10 ms for its first attempt: see [`TryLockRequest::wait`].
//! - A [`RedLock`] on several independent servers bears with the loss of fewer than half of them. A
//!   server that comes back, perhaps without its data, does not count until every lease of before is
//!   over, as far as the client can see that it came back. [`RedLock::fenced`] brings tokens that grow.
//!
//! # In tests
//!
//! Under `tokio::time::pause()`, or `#[tokio::test(start_paused = true)]`, every call fails within a
//! millisecond: while an answer is on its way the runtime has nothing to do, and its clock leaps to the
//! next timer, which is that call's limit. Let time run in tests that use a lock.
//!
//! # What it does not promise
//!
//! - That nobody writes without the lock: between a look at the guard and the write, the process may
//!   be stopped for longer than the lease. Where that matters, the store itself has to refuse it:
//!   [`Guard::token`].
//! - Exclusion of a lock on one server across a failover to a replica that had not seen the lock, a
//!   restart without data, or an eviction: the first holder learns of it as above. `docs/quorum.md`
//!   says which of these a [`RedLock`] bears with.
//! - An order between the waiters of different clients. Those of one client wait first in, first out.
//! - Authorization: whoever may write to the server may end a lock.
//!
//! `docs/failure-model.md` has every fault, and the test that shows what happens in it.
//!
//! # When not to use it
//!
//! Inside one process a `tokio::sync::Mutex` needs no server. Where the protected thing is one row of
//! a database, let the database lock it, or refuse a write that comes late. Without a Java service
//! beside it, and with a consensus store at hand, take that one's locks: they outlive the loss of a
//! machine.
//!
//! # Features
//!
//! - `deadpool`: `ClientBuilder::pool`, which takes a connection pool of the `deadpool-redis` crate. On by default.
//! - `tls`: `rediss://`, `rediss+sentinel://` and `rediss+cluster://` URLs, through rustls and the system's certificates
//!   or those of [`ClientBuilder::tls`]. On by default.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "unit tests spawn tasks to have several owners"
    )
)]

#[macro_use]
mod mutant;

mod background;
#[cfg(lockdog_bench)]
#[doc(hidden)]
pub mod bench;
mod client;
mod clock;
mod contend;
mod diagnosis;
mod error;
mod guard;
mod hold;
mod key;
mod lease;
mod lock;
mod multi_lock;
#[cfg(test)]
mod on_servers;
mod owner;
mod panics;
mod red_lock;
mod request;
mod script;
mod server;
mod session;
#[cfg(test)]
mod simulation;
mod slot;
/// Private servers and faulty networks, the integration tests' own.
#[cfg(test)]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "not all of it is needed here"
)]
#[path = "../tests/it/support/mod.rs"]
mod support;
#[cfg(test)]
mod user_code;
mod wait;
mod watchdog;

pub use client::{Client, ClientBuilder, ShutdownReport};
pub use diagnosis::{Diagnosis, Finding, FindingKind};
pub use error::{
    AlreadyHeld, Error, Instance, InstanceState, Lost, LostReason, NoQuorum, NotHeld,
    NotReplicated, Result, UnlockUnconfirmed,
};
pub use guard::{Guard, Held, Verdict};
pub use lock::{AnyLock, ForceUnlockRequest, HoldInfo, HolderInfo, Lock, Ttl};
pub use multi_lock::MultiLock;
pub use owner::Owner;
pub use red_lock::RedLock;
pub use request::{LockRequest, TryLockRequest, UnlockRequest};
pub use server::{Connector, Protocol, ReplicaAck, Replicas, Time, TlsSettings, Transport};
pub use session::{Reentry, Unlocked};
pub use wait::{Backoff, Wake};

/// The crate of [`ClientBuilder::pool`], in the version that it takes.
#[cfg(feature = "deadpool")]
pub use deadpool_redis;
/// What [`ClientBuilder::pool`] takes.
#[cfg(feature = "deadpool")]
pub use deadpool_redis::Pool;
/// What [`Guard::lost_token`] returns.
pub use tokio_util::sync::CancellationToken;
/// What [`Client::id`] returns.
pub use uuid::Uuid;

#[cfg(test)]
mod tests {
    use std::panic::{RefUnwindSafe, UnwindSafe};

    use super::*;

    #[test]
    fn handles_may_cross_a_caught_panic() {
        fn may_cross<T: UnwindSafe + RefUnwindSafe + Send + Sync + 'static>() {}
        may_cross::<Client>();
        may_cross::<Lock>();
        may_cross::<MultiLock>();
        may_cross::<RedLock>();
        may_cross::<Owner>();
    }
}

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the examples of the deployments.
#[cfg(doctest)]
#[doc = include_str!("../docs/deployments.md")]
struct Deployments;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide.md")]
struct Guide;

/// Compiles the examples of the porting guide.
#[cfg(doctest)]
#[doc = include_str!("../docs/porting-from-redisson.md")]
struct Porting;
