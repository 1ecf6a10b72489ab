//! Where we mean to differ from the recordings. Each id is a row of the table in
//! `docs/protocol.md`, which gives the reasons.

/// One aspect of one step in which we differ.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) id: &'static str,
    pub(super) scenario: &'static str,
    pub(super) step: usize,
    pub(super) aspect: &'static str,
    /// What is seen instead.
    pub(super) ours: &'static str,
}

/// The differences of one step.
pub(super) fn expected(scenario: &str, step: usize) -> Vec<&'static Difference> {
    DIFFERENCES
        .iter()
        .filter(|difference| difference.scenario == scenario && difference.step == step)
        .collect()
}

pub(super) const DIFFERENCES: &[Difference] = &[];
