//! When to retry after a lost round.

use std::time::Duration;

use smallvec::SmallVec;

use crate::Moment;

/// When enough instances may be free, and how long to back off.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RetryTimer {
    free_at: SmallVec<[Moment; 5]>,
    need: usize,
    /// The base of the next pause.
    pause: Duration,
    not_before: Moment,
}

impl RetryTimer {
    /// Nothing is known yet of the `members` instances, of which `need` win.
    pub fn new(members: usize, need: usize) -> Self {
        Self {
            free_at: SmallVec::from_elem(Moment(0), members),
            need,
            pause: Duration::ZERO,
            not_before: Moment(0),
        }
    }

    /// Another owner holds the instance until then; `None` if the key does not expire.
    pub fn busy(&mut self, member: usize, until: Option<Moment>) {
        self.free_at[member] = until.unwrap_or(Moment::NEVER);
    }

    /// The instance may be free: it said so, or what was acquired there was released.
    pub fn free(&mut self, member: usize) {
        self.free_at[member] = Moment(0);
    }

    /// The instance cannot be acquired for now.
    pub fn out_of_reach(&mut self, member: usize) {
        self.free_at[member] = Moment::NEVER;
    }

    /// A round was lost to others who want the lock too. Each backs off for a random pause, and the
    /// pauses double each time. `chance` of 1024 selects the pause within its range.
    pub fn collided(&mut self, round_trip: Duration, chance: u32, now: Moment) {
        let longest = LONGEST_PAUSE.max(round_trip * 4);
        let pause = (self.pause * 2).max(round_trip).max(SHORTEST_PAUSE);
        self.pause = pause.min(longest);
        self.not_before = now + self.pause + self.pause / 1024 * (chance % 1024);
    }

    /// A round was lost to a holder, or to competitors that asked all instances earlier. It needs no
    /// pause, but the pause after the next collision does not begin from the shortest again: several
    /// competitors would then collide without end.
    pub fn was_held(&mut self) {
        self.pause /= 2;
    }

    /// When the next round may succeed, but no later than `cap` unless it has to back off for longer.
    pub fn next_round(&self, cap: Moment) -> Moment {
        let mut free_at = self.free_at.clone();
        free_at.sort_unstable();
        let enough = free_at.get(self.need.saturating_sub(1)).copied();
        enough
            .unwrap_or(Moment::NEVER)
            .min(cap)
            .max(self.not_before)
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Moment = Moment(1_000_000_000_000);

    #[test]
    fn the_next_round_starts_when_enough_instances_may_be_free() {
        let mut timer = RetryTimer::new(5, 3);
        for (member, at) in [(0, 50), (1, 10), (2, 40), (3, 30)] {
            timer.busy(member, Some(Moment(at)));
        }
        timer.busy(4, None);
        assert_eq!(timer.next_round(CAP), Moment(40));
        timer.free(4);
        assert_eq!(timer.next_round(CAP), Moment(30));
        timer.out_of_reach(1);
        assert_eq!(timer.next_round(CAP), Moment(40));
        assert_eq!(timer.next_round(Moment(5)), Moment(5));
    }

    #[test]
    fn pauses_after_collisions_are_random_and_grow_up_to_a_bound() {
        let ms = Duration::from_millis;
        let mut timer = RetryTimer::new(3, 2);
        let now = Moment(1_000_000_000);
        let mut longest = Duration::ZERO;
        for chance in [0, 1023, 0, 1023, 0, 1023, 0, 0, 0, 0] {
            timer.collided(ms(2), chance, now);
            let pause = timer.next_round(CAP).since(now);
            assert!(pause >= ms(2) && pause < 2 * LONGEST_PAUSE, "{pause:?}");
            longest = longest.max(pause);
        }
        assert!(longest >= LONGEST_PAUSE);
        // Rounds in between that got nothing let the next pause begin from less.
        for halved in 1..=3 {
            timer.was_held();
            timer.was_held();
            timer.collided(ms(2), 0, now);
            let pause = timer.next_round(CAP).since(now);
            assert_eq!(pause, LONGEST_PAUSE / 2_u32.pow(halved));
        }
    }
}
