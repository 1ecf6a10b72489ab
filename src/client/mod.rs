//! The client: connects, hands out locks, and owns what runs in the background.

mod access;
mod build;
mod builder;
mod diagnose;
mod place;
mod scope;
mod shutdown;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::background::ensure_runtime;
use crate::error::{Error, Result};
use crate::key::kind;
use crate::lock::{HoldInfo, Lock};
use crate::script;
use crate::server::Sent;
use crate::session::Session;

pub use builder::ClientBuilder;
pub use shutdown::ShutdownReport;

/// A client of one Redis deployment: hands out locks and keeps them alive.
///
/// A handle: clones are the same client, and locks and guards keep the client alive. When the last of
/// them is dropped, the client releases in the background what it still holds, and ends its thread and
/// connections.
/// Corresponds to Redisson's `RedissonClient`.
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
    /// Cancelled when the background has ended.
    ended: CancellationToken,
}

impl Client {
    /// Connects to `redis://[user:password@]host[:port][/db]`, `rediss://...` (with the feature
    /// `tls`) or `unix:///path[?db=n]`, or to the master of sentinels,
    /// `redis+sentinel://[user:password@]host[:port][,host[:port]...]/master[/db]` or
    /// `rediss+sentinel://...` ([`ClientBuilder::sentinel`]), or to a cluster,
    /// `redis+cluster://[user:password@]host[:port][,host[:port]...]` or `rediss+cluster://...`
    /// ([`ClientBuilder::cluster`]), with default settings. Corresponds to Redisson's
    /// `Redisson.create(config)`.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::build`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it leaves nothing behind.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder().url(url).build().await
    }

    /// For settings, or a pool of your own.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The lock of this name: 1 to 512 bytes, taken as they are. A name that cannot be used is an
    /// error of each request. Corresponds to Redisson's `getLock(name)`.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.session.clone(), &kind::PLAIN, name.as_ref())
    }

    /// The spin lock of this name. Its releases publish no message: waiters ask again and again, with
    /// growing pauses from 1 ms to 128 ms, or with those of [`Lock::backoff`]. Corresponds to Redisson's
    /// `getSpinLock(name)`.
    ///
    /// It saves the messages of locks that are held for a few milliseconds. The waiters of one client
    /// poll as one, and hand the lock on among themselves.
    ///
    /// Locks of other kinds of the same name exclude it, and their waiters are not woken by its release.
    /// An owner does not re-enter from one kind to another.
    pub fn spin_lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.session.clone(), &kind::SPIN, name.as_ref())
    }

    /// The non-reentrant lock of this name. An owner that holds it and asks for it once more gets
    /// [`Error::AlreadyHeld`](crate::Error::AlreadyHeld), with `try_lock` too, and nothing is sent.
    /// Corresponds to Redisson's `getNonReentrantLock(name)`.
    ///
    /// A hold whose guard was forgotten counts. Two calls that one owner makes at the same time, in
    /// branches of `join!` say, wait for each other as those of two owners do.
    ///
    /// Locks of other kinds of the same name exclude it. An owner does not re-enter from one kind to
    /// another: while it holds the one, it waits for the other without end.
    ///
    /// A [`MultiLock`](crate::MultiLock) may have it as a member. A [`RedLock`](crate::RedLock) may not
    /// have it as an instance: every request of that is [`Error::Invalid`](crate::Error::Invalid).
    pub fn non_reentrant_lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.session.clone(), &kind::NON_REENTRANT, name.as_ref())
    }

    /// The id of this client, random for each client. The fields of its holds in Redis begin with it.
    /// Corresponds to Redisson's `getId()`.
    pub fn id(&self) -> Uuid {
        self.session.core().id
    }

    /// Every lock that this client holds now, without asking Redis.
    pub fn holds(&self) -> Vec<HoldInfo> {
        let core = self.session.core();
        let holds = core.holds.all();
        holds
            .iter()
            .filter_map(|hold| HoldInfo::of(core, hold))
            .collect()
    }

    /// Marks the server's data as complete, so the server counts in quorums at once. Call it once for a
    /// new server. Never call it for a server that may have lost locks which an owner still holds.
    ///
    /// It ends the server's quarantine for every client with
    /// [`ClientBuilder::quarantine_on_server`], and for this client what it saw itself. Redisson has
    /// nothing like it.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) on a cluster, whose servers remember nothing of
    /// that: each client watches them by itself. [`Error::Refused`](crate::Error::Refused) where the
    /// client may not write the key `lockdog:epoch`, or the server is a replica; [`Error::Timeout`](crate::Error::Timeout) or
    /// [`Error::Unavailable`](crate::Error::Unavailable) where the server cannot be reached:
    /// call it again, twice is as good as once.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, it may have had its effect on the server, and has none on this client.
    pub async fn provision(&self) -> Result<()> {
        let core = self.session.core();
        ensure_runtime()?;
        core.ensure_open()?;
        if core.server.is_cluster() {
            return Err(Error::invalid("client", NO_PROVISION.to_owned()));
        }
        let time = core.server.allot(core.clock.now());
        let mut sent = Sent::default();
        let who = script::provision(&core.server, time, &mut sent).await;
        core.server.trust(who?);
        Ok(())
    }

    /// Releases every hold and waits for Redis to confirm it, ends every wait with
    /// [`Error::Closed`](crate::Error::Closed), and waits for thread and connections to end. It takes at
    /// most 2x the command timeout, or 4x (12 s by default) if the server does not answer. Guards that
    /// still exist report the lock as lost. An acquire under way is undone and ends with
    /// [`Error::Closed`](crate::Error::Closed) too.
    ///
    /// Corresponds to Redisson's `shutdown()`, which releases nothing.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, it goes on in the background as far as it got; call it again to wait.
    pub async fn shutdown(&self) -> ShutdownReport {
        let report = shutdown::release_all(self.session.core()).await;
        self.session.core().ending.cancel();
        self.ended.cancelled().await;
        // Locks and guards that outlive the shutdown must not keep a connection open.
        self.session.core().server.disconnect();
        report
    }
}

/// A panic of a caller leaves what the client knows in order: each change of it ends before code of a
/// caller runs.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

const NO_PROVISION: &str =
    "a cluster's servers remember nothing of it: there is nothing to provision";

/// `{:?}` shows the client's id and where its servers are. `{:#?}` adds what a stalled client is asked
/// about: the map of a cluster, the servers that do not answer, and the queues of its waiters by the
/// hashes of their locks' names.
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
