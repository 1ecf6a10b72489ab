//! How long a holder may rely on a lease.

use std::time::Duration;

use crate::Moment;

/// How long before its deadline a holder is notified of the loss. Timers fire late.
pub const LEAD_TIME: Duration = Duration::from_millis(2);

/// The moment up to which a lease may be relied on, if the command that granted or renewed it was first
/// sent at `sent`.
pub fn deadline(sent: Moment, lease: Duration) -> Moment {
    (sent + lease).minus(drift(lease))
}

/// The part of a lease that allows for clocks at different rates: one percent and 2 ms.
pub fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Rounded up, because Redis counts in whole milliseconds.
pub(crate) fn whole_up(lease: Duration) -> Duration {
    let millis = (lease + Duration::from_nanos(999_999)).as_millis();
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}
