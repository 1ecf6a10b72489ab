//! What Redis may have of a hold.

use std::time::Duration;

use super::HoldState;
use crate::clock::Moment;
use crate::lease;

impl HoldState {
    /// Notes that a command is sent now that may extend the field's lease in Redis.
    pub(crate) fn sending(&mut self, now: Moment, lease: Duration) {
        self.remains_until = self.remains_until.max(now + lease + SLOW_ARRIVAL);
        let lease = u32::try_from(lease.as_millis()).unwrap_or(u32::MAX);
        self.lease_ms = self.lease_ms.max(lease);
    }

    /// The lease to which claims were left is over: Redis does not have them any more.
    pub(crate) fn end_lease(&mut self) {
        self.count = self.count.saturating_sub(self.left);
        self.left = 0;
    }

    /// The longest lease that was sent for it, or longer: 32 bits count no lease of more than 49 days.
    pub(crate) fn longest_lease(&self) -> Duration {
        match self.lease_ms {
            u32::MAX => lease::LONGEST,
            millis => Duration::from_millis(millis.into()),
        }
    }

    /// The server keeps the hold, which was granted just now, until it is released.
    pub(crate) fn disable_expiry(&mut self) {
        self.deadline = Moment::NEVER;
        self.remains_until = Moment::NEVER;
    }

    /// Its deadline is later. That of a hold without expiry is later than any moment, also than one that a margin
    /// has moved to the end of the clock.
    pub(super) fn ends_after(&self, moment: Moment) -> bool {
        moment < self.deadline || self.deadline == Moment::NEVER
    }
}

/// How long a command may be in flight and still extend the lease in Redis.
const SLOW_ARRIVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn the_longest_lease_is_never_shorter_than_what_was_sent() {
        let now = Moment(1_000_000_000);
        let mut state = HoldState::pending(now);
        state.sending(now, DAY);
        assert_eq!(state.longest_lease(), DAY);
        state.sending(now, DAY * 60);
        assert!(state.longest_lease() >= DAY * 60);
    }
}
