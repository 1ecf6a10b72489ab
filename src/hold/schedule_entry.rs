//! Where a hold stands in the schedule.

use std::sync::atomic::AtomicU64;

/// Where a hold stands in each line; at zero if it does not. Changed under the table's lock only.
#[derive(Default)]
pub(super) struct ScheduleEntry {
    pub(super) expire: AtomicU64,
    pub(super) renew: AtomicU64,
}
