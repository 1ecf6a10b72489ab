//! Settings for the order of those who wait.

use std::time::Duration;

use super::ClientBuilder;
use crate::lock::Preference;

impl ClientBuilder {
    /// The time after which a Redisson client drops the first waiter of a fair lock, if that waiter does not
    /// acquire the lock. Each query of a lockdog waiter restarts this time.
    /// From 10 ms up to one day. Waiters of lockdog are dropped after [`ClientBuilder::fair_absence`].
    ///
    /// If this time is short, a Redisson client whose clock is ahead of the server's may drop active waiters
    /// of lockdog. If it is long, waiters of Redisson wait for that long behind a waiter of lockdog whose
    /// client crashed, if no other lockdog client uses the lock.
    ///
    /// Defaults to 300 s. Corresponds to Redisson's `fairLockWaitTimeout`.
    pub fn fair_wait(mut self, wait: Duration) -> Self {
        self.fair_wait = wait;
        self
    }

    /// How long a waiter of a fair lock stays in the queue without a query. After that lockdog clients drop it:
    /// its client crashed, or its future is not polled. At least four times the
    /// [`poll_cap`](ClientBuilder::poll_cap), up to four days. All clients of one name should have the same
    /// value.
    ///
    /// Defaults to 10 s, or four times the poll cap if that is longer. Redisson has no such setting.
    pub fn fair_absence(mut self, absence: Duration) -> Self {
        self.fair_absence = Some(absence);
        self
    }

    /// The default of [`ReadWriteLock::prefer`](crate::ReadWriteLock::prefer) for the handles of this client.
    ///
    /// Defaults to [`Preference::Writers`]. Redisson has no such setting: it is [`Preference::Readers`].
    pub fn prefer(mut self, preference: Preference) -> Self {
        self.preference = preference;
        self
    }
}
