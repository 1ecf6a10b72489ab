//! What is recorded and not replayed.

pub(super) struct LeftOut {
    pub(super) scenario: &'static str,
    /// Only this step; else the whole scenario.
    pub(super) step: Option<usize>,
    pub(super) reason: &'static str,
}

pub(super) const LEFT_OUT: &[LeftOut] = &[
    scenario(
        "multi_lock_three_names_one_server",
        "the replay makes the multi lock of three servers only; multi_lock::kinds::interop has such members",
    ),
    scenario(
        "cluster_watchdog_read_locks",
        "the replay has no calls of a read lock; read_write::replay has them on one server",
    ),
    scenario(
        "cluster_other_objects",
        "the replay has no calls of a semaphore and a latch; semaphore::cluster and latch::cluster have them",
    ),
    scenario(
        "replication_other_objects",
        "the replay has no calls of a semaphore and a latch, and a semaphore's key is there in all its steps",
    ),
    step("fair_lock_wait_without_lease", 7, OVERTAKEN),
    step("fair_lock_wait_without_lease", 8, OVERTAKEN),
    step("fair_lock_wait_without_lease", 9, OVERTAKEN),
    step(
        "replication_replica_gone",
        7,
        "the replay has no calls of a semaphore",
    ),
];

const OVERTAKEN: &str = "the recording leaves one of two unlocks out, and the waiter that Redisson dropped \
     is overtaken";

pub(super) fn is_left_out(scenario: &str, step: Option<usize>) -> bool {
    let mut all = LEFT_OUT.iter();
    all.any(|left_out| left_out.scenario == scenario && left_out.step == step)
}

const fn scenario(scenario: &'static str, reason: &'static str) -> LeftOut {
    LeftOut {
        scenario,
        step: None,
        reason,
    }
}

const fn step(scenario: &'static str, step: usize, reason: &'static str) -> LeftOut {
    LeftOut {
        scenario,
        step: Some(step),
        reason,
    }
}
