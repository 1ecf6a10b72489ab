//! The places of one client's waiters in a queue on the server.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Moment;

/// The waiters that have a place, in the order of the server. Empty for a lock without such a queue.
#[derive(Default)]
pub(super) struct Places {
    /// When each took its place by the server's clock, and the waiter's id.
    order: BTreeSet<(u64, u64)>,
    /// Up to where the last query kept further waiters present.
    kept_to: Option<(u64, u64)>,
    /// When the contender last queried.
    queried_at: Option<Moment>,
}

impl Places {
    /// Adds a waiter and returns its arrival. Without an `arrival` the waiter comes after the known ones: the
    /// server names the moment only in its first answer, and that answer was lost.
    pub(super) fn add(&mut self, id: u64, arrival: Option<u64>, now: Moment) -> u64 {
        if self.order.is_empty() {
            // The query by which the waiter entered also keeps it present.
            self.queried_at = Some(now);
        }
        let last = self.order.last().map_or(0, |(last, _)| *last);
        let arrival = arrival.unwrap_or(last + 1);
        self.order.insert((arrival, id));
        arrival
    }

    pub(super) fn remove(&mut self, arrival: u64, id: u64) {
        self.order.remove(&(arrival, id));
    }

    /// The ids of the waiters, in the order of the server.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.order.iter().map(|(_, id)| *id)
    }

    /// The waiters that the next query keeps present, in round-robin order: it begins behind the last one that
    /// was kept. The caller reports the last one with [`Places::kept`].
    pub(super) fn to_keep(&self) -> impl Iterator<Item = (u64, u64)> {
        let from = self
            .kept_to
            .map_or((0, 0), |(arrival, id)| (arrival, id + 1));
        self.order
            .range(from..)
            .chain(self.order.range(..from))
            .copied()
    }

    /// A query at `now` keeps the waiters up to this one present.
    pub(super) fn kept(&mut self, to: Option<(u64, u64)>, now: Moment) {
        self.kept_to = to;
        self.queried_at = Some(now);
    }

    /// When the next query is due, if each query keeps `each` waiters present, and each waiter has to be kept
    /// present once `within` this time.
    pub(super) fn due(&self, within: Duration, each: usize) -> Option<Moment> {
        let queries = self.order.len().div_ceil(each).max(1);
        let queries = u32::try_from(queries).unwrap_or(u32::MAX);
        Some(self.queried_at? + within / queries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waiter_is_kept_once_before_one_is_kept_again() {
        let mut places = Places::default();
        for id in 0..5 {
            places.add(id, Some(100 - id), Moment(1));
        }
        let mut kept = Vec::new();
        for _ in 0..5 {
            let two: Vec<_> = places.to_keep().take(2).collect();
            places.kept(two.last().copied(), Moment(1));
            kept.extend(two.into_iter().map(|(_, id)| id));
        }
        assert_eq!(kept, [4, 3, 2, 1, 0, 4, 3, 2, 1, 0]);
        assert!(places.ids().eq([4, 3, 2, 1, 0]));
    }

    #[test]
    fn a_waiter_without_an_arrival_comes_last() {
        let mut places = Places::default();
        places.add(1, Some(70), Moment(1));
        let arrival = places.add(2, None, Moment(1));
        places.add(3, Some(40), Moment(1));
        assert!(places.ids().eq([3, 1, 2]));
        places.remove(arrival, 2);
        assert!(places.ids().eq([3, 1]));
    }

    #[test]
    fn the_more_wait_the_sooner_the_next_query_is_due() {
        let mut places = Places::default();
        let within = Duration::from_millis(1000);
        assert_eq!(places.due(within, 100), None);
        places.add(401, None, Moment(0));
        assert_eq!(places.due(within, 100), Some(Moment(0) + within));
        for id in 0..400 {
            places.add(id, None, Moment(0));
        }
        assert_eq!(places.due(within, 100), Some(Moment(0) + within / 5));
    }
}
