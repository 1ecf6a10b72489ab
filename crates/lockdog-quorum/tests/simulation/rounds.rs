//! The rounds of one acquisition as its driver sees them: what the observer proves deadlines by.

use std::time::Duration;

use crate::Moment;
use crate::lease;

/// The newest rounds.
#[derive(Debug, Default)]
pub(super) struct Rounds(Vec<Round>);

#[derive(Debug)]
struct Round {
    number: u32,
    /// When something was first asked in it.
    began: Moment,
    lease: Duration,
    /// Who acknowledged what was asked in it, a bit each.
    acknowledged: u8,
}

impl Rounds {
    /// Something is asked in a round.
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

    /// So many acknowledged one of the rounds, and it is good for a deadline as late as this.
    pub(super) fn prove(&self, deadline: Moment, need: usize) -> bool {
        self.0.iter().any(|round| {
            round.acknowledged.count_ones() as usize >= need
                && deadline <= lease::deadline(round.began, round.lease)
        })
    }
}

/// Enough for every answer that may still count.
const REMEMBERED: usize = 6;
