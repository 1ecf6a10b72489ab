//! The count-down latch.

mod wait;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::key::{LockKey, kind};
use crate::object::{AsyncCommand, Object};
use crate::script::{Remembered, latch};
use crate::server::{Failure, Sent, TimeBox};
use crate::session::{Core, Session};

/// A count-down latch on a server: callers wait until its count is zero. Corresponds to Redisson's
/// `RCountDownLatch`: a latch of lockdog and one of Redisson with the same name are one latch.
///
/// A `CountDownLatch` is a handle. The client sends nothing when it creates or clones a handle. All handles
/// with one name are the same latch. Each handle keeps its client alive.
///
/// A latch without a count is open. [`try_set_count`](Self::try_set_count) gives it one, also again after it
/// was zero. If a new count is set while callers wait for the old one, these callers still pass if their client saw
/// the zero, or if its message came after they had waited for a poll cap.
///
/// # Panics
///
/// As [`Lock`](crate::Lock).
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let start = client.count_down_latch("start");
/// start.try_set_count(3).await?;
/// // in each of three services, when it is ready:
/// start.count_down().await?;
/// // in all of them:
/// start.wait_zero().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CountDownLatch {
    inner: Arc<Object>,
}

impl CountDownLatch {
    pub(crate) fn new(session: Arc<Session>, name: &str) -> Self {
        Self {
            inner: Arc::new(Object::new(session, &kind::LATCH, name)),
        }
    }

    /// The name, as given by the caller. Corresponds to Redisson's `getName()`.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The count; 0 if there is none. Corresponds to Redisson's `getCount()`.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`] or [`Error::Unavailable`] if the server did not answer within the command timeout.
    /// - [`Error::Refused`] if the server does not permit the command, or if the name is in use for something
    ///   else (`WRONGTYPE`).
    /// - [`Error::Invalid`] for an invalid name, on a cluster for a name with a brace, and outside a tokio
    ///   runtime.
    /// - [`Error::Closed`] after a shutdown.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn count(&self) -> Result<i64> {
        let call = self
            .inner
            .call(async |core, key, time, sent| latch::count(&core.server, key, time, sent).await);
        Ok(call.await?.0)
    }

    /// Sets the count if there is none. Returns whether it was set; false also if the name is in use for
    /// something else. Corresponds to Redisson's
    /// `trySetCount(count)`, which also accepts zero and less: such a latch is open.
    ///
    /// The server remembers the call for a while, so that a command that arrives twice returns what it
    /// returned at first.
    ///
    /// # Errors
    ///
    /// As [`count`](Self::count). After a [`Error::Timeout`] or [`Error::Unavailable`] the count may be set:
    /// a second call then returns false.
    /// [`Error::Invalid`] also for a count that is not below 2^53.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the count may or may not be set.
    pub async fn try_set_count(&self, count: i64) -> Result<bool> {
        if count.unsigned_abs() >= 1 << 53 {
            let why = format!("it must be below 2^53, got={count}");
            return Err(Error::invalid("count", why));
        }
        let call = self.inner.call(async |core, key, time, sent| {
            let once = core.once();
            latch::try_set(&core.server, key, count, once, time, sent).await
        });
        Ok(call.await?.0)
    }

    /// Lowers the count by one. At zero the latch opens. Without a count it does nothing. Corresponds to
    /// Redisson's `countDown()`.
    ///
    /// The server remembers the call for an hour, or longer if the command timeout is longer than 150 s. So it
    /// counts once, however often its command arrives. The call takes at most two command timeouts.
    ///
    /// # Errors
    ///
    /// - [`Error::Unconfirmed`] if the server did not answer within the command timeout, or refused the
    ///   command for a while (`LOADING`, `READONLY`, `TRYAGAIN`, ...). The client continues in the background,
    ///   for 50 minutes after the first sending: the call counts later, or has counted. Do not repeat it: the
    ///   second call would count too.
    /// - [`Error::TooManyWaiters`] if too many such calls of this client have no answer
    ///   ([`ClientBuilder::max_waiters`](crate::ClientBuilder::max_waiters)). The client sent nothing.
    /// - [`Error::Refused`], [`Error::Invalid`] and [`Error::Closed`] as [`count`](Self::count). The call did
    ///   not count.
    ///
    /// # Cancel safety
    ///
    /// After its first poll the call counts, even if it is cancelled.
    pub async fn count_down(&self) -> Result<()> {
        let timeout = self.inner.core().server.command_timeout();
        let counting = CountDown(Remembered::new(SENT_FOR, timeout));
        let latch = &self.inner;
        let counted = latch.complete(latch.reserve()?, "count_down", SENT_FOR, counting);
        counted.await.map(|_| ())
    }

    /// Deletes the latch and wakes its waiters, independent of its count. Returns whether there was a count.
    /// Corresponds to Redisson's `delete()`, which does not wake its waiters. A key of another type stays, and the
    /// call returns `WRONGTYPE`.
    ///
    /// The server remembers the call for a while, so that a command that arrives twice returns what it
    /// returned at first, and does not end a count that was set meanwhile.
    ///
    /// # Errors
    ///
    /// As [`count`](Self::count). After a [`Error::Timeout`] or [`Error::Unavailable`] the latch may be deleted.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the latch may or may not be deleted.
    pub async fn delete(&self) -> Result<bool> {
        let call = self.inner.call(async |core, key, time, sent| {
            latch::delete(&core.server, key, core.once(), time, sent).await
        });
        Ok(call.await?.0)
    }
}

struct CountDown(Remembered);

impl AsyncCommand<bool> for CountDown {
    async fn send(
        &self,
        core: &Core,
        key: &LockKey,
        time: TimeBox,
        sent: &mut Sent,
    ) -> Result<bool, Failure> {
        latch::count_down(&core.server, key, self.0, time, sent).await
    }
}

/// How long the client repeats a count-down that has no answer.
const SENT_FOR: Duration = Duration::from_secs(3_000);

/// See [`Client`](crate::Client).
impl UnwindSafe for CountDownLatch {}
impl RefUnwindSafe for CountDownLatch {}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountDownLatch")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
