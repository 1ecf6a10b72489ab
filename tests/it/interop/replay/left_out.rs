//! The recorded steps that are not replayed.

/// One step.
pub(super) struct LeftOut {
    pub(super) scenario: &'static str,
    pub(super) step: usize,
    pub(super) reason: &'static str,
}

pub(super) const LEFT_OUT: &[LeftOut] = &[
    step("fair_lock_wait_without_lease", 7, OVERTAKEN),
    step("fair_lock_wait_without_lease", 8, OVERTAKEN),
    step("fair_lock_wait_without_lease", 9, OVERTAKEN),
];

const OVERTAKEN: &str = "the recording leaves one of two unlocks out, and the waiter that Redisson dropped \
     is overtaken";

pub(super) fn is_left_out(scenario: &str, step: usize) -> bool {
    let mut all = LEFT_OUT.iter();
    all.any(|left_out| left_out.scenario == scenario && left_out.step == step)
}

const fn step(scenario: &'static str, step: usize, reason: &'static str) -> LeftOut {
    LeftOut {
        scenario,
        step,
        reason,
    }
}
