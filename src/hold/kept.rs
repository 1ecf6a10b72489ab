//! A hold whose lock is kept in Redis for some time at least, also if the hold ends earlier.

use std::time::Duration;

use super::{ClaimFlags, HoldState};
use crate::clock::Moment;

impl HoldState {
    /// Keeps the lock for this time after the first sending of the acquire that was granted last.
    pub(crate) fn keep_for(&mut self, at_least: Duration) {
        self.kept_until = self.kept_until.max(self.renewed + at_least);
    }

    /// How long the lock has to stay although the hold ended; zero if it may be released.
    pub(crate) fn rest(&self, now: Moment) -> Duration {
        self.kept_until.since(now)
    }

    /// Ends the last claim of a valid hold whose lock has to stay, and returns for how long. A lock that another
    /// guard left to its lease stays for that.
    pub(crate) fn drop_kept(&mut self, flags: ClaimFlags, now: Moment) -> Option<Duration> {
        let rest = self.rest(now);
        let is_last = self.left == 0 && self.count == flags.weight;
        if rest.is_zero() || !is_last || !self.is_valid(now) {
            return None;
        }
        self.drop_claim(flags, now);
        Some(rest)
    }
}
