//! One lock's queue, and which waiter has the contender's role.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::Subscription;
use super::listed::ListedClient;
use super::places::Places;
use super::retreat::Retreat;
use super::waiter::{HandedOver, Waiter};
use super::wake_ups::WakeUps;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::Hold;
use crate::owner::Owner;

/// The waiters of one lock, in the order of arrival.
///
/// Each arrival and each leave costs O(log n), so a crowd of waiters with one deadline can leave
/// together quickly.
#[derive(Default)]
pub(super) struct WaitQueue {
    /// By id; ids increase with each arrival. Without the absent waiters.
    pub(super) waiting: BTreeMap<u64, Arc<Waiter>>,
    /// Waiters that missed a check-in and have not checked in since.
    absent: BTreeMap<u64, Arc<Waiter>>,
    /// The ids of the writers among them.
    writers: BTreeSet<u64>,
    /// The ids of each owner's waiters. Kept once there are too many waiters to scan.
    by_owner: Option<HashMap<Owner, BTreeSet<u64>>>,
    /// Woken without waiting in the queue.
    pub(super) listeners: BTreeMap<u64, Arc<Waiter>>,
    /// The waiter that may talk to Redis.
    pub(super) contender: Option<Arc<Waiter>>,
    // Dropped in this order.
    pub(super) listed: Option<ListedClient>,
    /// The client's own channel, since it left the list.
    pub(super) unlisted: Option<Subscription>,
    subscription: Option<Subscription>,
    /// A contender has asked, or is called to, since messages come: so one comes for each later release.
    pub(super) is_watched: bool,
    /// A release woke this client and no other, and it has neither had nor released the lock since.
    pub(super) is_called: bool,
    /// See [`WaitQueue::be_second`].
    pub(super) second_until: Option<Moment>,
    /// Since when it has no waiter, if it is kept all the same.
    pub(super) idle_since: Option<Moment>,
    /// The outage that the contender's last attempt met.
    outage: Option<Error>,
    /// Since when the contender asks several servers and does not know the outcome.
    pub(super) round_since: Option<Moment>,
    pub(super) retreat: Option<Retreat>,
    /// Those of the waiters that have a place in a queue on the server.
    pub(super) places: Places,
}

impl WaitQueue {
    pub(super) fn push(&mut self, waiter: Arc<Waiter>) {
        self.idle_since = None;
        if self.contender.is_none() {
            self.contender = Some(waiter.clone());
        }
        if let Some(by_owner) = &mut self.by_owner {
            let ids = by_owner.entry(waiter.request.owner).or_default();
            ids.insert(waiter.id);
        }
        self.insert(waiter);
        if self.by_owner.is_none() && self.waiting.len() > FEW {
            self.by_owner = Some(self.owners());
        }
    }

    fn insert(&mut self, waiter: Arc<Waiter>) {
        if waiter.is_writer() {
            self.writers.insert(waiter.id);
        }
        self.waiting.insert(waiter.id, waiter);
    }

    /// Removes it from the waiters that are not absent.
    fn remove(&mut self, waiter: &Waiter) -> bool {
        self.writers.remove(&waiter.id);
        self.waiting.remove(&waiter.id).is_some()
    }

    fn owners(&self) -> HashMap<Owner, BTreeSet<u64>> {
        let mut by_owner: HashMap<Owner, BTreeSet<u64>> = HashMap::new();
        for waiter in self.all() {
            let ids = by_owner.entry(waiter.request.owner).or_default();
            ids.insert(waiter.id);
        }
        by_owner
    }

