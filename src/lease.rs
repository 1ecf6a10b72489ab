//! Leases: how long Redis keeps a lock, and how long its holder may believe in it.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::Error;

/// The shortest lease that can be asked for.
pub(crate) const SHORTEST: Duration = Duration::from_millis(10);

/// The longest lease that can be asked for: no deadline is further away than clocks can count.
pub(crate) const LONGEST: Duration = Duration::from_nanos(u64::MAX);

/// Holders are told this long before their deadline, so that they are not told after it.
pub(crate) const TOLD_EARLY: Duration = Duration::from_millis(2);

/// The moment up to which a hold may be believed in, when the command that granted or renewed it
/// was first sent at `sent` (design: invariant 2).
pub(crate) fn deadline(sent: Moment, lease: Duration) -> Moment {
    (sent + lease).minus(drift(lease))
}

/// What a lease loses for clocks that run at different rates: one percent and 2 ms.
pub(crate) fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// Checks the lease of a lock, before anything is sent.
pub(crate) fn check_lease(
    what: &'static str,
    lease: Duration,
    max_lease: Duration,
) -> Result<(), Error> {
    check(what, lease, max_lease)?;
    if lease > LONGEST {
        return Err(Error::invalid(
            what,
            format!("it must be at most {LONGEST:?}, some 584 years, got={lease:?}"),
        ));
    }
    Ok(())
}

/// Checks a length of time that a caller gave, before anything is sent.
pub(crate) fn check(what: &'static str, lease: Duration, longest: Duration) -> Result<(), Error> {
    if lease < SHORTEST {
        return Err(Error::invalid(
            what,
            format!("it must be at least {SHORTEST:?}, got={lease:?}"),
        ));
    }
    if lease > longest {
        return Err(Error::invalid(
            what,
            format!("it must be at most max_lease={longest:?}, got={lease:?}"),
        ));
    }
    Ok(())
}

/// Redis counts leases in whole milliseconds; a part of one is given up, never added.
pub(crate) fn whole(lease: Duration) -> Duration {
    Duration::from_millis(millis(lease))
}

/// So many whole milliseconds that nothing is given up.
pub(crate) fn whole_up(lease: Duration) -> Duration {
    whole(lease + Duration::from_nanos(999_999))
}

pub(crate) fn millis(lease: Duration) -> u64 {
    u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)
}
