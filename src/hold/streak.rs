//! Hand-overs in a row, and how long they may go on before other clients get their turn.

use std::time::Duration;

use crate::clock::Moment;

/// How long one client may hand a lock from owner to owner while others wait for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandOverLimits {
    /// So many hand-overs in a row; zero for none at all.
    pub(crate) hand_overs: u32,
    /// And for so long.
    pub(crate) time: Duration,
}

/// The hand-overs, without a release between them, by which a hold came about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streak {
    /// When the first one was done.
    began: Option<Moment>,
    hand_overs: u32,
    /// How many other clients listened on the lock's channel at the last one, if that is known.
    others: Option<u32>,
}

/// What a holder does with a lock that others of its client wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StreakEnd {
    /// It hands the lock on.
    HandOver,
    /// It sets the lock free: nobody was kept out.
    Release,
    /// It sets the lock free and leaves it to others; to so many who listen, if that is known.
    Yield(Option<u32>),
}

impl Streak {
    /// One hand-over more was done by `now`.
    pub(crate) fn lengthen(&mut self, others: Option<u32>, now: Moment) {
        self.began.get_or_insert(now);
        self.hand_overs = self.hand_overs.saturating_add(1);
        self.others = others;
    }

    /// What comes next after this row. The first hand-over tells whether others wait.
    pub(crate) fn next(&self, bounds: HandOverLimits, now: Moment) -> StreakEnd {
        if bounds.hand_overs == 0 {
            return StreakEnd::Release;
        }
        let Some(began) = self.began else {
            return StreakEnd::HandOver;
        };
        let lasted = now.since(began);
        let goes_on = match self.others {
            Some(0) => lasted < UNSEEN,
            _ => self.hand_overs < bounds.hand_overs && lasted < bounds.time,
        };
        if goes_on {
            StreakEnd::HandOver
        } else {
            StreakEnd::Yield(self.others)
        }
    }
}

/// Waiters that poll, or listen elsewhere, are not counted: they get their chance this often.
const UNSEEN: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: HandOverLimits = HandOverLimits {
        hand_overs: 3,
        time: Duration::from_millis(20),
    };

    fn after(hand_overs: u32, others: Option<u32>, ms: u64) -> StreakEnd {
        let start = Moment(1_000_000_000);
        let mut streak = Streak::default();
        for _ in 0..hand_overs {
            streak.lengthen(others, start);
        }
        streak.next(BOUNDS, start + Duration::from_millis(ms))
    }

    #[test]
    fn a_row_ends_by_number_or_time_while_others_listen_or_may() {
        assert_eq!(after(0, None, 0), StreakEnd::HandOver);
        for others in [None, Some(2)] {
            assert_eq!(after(2, others, 19), StreakEnd::HandOver);
            assert_eq!(after(3, others, 0), StreakEnd::Yield(others));
            assert_eq!(after(1, others, 20), StreakEnd::Yield(others));
        }
    }

    #[test]
    fn a_row_that_nobody_waits_for_ends_for_those_who_cannot_be_seen() {
        assert_eq!(after(1000, Some(0), 249), StreakEnd::HandOver);
        assert_eq!(after(1, Some(0), 250), StreakEnd::Yield(Some(0)));
    }

    #[test]
    fn without_hand_overs_every_release_is_open() {
        let never = HandOverLimits {
            hand_overs: 0,
            ..BOUNDS
        };
        assert_eq!(Streak::default().next(never, Moment(1)), StreakEnd::Release);
    }
}
