//! Time that also passes while the machine sleeps.
//!
//! A lease runs out on the server whether or not this machine is suspended, so every deadline is
//! kept on `CLOCK_BOOTTIME` (design: invariant 2).

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

pub(crate) use lockdog_quorum::Moment;

/// Where the moments of one client come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// Nanoseconds by which a test moved this clock ahead.
    #[cfg(test)]
    ahead: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
    /// tokio's clock instead of the machine's.
    tokio: Option<TokioClock>,
    /// Virtual time and seeded chance instead of the machine's.
    #[cfg(test)]
    simulated: Option<crate::simulation::VirtualClock>,
}

impl Clock {
    /// A clock that runs `ahead` nanoseconds before the machine's, so that tests can let a
    /// machine "sleep" without sleeping.
    #[cfg(test)]
    pub(crate) fn shifted(ahead: std::sync::Arc<std::sync::atomic::AtomicU64>) -> Self {
        Self {
            ahead: Some(ahead),
            ..Self::default()
        }
    }

    /// The clock of the runtime that this is called on, which tests can pause.
    #[cfg_attr(
        not(test),
        expect(clippy::needless_update, reason = "tests have more fields")
    )]
    pub(crate) fn of_tokio() -> Self {
        let tokio = TokioClock {
            runtime: Handle::current(),
        };
        Self {
            tokio: Some(tokio),
            ..Self::default()
        }
    }

    /// Whether moments of the one mean the same to the other, but for what tests moved it ahead.
    pub(crate) fn runs_with(&self, other: &Self) -> bool {
        let runtime = |clock: &Self| clock.tokio.as_ref().map(|it| it.runtime.id());
        runtime(self) == runtime(other)
    }

    /// Whether timers may stop without notice while this clock goes on, as they do while the machine
    /// sleeps. tokio's timers and tokio's time stop together.
    pub(crate) fn outruns_timers(&self) -> bool {
        self.tokio.is_none()
    }

    /// `next`, but no later than `tick` after `now` where timers may stop without notice.
    pub(crate) fn look_again(&self, next: Moment, now: Moment, tick: Duration) -> Moment {
        match self.outruns_timers() {
            true => next.min(now + tick),
            false => next,
        }
    }

    #[cfg(test)]
    pub(crate) fn simulated(clock: crate::simulation::VirtualClock) -> Self {
        Self {
            simulated: Some(clock),
            ..Self::default()
        }
    }

    pub(crate) fn now(&self) -> Moment {
        #[cfg(test)]
        if let Some(clock) = &self.simulated {
            return clock.now();
        }
        if let Some(clock) = &self.tokio {
            return clock.now();
        }
        #[cfg(test)]
        if let Some(ahead) = &self.ahead {
            let ahead = ahead.load(std::sync::atomic::Ordering::Relaxed);
            return Moment(boottime().saturating_add(ahead));
        }
        Moment(boottime())
    }

    /// A number that nobody can foresee. It comes from here because a simulated run has to be the
    /// same each time, in its chances as in its time.
    fn chance(&self) -> u64 {
        #[cfg(test)]
        if let Some(clock) = &self.simulated {
            return clock.chance();
        }
        RandomState::new().hash_one(0)
    }

    /// Up to a tenth less, so that waiters do not move in step.
    pub(crate) fn sooner(&self, pause: Duration) -> Duration {
        pause - self.some_of(pause / 10)
    }

    /// Up to a tenth more.
    pub(crate) fn later(&self, pause: Duration) -> Duration {
        pause + self.some_of(pause / 10)
    }

    /// Between a decision and what it leads to, other threads may do anything. In a simulated run other
    /// tasks do, now and then.
    pub(crate) async fn gap(&self) {
        #[cfg(test)]
        if let Some(clock) = &self.simulated {
            clock.gap().await;
        }
    }

    /// A part of 1024, by chance.
    pub(crate) fn part(&self) -> u32 {
        (self.chance() % 1024) as u32
    }

    /// Something between nothing and all of it, by chance.
    pub(crate) fn some_of(&self, duration: Duration) -> Duration {
        duration / 1024 * self.part()
    }

    /// Sleeps until `moment`, and over it by at most the timer's own millisecond.
    ///
    /// Tokio's timers stop while the machine sleeps, so nothing that matters for safety may
    /// depend on being woken here in time.
    pub(crate) async fn sleep_until(&self, moment: Moment) {
        loop {
            let left = moment.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
        }
    }
}

/// The time of one runtime, from whichever thread it is asked for. All clients of that runtime have the
/// same moments, as they have with the machine's clock.
#[derive(Clone, Debug)]
struct TokioClock {
    runtime: Handle,
}

impl TokioClock {
    fn now(&self) -> Moment {
        let _its_clock = self.runtime.enter();
        // A clock that was paused earlier may stand before the origin.
        let (now, start) = (Instant::now(), Moment(0) + START);
        match now.checked_duration_since(*ORIGIN) {
            Some(after) => start + after,
            None => start.minus(*ORIGIN - now),
        }
    }
}

#[cfg(target_os = "linux")]
fn boottime() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Both parts are never negative: the clock counts from the machine's start.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The time of day in microseconds since 1970, for comparing it with a server's: it jumps, and no
/// lease may depend on it.
#[expect(
    clippy::disallowed_methods,
    reason = "it is the wall clock that is compared"
)]
pub(crate) fn wall_micros() -> u64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.unwrap_or_default().as_micros();
    u64::try_from(micros).unwrap_or(u64::MAX)
}

/// How long this thread has worked: what others do on a busy machine does not count.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn worked() -> Duration {
    let worked = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(worked.tv_sec as u64, worked.tv_nsec as u32)
}

/// Elsewhere the standard monotonic clock has to do; `docs/failure-model.md` says what that means
/// for a machine that sleeps.
#[cfg(not(target_os = "linux"))]
#[allow(clippy::disallowed_methods, reason = "there is no better clock here")]
fn boottime() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    (Moment(1_000_000_000) + START.elapsed()).0
}

/// The instant of [`START`].
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Where tokio's moments begin. Those before it must be moments, too: the first clock may be one that a
/// test moved days ahead, so this is a hundred years.
const START: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Tokio caps its timers at some two years; a longer wait sleeps again.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 60 * 60);
