//! Leases: how long Redis keeps a lock, and how long its holder may rely on it.

use std::time::Duration;

use crate::error::Error;

// Holds on one server and on many servers use the same rule (design: invariant 2).
pub(crate) use lockdog_quorum::lease::{LEAD_TIME, deadline, drift};

/// The shortest lease that a caller can request.
pub(crate) const SHORTEST: Duration = Duration::from_millis(10);

/// The longest lease that a caller can request: clocks cannot count further.
pub(crate) const LONGEST: Duration = Duration::from_nanos(u64::MAX);

/// Checks the lease of a lock before anything is sent.
pub(crate) fn check_lease(
    what: &'static str,
    lease: Duration,
    max_lease: Duration,
) -> Result<(), Error> {
    check(what, lease, Duration::MAX)?;
    if lease > max_lease {
        return Err(Error::invalid(
            what,
            format!("it must be at most max_lease={max_lease:?}, got={lease:?}"),
        ));
    }
    if lease > LONGEST {
        return Err(Error::invalid(
            what,
            format!("it must be at most {LONGEST:?}, about 584 years, got={lease:?}"),
        ));
    }
    Ok(())
}

/// Checks a duration that a caller gave, before anything is sent.
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
            format!("it must be at most {longest:?}, got={lease:?}"),
        ));
    }
    Ok(())
}

/// Rounds down to whole milliseconds, the unit of leases in Redis.
pub(crate) fn whole(lease: Duration) -> Duration {
    Duration::from_millis(millis(lease))
}

/// Rounds up to whole milliseconds: for a time that must not end early.
pub(crate) fn whole_or_more(time: Duration) -> Duration {
    whole(time.saturating_add(Duration::from_nanos(999_999)))
}

pub(crate) fn millis(lease: Duration) -> u64 {
    u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)
}
