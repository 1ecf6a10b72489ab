//! Consecutive hand-overs, and how long they may continue before other clients get the lock.

use std::time::Duration;

use crate::clock::Moment;

/// How long one client may hand a lock from owner to owner while other clients wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandOverLimits {
    /// The maximum number of consecutive hand-overs; zero disables them.
    pub(crate) hand_overs: u32,
    /// The maximum duration of a streak.
    pub(crate) time: Duration,
}

/// The consecutive hand-overs, without a release between them, that led to a hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streak {
    /// When the first one was done.
    began: Option<Moment>,
    hand_overs: u32,
    /// How many other clients were subscribed to the lock's channel at the last hand-over, if known.
    others: Option<u32>,
}

/// What a holder does at its final unlock if other owners of its client wait for the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StreakEnd {
    /// It hands the lock over.
    HandOver,
    /// It releases the lock; the client kept no other client waiting.
    Release,
    /// It releases the lock and leaves it to other clients. Contains the number of subscribed clients,
    /// if known.
    Yield(Option<u32>),
}

impl Streak {
    /// Counts one more hand-over, which was done by `now`.
    pub(crate) fn lengthen(&mut self, others: Option<u32>, now: Moment) {
        self.began.get_or_insert(now);
        self.hand_overs = self.hand_overs.saturating_add(1);
        self.others = others;
    }

    /// What comes next after this streak. The answer to the first hand-over says whether other clients
    /// wait.
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

/// Waiters that poll, or that are subscribed elsewhere, are not counted. They get a chance this often.
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
    fn a_streak_ends_by_count_or_time_while_others_may_listen() {
        assert_eq!(after(0, None, 0), StreakEnd::HandOver);
        for others in [None, Some(2)] {
            assert_eq!(after(2, others, 19), StreakEnd::HandOver);
            assert_eq!(after(3, others, 0), StreakEnd::Yield(others));
            assert_eq!(after(1, others, 20), StreakEnd::Yield(others));
        }
    }

    #[test]
    fn a_streak_without_listeners_ends_after_the_limit_for_clients_that_poll() {
        assert_eq!(after(1000, Some(0), 249), StreakEnd::HandOver);
        assert_eq!(after(1, Some(0), 250), StreakEnd::Yield(Some(0)));
    }

    #[test]
    fn without_hand_overs_every_release_frees_the_lock() {
        let never = HandOverLimits {
            hand_overs: 0,
            ..BOUNDS
        };
        assert_eq!(Streak::default().next(never, Moment(1)), StreakEnd::Release);
    }
}
