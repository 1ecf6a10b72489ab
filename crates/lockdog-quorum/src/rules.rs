//! The rules of an acquisition.

use std::time::Duration;

use crate::Moment;

/// The rules of an acquisition.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Rules {
    /// The number of instances.
    pub members: usize,
    /// How many acknowledgements win a round.
    pub need: usize,
    /// How many trusted readings of the register a fencing token needs; 0 for no token.
    pub reads: usize,
    /// The lease of the first round, and of each round that renews it. A call of its owner may ask for
    /// a longer lease once.
    pub lease: Duration,
    /// Whether it is extended until released, or left to its lease.
    pub renewed: bool,
    /// A round that would leave less validity than this is not won.
    pub min_validity: Duration,
    /// Until when it may be kept at most.
    pub max_until: Moment,
}

impl Rules {
    /// How many acknowledgements out of `members` win, if up to `masked` instances may lose
    /// acknowledged locks.
    pub fn need(members: usize, masked: usize) -> usize {
        members.saturating_add(masked) / 2 + 1
    }

    /// How many readings of the register are certain to include the latest token.
    pub fn reads(members: usize, masked: usize) -> usize {
        let missing = members.saturating_add(masked).saturating_add(1);
        let certain = missing.saturating_sub(Self::need(members, masked));
        certain.max(members / 2 + 1)
    }

    /// How long one instance may take to answer before the others continue without it.
    pub fn answer_limit(lease: Duration) -> Duration {
        (lease / 20).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
    }

    /// How long a `Take` may stay without an answer. A caller that is polled ends it within the answer
    /// limit. If it is not polled, the `Take` is given up after this time.
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
    fn the_timeout_of_an_instance_is_a_twentieth_of_the_lease_within_bounds() {
        let ms = Duration::from_millis;
        for (lease, expected) in [
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
            assert_eq!(Rules::answer_limit(lease), expected, "{lease:?}");
        }
    }
}
