//! One client's waiters of a lock whose queue is on the server: which of them has the contender's role.

use std::sync::Arc;
use std::time::Duration;

use super::queue::WaitQueue;
use super::queue_entry::QueueEntry;
use super::sign::Sign;
use super::waiter::Waiter;
use super::wake_ups::WakeUps;
use crate::clock::Moment;
use crate::hold::Hold;

/// Whether the first waiter of the server's queue, a waiter of this client, is alive.
pub(crate) enum Called {
    /// It is the contender now, and is woken.
    Here,
    /// It missed its check-in. It is the contender now, and has to be polled by this moment.
    Asked(Moment),
    /// It is not polled any more: the caller has to undo its hold.
    Absent,
    /// No waiter of this lock has that hold.
    Unknown,
}

impl WaitQueue {
    /// A waiter has a place in the server's queue. The first waiter there has the role.
    pub(super) fn take_place(
        &mut self,
        waiter: &Arc<Waiter>,
        entry: QueueEntry,
        arrival: Option<u64>,
        now: Moment,
    ) {
        let known = waiter.in_queue.lock().arrival();
        let arrival = match (known, arrival) {
            // Only the first answer has the arrival.
            (Some(known), None) => known,
            (_, arrival) => {
                self.remove_place(waiter);
                self.places.add(waiter.id, arrival, now)
            }
        };
        waiter.in_queue.lock().take(entry, arrival);
        let first = self.contender.as_ref().and_then(|first| {
            let since = first.in_queue.lock().arrival()?;
            Some((since, first.id))
        });
        if first.is_none_or(|first| (arrival, waiter.id) < first) {
            self.contender = Some(waiter.clone());
        }
    }

    pub(super) fn remove_place(&mut self, waiter: &Waiter) {
        let mut in_queue = waiter.in_queue.lock();
        if let Some(arrival) = in_queue.arrival() {
            self.places.remove(arrival, waiter.id);
            in_queue.leave();
        }
    }

    /// A waiter has no place in the server's queue any more, so another one has the role.
    pub(super) fn lose_place(&mut self, waiter: &Waiter, wake_ups: &mut WakeUps) {
        self.remove_place(waiter);
        let next = self.in_places().next().cloned();
        if let Some(next) = next.filter(|_| self.is_its_role(waiter)) {
            wake_ups.add(&next);
            self.contender = Some(next);
        }
    }

    /// The waiters that have a place in the server's queue, in its order. Without the absent ones.
    pub(super) fn in_places(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.places.ids().filter_map(|id| self.waiting.get(&id))
    }

    pub(super) fn keep_others_present(
        &mut self,
        waiter: &Waiter,
        now: Moment,
        overdue: Moment,
        most: usize,
    ) -> Vec<Arc<Hold>> {
        let (mut kept, mut last) = (Vec::new(), None);
        for (arrival, id) in self.places.to_keep() {
            if kept.len() == most {
                break;
            }
            last = Some((arrival, id));
            let other = self.waiting.get(&id).filter(|it| it.id != waiter.id);
            if let Some(other) = other.filter(|it| it.is_there(overdue))
                && let Some(entry) = other.in_queue.lock().queue_entry()
            {
                kept.push(((arrival, id), entry.hold));
            }
        }
        self.places.kept(last, now);
        kept.sort_unstable_by_key(|(place, _)| *place);
        kept.into_iter().map(|(_, hold)| hold).collect()
    }

    pub(super) fn query_due(&self, within: Duration, most: usize) -> Option<Moment> {
        self.places.due(within, most)
    }

    pub(super) fn call(
        &mut self,
        hold: &Arc<Hold>,
        now: Moment,
        overdue: Moment,
        wake_ups: &mut WakeUps,
    ) -> Called {
        let Some(first) = self.all().find(|waiter| waits_with(waiter, hold)).cloned() else {
            return Called::Unknown;
        };
        let mut called = Called::Here;
        if !first.is_there(overdue) {
            match sign(&first, now, wake_ups) {
                Sign::Missing => return Called::Absent,
                Sign::Asked(until) => called = Called::Asked(until),
                Sign::Given => {}
            }
        }
        first.note_call();
        wake_ups.add(&first);
        self.contender = Some(first);
        called
    }

    /// Whether the contender is alive, for another waiter that would take its role over.
    pub(super) fn sign_of_contender(
        &self,
        waiter: &Waiter,
        now: Moment,
        overdue: Moment,
        wake_ups: &mut WakeUps,
    ) -> Sign {
        match &self.contender {
            Some(contender) if contender.id == waiter.id => Sign::Missing,
            Some(contender) if contender.is_there(overdue) => Sign::Given,
            Some(contender) => sign(contender, now, wake_ups),
            None => Sign::Missing,
        }
    }
}

/// Whether a waiter that missed its check-in is still polled.
fn sign(waiter: &Waiter, now: Moment, wake_ups: &mut WakeUps) -> Sign {
    let Some((_, hold)) = waiter.unanswered() else {
        return Sign::Missing;
    };
    let wake = |hold| wake_ups.ask_for_sign(hold);
    waiter.asked_for_sign.lock().sign(&hold, now, wake)
}

/// Whether it waits for a grant to this hold.
fn waits_with(waiter: &Waiter, hold: &Arc<Hold>) -> bool {
    let queued = waiter.in_queue.lock().queue_entry().map(|it| it.hold);
    let asked = || waiter.unanswered().map(|(_, hold)| hold);
    let waits_with = queued.or_else(asked);
    waits_with.is_some_and(|it| Arc::ptr_eq(&it, hold))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;
    use crate::wait::WaitRequest;

    /// A client with several runtimes has several connections, so its waiters arrive in another order.
    #[test]
    fn the_first_waiter_in_the_servers_queue_is_the_contender_whatever_the_local_order() {
        let now = Moment(1);
        let key = Arc::new(LockKey::new(&kind::FAIR, "l", None).unwrap());
        let mut queue = WaitQueue::default();
        let request = |_| WaitRequest {
            owner: Owner::new(),
            terms: None,
            deadline: None,
            kind: crate::wait::WaiterKind::Sole,
        };
        let waiters: Vec<Arc<Waiter>> = (1..=3)
            .map(|id| Arc::new(Waiter::new(id, request(id), now)))
            .collect();
        let holds = crate::hold::Holds::new(crate::clock::Clock::default(), false);
        let place = |waiter: &Arc<Waiter>| QueueEntry {
            hold: holds.enter(&key, waiter.request.owner),
            permit: None,
            channel: "c".into(),
        };
        for waiter in &waiters {
            queue.push(waiter.clone());
        }
        for (waiter, arrival) in waiters.iter().zip([30, 20, 10]) {
            queue.take_place(waiter, place(waiter), Some(arrival), now);
            assert!(queue.is_its_role(waiter));
        }
        let mut wake_ups = WakeUps::default();
        queue.leave(&waiters[2], true, true, &mut wake_ups);
        assert!(queue.is_its_role(&waiters[1]));
        // Its place is lost: the next one has the role.
        queue.lose_place(&waiters[1], &mut wake_ups);
        assert!(queue.is_its_role(&waiters[0]));
        queue.take_place(&waiters[1], place(&waiters[1]), Some(40), now);
        assert!(queue.is_its_role(&waiters[0]));
    }
}
