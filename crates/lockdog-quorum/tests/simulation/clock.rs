//! A client's clock.

use super::plan::Wall;
use crate::Moment;

#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(pub(super) Wall);

impl Clock {
    /// The local time at a true time.
    pub(super) fn local(self, now: u64) -> Moment {
        Moment(self.offset() + now * self.0.rate / 1_000_000)
    }

    /// The true time at which it first shows this moment.
    pub(super) fn true_time(self, moment: Moment) -> u64 {
        let passed = moment.0.saturating_sub(self.offset());
        (passed * 1_000_000).div_ceil(self.0.rate)
    }

    fn offset(self) -> u64 {
        self.0.offset_ms * 1_000_000
    }
}
