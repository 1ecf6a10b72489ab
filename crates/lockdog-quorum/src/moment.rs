//! Points in time.

use std::ops::Add;
use std::time::Duration;

/// A point in time on the clock of the one who drives the core, in nanoseconds.
///
/// That clock must never go back, and must go on while the machine sleeps: a lease ends on the server
/// all the same.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Moment(pub u64);

impl Moment {
    /// Further away than any process lives.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time from `earlier` to this moment; zero if it is the other way round.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// So much earlier; the first moment of the clock rather than one before it.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Ends at [`Moment::NEVER`] rather than overflowing.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
