//! What tests and measurements need of a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Moment, TimeSource, machine};

/// A clock that is this many nanoseconds ahead of the machine's, so that a test can let a machine "sleep"
/// without waiting.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShiftedClock(pub(crate) Arc<AtomicU64>);

impl TimeSource for ShiftedClock {
    fn now(&self) -> Moment {
        let ahead = self.0.load(Ordering::Relaxed);
        Moment(machine().0.saturating_add(ahead))
    }
}

/// CPU time of this thread: other load on a busy machine does not count.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn cpu_time() -> std::time::Duration {
    let cpu_time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(cpu_time.tv_sec as u64, cpu_time.tv_nsec as u32)
}
