//! The rounds of one acquisition as its driver sees them: the observer uses them to prove deadlines.

use std::time::Duration;

use crate::Moment;
use crate::lease;

/// The newest rounds.
#[derive(Debug, Default)]
pub(super) struct Rounds(Vec<Round>);

#[derive(Debug)]
struct Round {
    number: u32,
    /// When the first query of the round was sent.
    began: Moment,
    lease: Duration,
    /// Which instances acknowledged a query of the round, one bit each.
    acknowledged: u8,
}

impl Rounds {
    /// A query is sent in a round.
    pub(super) fn ask(&mut self, number: u32, now: Moment, lease: Duration) {
        if self.newest() >= number {
            return;
        }
        if self.0.len() == REMEMBERED {
            self.0.remove(0);
        }
        self.0.push(Round {
            number,
            began: now,
            lease,
            acknowledged: 0,
        });
    }

    pub(super) fn newest(&self) -> u32 {
        self.0.last().map_or(0, |round| round.number)
    }

    pub(super) fn acknowledge(&mut self, number: u32, instance: usize) {
        if let Some(round) = self.0.iter_mut().find(|round| round.number == number) {
            round.acknowledged |= 1 << instance;
        }
    }

    /// Whether `need` instances acknowledged one of the rounds, and it allows this deadline.
    pub(super) fn prove(&self, deadline: Moment, need: usize) -> bool {
        self.0.iter().any(|round| {
            round.acknowledged.count_ones() as usize >= need
                && deadline <= lease::deadline(round.began, round.lease)
        })
    }
}

/// Enough for every answer that may still count.
const REMEMBERED: usize = 6;
