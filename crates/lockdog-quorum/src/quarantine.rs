//! How long a server that may have restarted without its data does not count.
//!
//! After the quarantine everything that was held when the data was lost has expired. Its length is the
//! longest lease, plus an allowance for clocks that run at different rates.

use std::time::Duration;

use crate::Moment;

/// The length of the quarantine, from the moment at which a restart is detected.
pub fn period(max_lease: Duration) -> Duration {
    let max_lease = max_lease.min(LONGEST);
    max_lease + max_lease / 100 + MARGIN
}

/// What is left of the quarantine; `None` if the server counts.
pub fn left(reborn: Option<Moment>, max_lease: Duration, now: Moment) -> Option<Duration> {
    let left = (reborn? + period(max_lease)).since(now);
    (!left.is_zero()).then_some(left)
}

const MARGIN: Duration = Duration::from_secs(2);

/// About 30 years. Servers count from 1970, and a server whose data was marked as complete is as old as
/// that.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(100);

    #[test]
    fn a_server_that_never_changed_has_no_quarantine() {
        assert_eq!(left(None, LEASE, Moment(5)), None);
    }

    #[test]
    fn the_quarantine_lasts_the_longest_lease_plus_one_percent_plus_two_seconds() {
        let reborn = Moment(7_000_000_000);
        let whole = Duration::from_secs(103);
        assert_eq!(period(LEASE), whole);
        assert_eq!(left(Some(reborn), LEASE, reborn), Some(whole));
        let last = reborn + (whole - Duration::from_nanos(1));
        assert_eq!(
            left(Some(reborn), LEASE, last),
            Some(Duration::from_nanos(1))
        );
        assert_eq!(left(Some(reborn), LEASE, reborn + whole), None);
    }

    #[test]
    fn a_clock_that_goes_back_does_not_end_the_quarantine() {
        let reborn = Moment(7_000_000_000);
        let longer = period(LEASE) + Duration::from_secs(1);
        assert_eq!(
            left(Some(reborn), LEASE, reborn.minus(Duration::from_secs(1))),
            Some(longer)
        );
    }

    #[test]
    fn the_longest_lease_does_not_overflow_the_quarantine() {
        for longest in [Duration::MAX / 2, Duration::MAX] {
            let left = left(Some(Moment(1)), longest, Moment(2));
            assert!(left.is_some_and(|left| left > LEASE));
        }
    }
}
