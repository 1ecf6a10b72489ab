//! A hold whose lock is kept in Redis for some time at least, also if the hold ends earlier.

use std::time::Duration;

use super::HoldState;
use crate::clock::Moment;

impl HoldState {
    /// Keeps the lock for this time after the sending of the acquire that was answered. It does not count from
    /// an earlier sending: that one may have been refused, and others may have had the lock since then.
    pub(crate) fn keep_for(&mut self, at_least: Duration, sent: Moment) {
        self.kept_until = self.kept_until.max(sent + at_least);
    }

    /// Its lock may be released immediately.
    pub(crate) fn keep_no_longer(&mut self) {
        self.kept_until = Moment(0);
    }

    /// How long the lock has to stay although the hold ended; zero if it may be released.
    pub(crate) fn rest(&self, now: Moment) -> Duration {
        self.kept_until.since(now)
    }
}