    /// All waiters, absent or not.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.waiting.values().chain(self.absent.values())
    }

    /// A waiter that leaves with the lock clears the outage, and wakes its owner's other requests so
    /// that they re-enter. `is_used_up`: nothing is left for the next waiter.
    pub(super) fn leave(
        &mut self,
        waiter: &Waiter,
        with_lock: bool,
        is_used_up: bool,
        wake_ups: &mut WakeUps,
    ) {
        if !self.remove(waiter) {
            self.absent.remove(&waiter.id);
        }
        self.remove_place(waiter);
        if let Some(by_owner) = &mut self.by_owner {
            if let Some(ids) = by_owner.get_mut(&waiter.request.owner) {
                ids.remove(&waiter.id);
                if ids.is_empty() {
                    by_owner.remove(&waiter.request.owner);
                }
            }
            if by_owner.is_empty() {
                self.by_owner = None;
            }
        }
        if with_lock {
            self.is_called = false;
            self.outage = None;
            self.wake_owner(waiter.request.owner, wake_ups);
        }
        let is_passed_on = self.is_its_role(waiter);
        if is_passed_on {
            self.pass_on();
        }
        let is_used_up = is_used_up && !(is_passed_on && self.next_wants_fewer_than(waiter));
        // The readers behind a reader sent their attempts together with it, so they need no wake-up.
        let is_known = with_lock && waiter.is_reader() && self.is_reader_next();
        if !is_used_up && !is_known && (is_passed_on || waiter.is_writer()) {
            // The previous contender may have left with an unused wake-up, so the next one gets one. The
            // readers behind that had their own wake-ups, unless this waiter is a writer before them.
            let most = if waiter.is_writer() { usize::MAX } else { 1 };
            for next in self.askers().take(most) {
                // If it leaves with a hand-over before it asks, it passes the call on.
                next.note_call();
                wake_ups.add(next);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.is_awaited() && self.listeners.is_empty()
    }

    pub(super) fn is_awaited(&self) -> bool {
        !(self.waiting.is_empty() && self.absent.is_empty())
    }

    /// Whether this waiter may send an attempt: it has the role, or is a reader that asks together with the
    /// waiter that has it. The check marks the waiter as alive.
    pub(super) fn may_ask(&mut self, waiter: &Waiter, now: Moment) -> bool {
        waiter.appear();
        if let Some(back) = self.absent.remove(&waiter.id) {
            self.insert(back);
        }
        let is_before_writers = || self.writers.first().is_none_or(|first| waiter.id < *first);
        self.is_its_role(waiter)
            || waiter.is_impatient(now)
            || (waiter.is_reader() && self.is_reader_next() && is_before_writers())
    }

    fn is_reader_next(&self) -> bool {
        self.contender.as_ref().is_some_and(|it| it.is_reader())
    }

    /// The contender, and the readers that ask with it.
    pub(super) fn askers(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        let end = match self.writers.first() {
            _ if !self.is_reader_next() => 0,
            Some(first) => *first,
            None => u64::MAX,
        };
        let others = self.waiting.range(..end).map(|(_, waiter)| waiter);
        let others = others.filter(|it| it.is_reader() && !self.is_its_role(it));
        self.contender.iter().chain(others)
    }

    pub(super) fn is_its_role(&self, waiter: &Waiter) -> bool {
        self.contender
            .as_ref()
            .is_some_and(|contender| contender.id == waiter.id)
    }

    pub(super) fn wake_contender(&self, wake_ups: &mut WakeUps) {
        self.notify_listeners(wake_ups);
        for waiter in self.askers() {
            waiter.note_call();
            wake_ups.add(waiter);
        }
    }

    fn notify_listeners(&self, wake_ups: &mut WakeUps) {
        for waiter in self.listeners.values() {
            wake_ups.add(waiter);
        }
    }

    pub(super) fn wake_owner(&self, owner: Owner, wake_ups: &mut WakeUps) {
        let Some(by_owner) = &self.by_owner else {
            for waiter in self.all().filter(|waiter| waiter.request.owner == owner) {
                wake_ups.add(waiter);
            }
            return;
        };
        for id in by_owner.get(&owner).into_iter().flatten() {
            if let Some(waiter) = self.waiting.get(id).or_else(|| self.absent.get(id)) {
                wake_ups.add(waiter);
            }
        }
    }

    /// Remembers the outage that the contender met, for waiters that give up.
    pub(super) fn remember_outage(&mut self, outage: Option<&Error>) {
        let refused = matches!(self.outage, Some(Error::Refused { .. }));
        // A refusal of the server is more exact than an attempt that had no time for an answer.
        if !(refused && matches!(outage, Some(Error::Unavailable { .. }))) {
            self.outage = outage.cloned();
        }
    }

    /// As [`WaitQueue::remember_outage`], and ends the waits that have no deadline.
    pub(super) fn note_outage(&mut self, outage: Option<&Error>, wake_ups: &mut WakeUps) {
        self.remember_outage(outage);
        if let Some(error) = outage {
            for waiter in self.all().filter(|waiter| waiter.has_no_deadline()) {
                wake_ups.fail(waiter, error);
            }
        }
    }

    pub(super) fn outage(&self) -> Option<Error> {
        self.outage.clone()
    }

    pub(super) fn fail(&self, error: &Error, wake_ups: &mut WakeUps) {
        for waiter in self.all().chain(self.listeners.values()) {
            wake_ups.fail(waiter, error);
        }
    }

    /// Gives the role to `waiter` if the contender missed its check-in. Returns what the contender had: see
    /// [`Waiter::replace`].
    pub(super) fn take_over(
        &mut self,
        waiter: &Arc<Waiter>,
        overdue: Moment,
    ) -> Option<(Option<Arc<Hold>>, Option<HandedOver>)> {
        let contender = self.contender.clone()?;
        if contender.id == waiter.id {
            return None;
        }
        let replaced = contender.replace(overdue)?;
        self.remove(&contender);
        self.absent.insert(contender.id, contender);
        self.contender = Some(waiter.clone());
        self.round_since = None;
        Some(replaced)
    }

    /// Leaves the lock, which is about to be released, to `others` other clients, if their number is
    /// known.
    pub(super) fn back_off(&mut self, others: Option<u32>, until: Moment) {
        self.retreat = Some(Retreat {
            until,
            releases: others.unwrap_or(1),
            own: self.is_listening(),
        });
    }

    /// The pause, if this client leaves the lock to others now.
    pub(super) fn backed_off(&mut self, now: Moment) -> Option<Retreat> {
        self.retreat = self.retreat.filter(|retreat| now < retreat.until);
        self.retreat
    }

    /// Handles a message of the lock: wakes the contender, unless the release is left to other clients.
    pub(super) fn handle_message(&mut self, now: Moment, wake_ups: &mut WakeUps) {
        if let Some(retreat) = &mut self.retreat
            && now < retreat.until
        {
            let is_own = std::mem::take(&mut retreat.own);
            if !is_own {
                retreat.releases = retreat.releases.saturating_sub(1);
            }
            if is_own || retreat.releases > 0 {
                // Calls that wait for several locks do not take part in the retreat.
                return self.notify_listeners(wake_ups);
            }
            self.retreat = None;
        }
        self.second_until = None;
        self.wake_by_message(wake_ups);
    }

    pub(super) fn wake_by_message(&self, wake_ups: &mut WakeUps) {
        for waiter in self.askers() {
            waiter.woken.note_message();
        }
        self.wake_contender(wake_ups);
    }

    pub(super) fn silent_contender(&self, then: Moment) -> Option<(Duration, Arc<Hold>)> {
        let (since, hold) = self.contender.as_ref()?.unanswered()?;
        Some((then.since(since), hold))
    }

    pub(super) fn is_listening(&self) -> bool {
        self.subscription
            .as_ref()
            .is_some_and(Subscription::is_listening)
    }

    pub(super) fn subscription(&mut self, make: impl FnOnce() -> Subscription) -> Subscription {
        self.subscription.get_or_insert_with(make).clone()
    }

    /// The number of waiters and the state of the contender.
    pub(super) fn shown(&self, now: Moment) -> String {
        let contender = match &self.contender {
            Some(waiter) => waiter.shown(now),
            None => "missing".to_owned(),
        };
        format!(
            "waiting={} listening={} outage={} retreat={} contender={contender}",
            self.waiting.len() + self.absent.len(),
            self.is_listening(),
            self.outage.is_some(),
            self.retreat.is_some(),
        )
    }

    /// Gives the role to the first waiter that is alive. Of several waiters for permits, it is the first one to
    /// which none are being handed: that one would leave without asking.
    fn pass_on(&mut self) {
        // The waiters in `waiting` that are absent are about to leave, and they are few. One that gets the
        // role all the same passes it on when it leaves.
        let present = |waiter: &&Arc<Waiter>| !waiter.is_absent();
        let asks = |waiter: &&Arc<Waiter>| present(waiter) && !waiter.is_receiving();
        let next = self
            .in_places()
            .find(present)
            .or_else(|| self.waiting.values().find(asks))
            .or_else(|| self.waiting.values().find(present))
            .or_else(|| self.waiting.values().next())
            .or_else(|| self.absent.values().next());
        self.contender = next.cloned();
        self.round_since = None;
    }
}

/// Up to this many waiters are scanned one by one.
const FEW: usize = 16;
