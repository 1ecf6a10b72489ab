//! How long a holder may believe in a lease.

use std::time::Duration;

use crate::Moment;

/// Holders are told this long before their deadline, so that they are not told after it.
pub const TOLD_EARLY: Duration = Duration::from_millis(2);

/// The moment up to which a lease may be believed in, when the command that granted or renewed it was
/// first sent at `sent`.
pub fn deadline(sent: Moment, lease: Duration) -> Moment {
    (sent + lease).minus(drift(lease))
}

/// What a lease loses for clocks that run at different rates: one percent and 2 ms.
pub fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Redis counts in whole milliseconds: so many that nothing is given up.
pub(crate) fn whole_up(lease: Duration) -> Duration {
    let millis = (lease + Duration::from_nanos(999_999)).as_millis();
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}
