//! A hold's position in the schedule.

use std::sync::atomic::AtomicU64;

/// A hold's moment in each timeline; zero if it is not in it. Changed only while the table is locked.
#[derive(Default)]
pub(super) struct ScheduleEntry {
    pub(super) expire: AtomicU64,
    pub(super) renew: AtomicU64,
}
