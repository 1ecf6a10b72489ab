//! Where our calls differ from the recorded ones on purpose. `docs/protocol.md` has the reasons.

/// One aspect of one step.
pub(super) struct Difference {
    pub(super) id: &'static str,
    pub(super) scenario: &'static str,
    pub(super) step: u64,
    pub(super) aspect: &'static str,
    pub(super) ours: &'static str,
}

const fn at(
    id: &'static str,
    (scenario, step): (&'static str, u64),
    aspect: &'static str,
    ours: &'static str,
) -> Difference {
    Difference {
        id,
        scenario,
        step,
        aspect,
        ours,
    }
}

pub(super) const DIFFERENCES: &[Difference] =
    &[at("missing-is-lost", ("two_readers", 5), "published", "")];
