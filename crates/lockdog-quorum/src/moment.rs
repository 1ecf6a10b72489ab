//! Points in time.

use std::ops::Add;
use std::time::Duration;

/// A point in time on the clock of the core's driver, in nanoseconds.
///
/// That clock must never go back. It must continue while the machine sleeps, because a lease on the
/// server does too.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Moment(pub u64);

impl Moment {
    /// Later than any real time.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// An earlier moment; at the earliest the clock's first.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Saturates at [`Moment::NEVER`].
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
