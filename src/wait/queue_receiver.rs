//! The waiter of a queue to which a lock or permits are handed.

use std::sync::Arc;

use super::queue::WaitQueue;
use super::waiter::Waiter;
use super::waiter_kind::WaiterKind;
use crate::clock::Moment;
use crate::key::QueueSide;

impl WaitQueue {
    /// Picks the waiter to hand the lock to, the contender if it can take the lock, and makes it expect
    /// the hand-over. That waiter becomes the contender.
    pub(super) fn receiver(
        &mut self,
        side: QueueSide,
        now: Moment,
        overdue: Moment,
        until: Moment,
        kind: WaiterKind,
    ) -> Option<Arc<Waiter>> {
        let contender = self.contender.as_ref()?;
        if !self.listeners.is_empty() {
            // A multi lock is waiting for this key: release it instead of handing it over.
            return None;
        }
        if let WaiterKind::Permits(_) = kind {
            return self.receiver_of_permits(kind, now, overdue, until);
        }
        if contender.unanswered().is_some() {
            // The contender's own acquire is in flight and may be granted.
            return None;
        }
        if contender.asks_for_itself(overdue) {
            // The contender is next, and the lock cannot be handed to it.
            return None;
        }
        let can_take = |waiter: &&Arc<Waiter>| waiter.expect(now, overdue, until);
        let next = match side {
            QueueSide::Client => Some(contender)
                .filter(can_take)
                .or_else(|| self.waiting.values().find(can_take))?,
            // The server hands the lock to the first in its queue only.
            QueueSide::Server => self.in_places().next().filter(can_take)?,
        }
        .clone();
        self.contender = Some(next.clone());
        Some(next)
    }

    /// Picks the waiter to hand permits to: the first one that neither has a command of its own in flight nor is
    /// about to send one. Permits are not handed past a waiter that wants another number of them. The contender
    /// does not change.
    fn receiver_of_permits(
        &self,
        kind: WaiterKind,
        now: Moment,
        overdue: Moment,
        until: Moment,
    ) -> Option<Arc<Waiter>> {
        let alive = || self.waiting.values().filter(|it| it.is_there(overdue));
        let in_order = || alive().take_while(|waiter| waiter.request.kind == kind);
        // A waiter is skipped while its own acquire is in flight. If that finds too few permits, the
        // waiter can get the next hand-over.
        let can_take = |waiter: &&Arc<Waiter>| waiter.expect(now, overdue, until);
        // So is a contender that was called and has not asked yet, because further permits may be free. If each
        // contender got a hand-over first, none of them would ask, and those permits would stay free.
        let is_about_to_ask =
            |waiter: &&Arc<Waiter>| self.is_its_role(waiter) && waiter.was_called();
        in_order()
            .filter(|waiter| !is_about_to_ask(waiter))
            .find(can_take)
            // No other waiter can take them. A contender that leaves with them calls the next one.
            .or_else(|| in_order().find(can_take))
            .cloned()
    }

    /// Whether permits may be free for the contender that were too few for this waiter: they were handed to it.
    pub(super) fn next_wants_fewer_than(&self, waiter: &Waiter) -> bool {
        let wanted = |it: &Waiter| match it.request.kind {
            WaiterKind::Permits(permits) => permits,
            WaiterKind::Sole | WaiterKind::Writer | WaiterKind::Reader { .. } => 0,
        };
        let next = self.contender.as_deref();
        next.is_some_and(|next| wanted(next) < wanted(waiter))
    }
}
