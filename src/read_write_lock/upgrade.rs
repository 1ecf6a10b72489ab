//! Upgrades a read hold to a write hold.

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use super::change;
use super::guards::{ReadGuard, WriteGuard};
use crate::error::Error;
use crate::lock_request::{WaitLimit, not_a_future};

/// A pending upgrade, from [`ReadGuard::upgrade`]. It does nothing until it is awaited; a drop releases the
/// read hold.
#[derive(Debug)]
#[must_use = "a request does nothing unless it is awaited, and a drop releases the read hold"]
pub struct UpgradeRequest {
    guard: ReadGuard,
    wait: WaitLimit,
}

impl ReadGuard {
    /// Acquires the write lock while the read hold is kept: no other writer gets in between. It waits until this
    /// owner is the only reader whose lease is not over, without limit or within
    /// [`UpgradeRequest::wait`]. The [`WriteGuard`] has both holds, and releases both at its end.
    ///
    /// The watchdog renews the write hold if it renews the read hold. Otherwise the write hold has the rest of the
    /// read hold's lease. A `max_hold` of the read hold ends the write hold at the same moment.
    ///
    /// While it waits, new readers of lockdog wait, also with
    /// [`Preference::Readers`](crate::config::Preference::Readers).
    /// Redisson has no such call: there, a reader that requests the write lock waits for its own read lock, forever.
    ///
    /// # Errors
    ///
    /// [`UpgradeError`], with this guard in it if it is still valid. [`UpgradeError::error`] returns
    ///
    /// - `None` if other owners still read at the end of the wait;
    /// - [`Error::WouldDeadlock`] if another owner that reads waits for its own upgrade. One of the two has to
    ///   release its read hold;
    /// - [`Error::Lost`] if the read hold was lost;
    /// - else as [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, both holds are released in the background: the future has the guard.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
    /// let reader = client.read_write_lock("prices").read().lock().await?;
    /// match reader.upgrade().wait(Duration::from_secs(1)).await {
    ///     Ok(writer) => drop(writer),
    ///     Err(error) => match error.into_guard() {
    ///         Some(reader) => drop(reader), // still reading
    ///         None => eprintln!("the read hold is lost"),
    ///     },
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn upgrade(self) -> UpgradeRequest {
        UpgradeRequest::new(self)
    }
}

impl UpgradeRequest {
    fn new(guard: ReadGuard) -> Self {
        Self {
            guard,
            wait: WaitLimit::ForEver,
        }
    }

    /// Limits the time of the whole call, as [`TryLockRequest::wait`](crate::request::TryLockRequest::wait). With
    /// zero the call makes one attempt, which announces no writer.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = match wait {
            Duration::ZERO => WaitLimit::Not,
            wait => WaitLimit::AtMost(wait),
        };
        self
    }

    async fn upgraded(self) -> Result<WriteGuard, UpgradeError> {
        let Self { guard: read, wait } = self;
        let error = match change::acquire(&read, true, wait).await {
            Ok(Some(guard)) => {
                let read = Some(read);
                return Ok(WriteGuard { guard, read });
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        Err(UpgradeError {
            guard: read.is_valid().then_some(read),
            error,
        })
    }
}

impl IntoFuture for UpgradeRequest {
    type Output = Result<WriteGuard, UpgradeError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'static>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.upgraded())
    }
}

not_a_future!(UpgradeRequest, Result<WriteGuard, UpgradeError>);

/// Why a read hold did not become a write hold, from [`ReadGuard::upgrade`]. The owner does not write. It still
/// reads if the error has the guard.
#[must_use = "it may have the guard of the read hold"]
pub struct UpgradeError {
    guard: Option<ReadGuard>,
    error: Option<Error>,
}

impl UpgradeError {
    /// The read hold as before; `None` if it is lost. A drop of the error releases it.
    pub fn into_guard(self) -> Option<ReadGuard> {
        self.guard
    }

    /// What failed. `None` if other owners still read at the end of the wait, which is no failure.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.error {
            Some(_) => "the read hold did not become a write hold",
            None => "other owners still read at the end of the wait",
        })
    }
}

impl fmt::Debug for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradeError")
            .field("guard", &self.guard)
            .field("error", &self.error)
            .finish()
    }
}

impl StdError for UpgradeError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.as_ref().map(|error| error as _)
    }
}
