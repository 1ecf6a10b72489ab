//! A clock that also runs while the machine sleeps.
//!
//! A lease expires on the server while this machine is suspended too, so every deadline is kept on
//! `CLOCK_BOOTTIME` (design: invariant 2).

#[cfg(any(test, lockdog_bench))]
pub(crate) mod testing;

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

pub(crate) use lockdog_quorum::Moment;

/// The clock of one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// `None`: the machine's clock.
    source: Option<Arc<dyn TimeSource>>,
}

/// A source of time that replaces the machine's clock.
pub(crate) trait TimeSource: Debug + Send + Sync + 'static {
    fn now(&self) -> Moment;

    /// The runtime whose timers stop together with this time. `None`: the timers of every runtime may
    /// stop while this time runs on.
    fn runtime(&self) -> Option<Id> {
        None
    }

    /// An unpredictable random number. It comes from the clock because a simulated run has to be
    /// reproducible in its random numbers as in its time.
    fn random(&self) -> u64 {
        random()
    }

    /// A future to run at a point where other threads may run: see [`Clock::gap`].
    fn gap(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        None
    }
}

impl Clock {
    pub(crate) fn of(source: impl TimeSource) -> Self {
        Self {
            source: Some(Arc::new(source)),
        }
    }

    /// The clock of the current runtime. Tests can pause it.
    pub(crate) fn of_tokio() -> Self {
        Self::of(TokioClock {
            runtime: Handle::current(),
        })
    }

    /// Whether moments of both clocks are comparable, apart from a test's shift.
    pub(crate) fn runs_with(&self, other: &Self) -> bool {
        self.runtime() == other.runtime()
    }

    /// Whether timers may stop without notice while this clock runs on, as they do while the
    /// machine sleeps. tokio's timers and tokio's clock stop together.
    pub(crate) fn outruns_timers(&self) -> bool {
        self.runtime().is_none()
    }

    fn runtime(&self) -> Option<Id> {
        self.source.as_ref()?.runtime()
    }

    /// When to wake up for an event at `next`. If timers may stop without notice, this is at most `tick` after
    /// `now`, because a timer for `next` may then fire too late.
    pub(crate) fn wake_up_at(&self, next: Moment, now: Moment, tick: Duration) -> Moment {
        match self.outruns_timers() {
            true => next.min(now + tick),
            false => next,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        match &self.source {
            None => machine(),
            Some(source) => source.now(),
        }
    }

    fn random(&self) -> u64 {
        self.source
            .as_ref()
            .map_or_else(random, |source| source.random())
    }

    /// Jitter: up to a tenth less, so that waiters do not poll in step.
    pub(crate) fn jitter_down(&self, pause: Duration) -> Duration {
        pause - self.some_of(pause / 10)
    }

    /// Jitter: up to a tenth more.
    pub(crate) fn jitter_up(&self, pause: Duration) -> Duration {
        pause + self.some_of(pause / 10)
    }

    /// Marks a point between a decision and its effect, where other threads may run. In a simulated
    /// run other tasks sometimes run here.
    pub(crate) async fn gap(&self) {
        if let Some(gap) = self.source.as_ref().and_then(|source| source.gap()) {
            gap.await;
        }
    }

    /// A random number below 1024.
    pub(crate) fn part(&self) -> u32 {
        (self.random() % 1024) as u32
    }

    /// A random part of `duration`.
    pub(crate) fn some_of(&self, duration: Duration) -> Duration {
        duration / 1024 * self.part()
    }

    /// Sleeps until `moment`. It may wake up to 1 ms late, the resolution of the timer.
    ///
    /// Tokio's timers stop while the machine sleeps, so safety must not depend on waking here in
    /// time.
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

/// The clock of one runtime, readable from any thread. All clients of that runtime have comparable
/// moments, as with the machine's clock.
#[derive(Clone, Debug)]
struct TokioClock {
    runtime: Handle,
}

impl TimeSource for TokioClock {
    fn now(&self) -> Moment {
        let _its_clock = self.runtime.enter();
        // A clock that was paused earlier may be behind the origin.
        let (now, start) = (Instant::now(), Moment(0) + START);
        match now.checked_duration_since(*ORIGIN) {
            Some(after) => start + after,
            None => start.minus(*ORIGIN - now),
        }
    }

    fn runtime(&self) -> Option<Id> {
        Some(self.runtime.id())
    }
}

/// The machine's clock.
fn machine() -> Moment {
    Moment(boottime())
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(target_os = "linux")]
fn boottime() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Both parts are never negative: the clock counts from boot.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The wall clock in microseconds since 1970, for comparison with a server's clock. It can jump, so
/// no lease may depend on it.
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

/// Other systems use the standard monotonic clock. `docs/failure-model.md` explains the consequence
/// for a machine that sleeps.
#[cfg(not(target_os = "linux"))]
#[allow(clippy::disallowed_methods, reason = "there is no better clock here")]
fn boottime() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    (Moment(1_000_000_000) + START.elapsed()).0
}

/// The instant that corresponds to [`START`].
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The origin of tokio's moments. Earlier moments must be representable too, because the first
/// clock may be one that a test moved days ahead. So the origin is at a hundred years.
const START: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Tokio caps its timers at about two years. A longer wait sleeps several times.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 60 * 60);
