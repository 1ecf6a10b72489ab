//! The recently released holds, for a server that may not have received their releases.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Hold;
use crate::clock::Moment;

/// Removed holds with the moment of removal, the oldest first.
#[derive(Default)]
pub(super) struct RecentlyReleased(Mutex<VecDeque<(Moment, Arc<Hold>)>>);

impl RecentlyReleased {
    pub(super) fn remember(&self, hold: &Arc<Hold>, now: Moment) {
        let mut holds = self.0.lock();
        if holds.len() >= MOST {
            holds.pop_front();
        }
        holds.push_back((now, hold.clone()));
    }

    pub(super) fn forget(&self, now: Moment) {
        let mut holds = self.0.lock();
        let is_old = |(then, _): &(Moment, _)| now.since(*then) > REMEMBERED;
        while holds.front().is_some_and(is_old) {
            holds.pop_front();
        }
    }

    /// Removes and returns the remembered holds that match `these`.
    pub(super) fn take(&self, now: Moment, these: impl Fn(&Hold) -> bool) -> Vec<Arc<Hold>> {
        let mut holds = self.0.lock();
        let all = holds.drain(..);
        let (taken, kept): (VecDeque<_>, _) = all.partition(|(_, hold)| these(hold));
        *holds = kept;
        drop(holds);
        let is_new = |(then, _): &(Moment, _)| now.since(*then) <= REMEMBERED;
        let new = taken.into_iter().filter(is_new);
        new.map(|(_, hold)| hold).collect()
    }
}

/// Longer than an old master continues after a failover, and longer than a busy client needs to learn
/// of the failover.
const REMEMBERED: Duration = Duration::from_secs(30);
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;

    #[test]
    fn old_and_surplus_entries_are_dropped() {
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let hold = |number| Arc::new(Hold::new(key.clone(), Owner::new(), number, Moment(0)));
        let gone = RecentlyReleased::default();
        gone.remember(&hold(1), Moment(0));
        let later = Moment(0) + REMEMBERED + Duration::from_secs(1);
        gone.remember(&hold(2), later);
        let numbers =
            |holds: Vec<Arc<Hold>>| holds.iter().map(|it| it.number()).collect::<Vec<_>>();
        assert_eq!(numbers(gone.take(later, |_| true)), [2]);
        assert!(gone.take(later, |_| true).is_empty());
        for number in 0..=MOST as u64 {
            gone.remember(&hold(number), later);
        }
        let kept = numbers(gone.take(later, |_| true));
        assert_eq!((kept.len(), kept[0]), (MOST, 1));
        gone.remember(&hold(1), Moment(0));
        assert!(gone.take(later, |_| true).is_empty());
    }
}
