//! What a quorum has to reach.

use std::time::Duration;

use crate::Moment;

/// What a quorum has to reach.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Rules {
    /// The number of instances.
    pub members: usize,
    /// So many acknowledgements win.
    pub need: usize,
    /// A fencing token needs so many trusted looks at its register before; none is made at 0.
    pub reads: usize,
    /// Of the first round, and of each one that renews it. A call of its owner may want one longer
    /// once.
    pub lease: Duration,
    /// Extended again and again, or left to its lease.
    pub renewed: bool,
    /// A win with less than this left is none.
    pub min_validity: Duration,
    /// It may not be kept beyond this.
    pub max_until: Moment,
}

impl Rules {
    /// The acknowledgements that win among `members`, if so many instances of them may lose what they
    /// acknowledged.
    pub fn need(members: usize, masked: usize) -> usize {
        if mutant!("quorum_need_half") {
            return (members / 2).max(1);
        }
        members.saturating_add(masked) / 2 + 1
    }

    /// The looks at the register that see the latest token for certain.
    pub fn reads(members: usize, masked: usize) -> usize {
        let missing = members.saturating_add(masked).saturating_add(1);
        let certain = missing.saturating_sub(Self::need(members, masked));
        certain.max(members / 2 + 1)
    }

    /// How long one instance may take to answer before the others go on without it.
    pub fn answer_limit(lease: Duration) -> Duration {
        (lease / 20).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
    }

    /// How long a `Take` may be without an answer. Its caller ends it within the patience; one that
    /// has stopped does not, and then the client's background has the rest of this time.
    pub fn longest_answer(lease: Duration) -> Duration {
        Self::answer_limit(lease) * 3
    }
}

const SHORTEST_PATIENCE: Duration = Duration::from_millis(20);
const LONGEST_PATIENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_a_twentieth_of_the_lease_within_bounds() {
        let ms = Duration::from_millis;
        for (lease, patience) in [
            (ms(10), ms(20)),
            (ms(399), ms(20)),
            (ms(400), ms(20)),
            (ms(420), ms(21)),
            (ms(1_200), ms(60)),
            (ms(9_980), ms(499)),
            (ms(10_000), ms(500)),
            (ms(30_000), ms(500)),
            (Duration::MAX, ms(500)),
        ] {
            assert_eq!(Rules::answer_limit(lease), patience, "{lease:?}");
        }
    }
}
