//! The client: it connects, creates locks, and owns the background work.

mod access;
mod build;
mod builder;
mod closing;
mod diagnose;
mod logs;
mod objects;
mod observing;
mod order;
mod place;
mod scope;
mod shutdown;
mod stats;
mod survey;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::background::ensure_runtime;
use crate::error::{Error, Result};
use crate::key::{Value, kind};
use crate::lock::{HoldInfo, Lock, Preference};
use crate::read_write_lock::ReadWriteLock;
use crate::script;
use crate::server::Sent;
use crate::session::Session;

pub use builder::ClientBuilder;
pub use shutdown::ShutdownReport;
pub use stats::{Connected, Stats};

/// A client of one Redis deployment. It creates locks and renews them. Corresponds to Redisson's
/// `RedissonClient`.
///
/// A `Client` is a handle. Clones are the same client. Its locks and guards keep it alive. When the last
/// of them is dropped, the client releases in the background what it still holds, and ends its thread
/// and connections.
///
/// Two clients are two owners, even in one task. So create one client in each process, and clone it.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> lockdog::Result<()> {
/// let client = lockdog::Client::connect("redis://127.0.0.1:6379").await?;
/// let guard = client.lock("orders:42").lock().await?;
/// guard.unlock().await?;
/// client.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    session: Arc<Session>,
    /// Of the read/write locks whose handles set no other one.
    preference: Preference,
    /// Cancelled when the background has ended.
    ended: CancellationToken,
}

