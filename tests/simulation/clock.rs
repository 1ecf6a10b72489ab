//! A client's clock in virtual time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::chance::Chance;
use crate::clock::{Moment, TimeSource};

/// Reads the runtime's paused time, faster or slower than the server's clock by a constant rate.
#[derive(Clone, Debug)]
pub(crate) struct VirtualClock {
    start: tokio::time::Instant,
    /// Its rate, in parts per million of the server's rate.
    rate: u64,
    /// Its time at the start.
    offset: u64,
    chance: Arc<AtomicU64>,
}

impl VirtualClock {
    pub(super) fn new(start: tokio::time::Instant, rate: u64, offset: u64) -> Self {
        Self {
            start,
            rate,
            offset,
            chance: Arc::new(AtomicU64::new(offset)),
        }
    }

    /// The server's time, in nanoseconds since the start, at this client's `moment`.
    pub(super) fn at_server(&self, moment: Moment) -> u64 {
        let passed = u128::from(moment.0.saturating_sub(self.offset));
        (passed * 1_000_000 / u128::from(self.rate)) as u64
    }
}

impl TimeSource for VirtualClock {
    fn now(&self) -> Moment {
        let passed = self.start.elapsed().as_nanos() * u128::from(self.rate) / 1_000_000;
        Moment(self.offset + passed as u64)
    }

    fn random(&self) -> u64 {
        let seed = self.chance.fetch_add(1, Ordering::Relaxed);
        Chance::new(seed, 0).next()
    }

    /// Yields to the other tasks in some of the calls.
    fn gap(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let drawn = self.random();
        let pause = Duration::from_millis(drawn / 4 % 80);
        (!drawn.is_multiple_of(4)).then(|| Box::pin(tokio::time::sleep(pause)) as _)
    }
}