impl Client {
    /// Connects to a server with default settings. Corresponds to Redisson's `Redisson.create(config)`.
    ///
    /// | deployment | URL |
    /// | --- | --- |
    /// | one server | `redis://[user:password@]host[:port][/db]` or `unix:///path[?db=n]` |
    /// | the master of sentinels | `redis+sentinel://[user:password@]host[:port][,host[:port]...]/master[/db]`: see [`ClientBuilder::sentinel`] |
    /// | a cluster | `redis+cluster://[user:password@]host[:port][,host[:port]...]`: see [`ClientBuilder::cluster`] |
    ///
    /// `rediss://`, `rediss+sentinel://` and `rediss+cluster://` use TLS (with the feature `tls`).
    /// `?protocol=resp3` at the end selects RESP3: see [`ClientBuilder::protocol`].
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::build`].
    ///
    /// # Cancel safety
    ///
    /// As [`ClientBuilder::build`].
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder().url(url).build().await
    }

    /// Returns a builder, for settings other than the defaults. Corresponds to Redisson's `Config`.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The lock of this name. Corresponds to Redisson's `getLock(name)`.
    ///
    /// The name has 1 to 512 bytes, which the client does not change. This call sends nothing. If the name
    /// is invalid, each request of the lock returns [`Error::Invalid`](crate::Error::Invalid).
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.session.clone(), &kind::PLAIN, name.as_ref())
    }

    /// The spin lock of this name. Corresponds to Redisson's `getSpinLock(name)`.
    ///
    /// A release of a spin lock publishes no message. Its waiters poll: the pauses between two attempts
    /// grow from 1 ms to 128 ms, or are those of [`Lock::backoff`]. This saves the messages of locks that
    /// are held for a few milliseconds. Of the waiters of one client only one polls, and the client hands
    /// the lock over between them.
    ///
    /// A spin lock and a lock of another kind with the same name exclude each other. The release of a
    /// spin lock does not wake waiters of other kinds. An owner that holds one kind does not re-enter
    /// another kind.
    pub fn spin_lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.session.clone(), &kind::SPIN, name.as_ref())
    }

    /// The non-reentrant lock of this name. Corresponds to Redisson's `getNonReentrantLock(name)`.
    ///
    /// If its owner calls `lock` or `try_lock` again, the call returns
    /// [`Error::AlreadyHeld`](crate::Error::AlreadyHeld) and sends nothing. A hold whose guard was
    /// forgotten counts too. Two calls that one owner makes at the same time, for example in two branches
    /// of `join!`, wait for each other like calls of two owners.
    ///
    /// A non-reentrant lock and a lock of another kind with the same name exclude each other. An owner
    /// that holds one kind does not re-enter another kind: its call waits until its limit.
    ///
    /// It can be a member of a [`MultiLock`](crate::MultiLock). It cannot be an instance of a
    /// [`RedLock`](crate::RedLock): each request of such a `RedLock` returns
    /// [`Error::Invalid`](crate::Error::Invalid).
    pub fn non_reentrant_lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.session.clone(), &kind::NON_REENTRANT, name.as_ref())
    }

    /// The fair lock of this name. Corresponds to Redisson's `getFairLock(name)`.
    ///
    /// It is granted in the order in which its waiters, of all clients, arrived at the server. Waiters of
    /// Redisson and of lockdog wait in one queue. A call that ends or is dropped leaves the queue. A
    /// waiter whose client crashed, or whose future is not polled, delays the others by at most
    /// [`ClientBuilder::fair_absence`] and a poll cap while a client of lockdog waits or unlocks. This time
    /// counts from the last query of its client.
    ///
    /// `try_lock()` without a wait takes no place in the queue, and returns `None` while the queue has a
    /// waiter. [`ClientBuilder::max_hand_overs`] and [`ClientBuilder::max_hand_over_time`] do not apply.
    ///
    /// A fair lock and a lock of another kind with the same name exclude each other, but the other kind
    /// ignores the queue, and its release wakes no waiter of the fair lock. An owner does not re-enter
    /// from one kind to another.
    ///
    /// It can be a member of a [`MultiLock`](crate::MultiLock). It cannot be an instance of a
    /// [`RedLock`](crate::RedLock): each request of such a RedLock returns
    /// [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
    /// let turn = client.fair_lock("printer").lock().await?;
    /// // All that came before have had their turn.
    /// turn.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fair_lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.session.clone(), &kind::FAIR, name.as_ref())
    }

    /// The non-reentrant fair lock of this name. Corresponds to Redisson's
    /// `getNonReentrantFairLock(name)`.
    ///
    /// As [`Client::fair_lock`], but if its owner calls `lock` or `try_lock` again, the call returns
    /// [`Error::AlreadyHeld`](crate::Error::AlreadyHeld) and sends nothing, as with
    /// [`Client::non_reentrant_lock`].
    pub fn non_reentrant_fair_lock(&self, name: impl AsRef<str>) -> Lock {
        let kind = &kind::NON_REENTRANT_FAIR;
        Lock::new(self.session.clone(), kind, name.as_ref())
    }

    /// The fenced lock of this name: each hold has a fencing token, [`Guard::token`](crate::Guard::token),
    /// which is larger than the tokens of all holds before it. Corresponds to Redisson's
    /// `getFencedLock(name)`.
    ///
    /// Send the token with each write to the resource that the lock protects. A resource that remembers
    /// the largest token and refuses smaller ones is safe from the late writes of a holder that lost the
    /// lock. `guard.token()` corresponds to the result of `lockAndGetToken()` and
    /// `tryLockAndGetToken()`; all acquires of one hold have the same token.
    ///
    /// A token is the server's clock in microseconds, or the counter's next number if that is larger.
    /// So tokens continue to grow if the counter is deleted. They have 51 bits: store them in 64 bits, or
    /// use [`Client::fenced_lock_from_one`].
    ///
    /// After a failover to a replica that missed the last grants, the clock of the new master decides: it
    /// must not be behind the clock of the old one by more than the failover took. A
    /// [`RedLock`](crate::RedLock) with [`fenced`](crate::RedLock::fenced) does not depend on clocks of
    /// one server, and refuses a fenced lock as an instance. A [`MultiLock`](crate::MultiLock) may have
    /// it as a member, and acquires it by a command of its own.
    ///
    /// Locks of other kinds of the same name exclude it, and issue no token. An owner does not re-enter
    /// from one kind to another.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
    /// let guard = client.fenced_lock("orders:42").lock().await?;
    /// let token = guard.token().expect("a fenced lock issues tokens");
    /// // UPDATE orders SET .., token = $token WHERE id = 42 AND token <= $token
    /// # let _ = token;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.session.clone(), &kind::FENCED, name.as_ref())
    }

    /// As [`Client::fenced_lock`], with the tokens 1, 2, 3 and so on, as Redisson counts them: for a
    /// resource that stores tokens in 32 bits.
    ///
    /// If the counter is deleted, by Redisson's `delete()` for example, tokens begin again at 1, and a
    /// resource refuses them until they pass the largest one that it has seen. After a failover to a replica
    /// that missed the last grants, the new master issues their tokens again. All clients of one name
    /// should use the same of the two methods. If the counter already has a value of the server's clock, the
    /// tokens continue from that value.
    pub fn fenced_lock_from_one(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.session.clone(), &kind::FENCED_FROM_ONE, name.as_ref())
    }

    /// The lock of several values of a group. Corresponds to Redisson's `getMultiLock(group, values)`.
    ///
    /// The lock is acquired for all of its values or for none. Two such locks without a common value do not wait for
    /// each other. A group is one hash in Redis, so its values need no keys of their own. [`Value`] has the encodings
    /// of Redisson's codecs. With no value, or more than 256, each request returns
    /// [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// An owner may acquire the same values again. If it requests a different set of values, and already holds some of
    /// them, the call returns [`Error::WouldDeadlock`](crate::Error::WouldDeadlock).
    ///
    /// The name of a group must not be that of a lock. The lock cannot be an instance of a
    /// [`RedLock`](crate::RedLock).
    pub fn group_lock(
        &self,
        group: impl AsRef<str>,
        values: impl IntoIterator<Item = Value>,
    ) -> Lock {
        let values: Vec<Value> = values.into_iter().collect();
        Lock::new(self.session.clone(), &kind::GROUP, group.as_ref()).of_values(&values)
    }

    /// The read/write lock of this name. Corresponds to Redisson's `getReadWriteLock(name)`.
    ///
    /// The name has 1 to 512 bytes, which the client does not change. This call sends nothing. If the name
    /// is invalid, each request of the lock returns [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// It excludes locks of other kinds with the same name, and is excluded by them. An owner does not re-enter
    /// from one kind to another. Its two locks can be members of a [`MultiLock`](crate::MultiLock)
    /// (`rw.read().into()`). They cannot be instances of a [`RedLock`](crate::RedLock): each request of such a
    /// `RedLock` returns [`Error::Invalid`](crate::Error::Invalid).
    pub fn read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        ReadWriteLock::new(self.session.clone(), name.as_ref()).prefer(self.preference)
    }

    /// The id of this client, random for each client. It is the first part of the field of each of its
    /// holds in Redis. Corresponds to Redisson's `getId()`.
    pub fn id(&self) -> Uuid {
        self.session.core().id
    }

    /// Every hold of this client that is valid now. The client does not ask Redis. Redisson has no such
    /// call.
    pub fn holds(&self) -> Vec<HoldInfo> {
        let core = self.session.core();
        let holds = core.holds.all();
        holds
            .iter()
            .filter_map(|hold| HoldInfo::of(core, hold))
            .collect()
    }

    /// Marks the server's data as complete, so the server counts in quorums immediately. Call it once for a
    /// new server. Never call it for a server that may have lost locks which an owner still holds.
    /// Redisson has no such call.
    ///
    /// It ends the server's quarantine for every client with
    /// [`ClientBuilder::quarantine_on_server`], and the quarantine that this client began itself.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`](crate::Error::Invalid) on a cluster. Its servers store no epoch; each client
    ///   detects a loss of data itself.
    /// - [`Error::Refused`](crate::Error::Refused) if the user may not write the key `lockdog:epoch`, or
    ///   the server is a replica.
    /// - [`Error::Timeout`](crate::Error::Timeout) or [`Error::Unavailable`](crate::Error::Unavailable) if
    ///   the server cannot be reached. Call it again; a second call has the effect of one.
    /// - [`Error::Closed`](crate::Error::Closed) after a shutdown.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the server may or may not be marked. This client's own quarantine stays.
    pub async fn provision(&self) -> Result<()> {
        let core = self.session.core();
        ensure_runtime()?;
        core.ensure_open()?;
        if core.server.is_cluster() {
            return Err(Error::invalid("client", NO_PROVISION.to_owned()));
        }
        let time = core.server.time_box(core.clock.now());
        let mut sent = Sent::default();
        let who = script::provision(&core.server, time, &mut sent).await;
        core.server.abandon_unanswered(&who, &sent);
        core.server.trust(who?);
        Ok(())
    }
}

/// A panic in a caller's code cannot leave the client's state inconsistent, because each change of that
/// state ends before a caller's code runs.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

const NO_PROVISION: &str = "not supported on a cluster: its servers store no epoch";

/// `{:?}` shows the client's id and the addresses of its servers. `{:#?}` adds what helps to find the
/// cause of a stall: the slots of a cluster's nodes, the servers that do not answer, and the queues of
/// waiters, each with the hash of its lock's name.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = self.session.core();
        let is_whole = f.alternate();
        let mut shown = f.debug_struct("Client");
        shown.field("id", &self.id()).field("server", &core.server);
        if is_whole {
            shown
                .field("nodes", &core.server.shown())
                .field("holds", &core.holds.all().len())
                .field("waiters", &core.waiters.shown());
        }
        shown.finish_non_exhaustive()
    }
}
