//! One lock's queue, and who in it has the contender's role.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Subscription;
use super::ticket::Ticket;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::Hold;
use crate::owner::Owner;

/// The waiters of one lock, in the order of their arrival.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Arc<Ticket>>,
    /// Those who hear of the lock without waiting for it.
    listening_in: Vec<Arc<Ticket>>,
    /// The id of the one that may talk to Redis.
    contender: Option<u64>,
    subscription: Option<Subscription>,
    /// What kept the contender from asking when it last tried.
    outage: Option<Error>,
    retreat: Option<Retreat>,
}

/// This client had the lock for a while and stays out, so that others get it. Without that pause they
/// get next to nothing: they hear of a release later than whoever did it.
#[derive(Clone, Copy)]
pub(crate) struct Retreat {
    pub(crate) until: Moment,
    /// So many releases by others end it before; zero if nobody is known to wait.
    pub(crate) releases: u32,
    /// The message of the release that began it will be heard, and is none of theirs.
    own: bool,
}

impl Queue {
    pub(super) fn push(&mut self, ticket: Arc<Ticket>) {
        if self.contender.is_none() {
            self.contender = Some(ticket.id);
        }
        self.waiting.push_back(ticket);
    }

    pub(super) fn listen_in(&mut self, ticket: Arc<Ticket>) {
        self.listening_in.push(ticket);
    }

    pub(super) fn listen_no_more(&mut self, ticket: &Ticket) {
        self.listening_in.retain(|other| other.id != ticket.id);
    }

    /// One who leaves with the lock has met no outage, and lets its owner's other requests re-enter.
    pub(super) fn leave(&mut self, ticket: &Ticket, with_lock: bool) {
        match self.waiting.front() {
            // The usual one to leave.
            Some(first) if first.id == ticket.id => drop(self.waiting.pop_front()),
            _ => self.waiting.retain(|other| other.id != ticket.id),
        }
        if with_lock {
            self.outage = None;
            self.wake_owner(ticket.wish.owner);
        }
        if self.contender == Some(ticket.id) {
            self.pass_on(!with_lock);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.listening_in.is_empty()
    }

    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_contender(&self, ticket: &Ticket) -> bool {
        ticket.appear();
        self.contender == Some(ticket.id)
    }

    pub(super) fn wake_contender(&self) {
        self.tell_listeners();
        if let Some(ticket) = self.contender() {
            ticket.tell();
        }
    }

    fn tell_listeners(&self) {
        for ticket in &self.listening_in {
            ticket.tell();
        }
    }

    pub(super) fn wake_owner(&self, owner: Owner) {
        for ticket in self
            .waiting
            .iter()
            .filter(|ticket| ticket.wish.owner == owner)
        {
            ticket.tell();
        }
    }

    /// Lets those who give up know what keeps the contender from asking.
    pub(super) fn remember_outage(&mut self, outage: Option<&Error>) {
        let refused = matches!(self.outage, Some(Error::Refused { .. }));
        // What the server said tells more than that it could not be asked again in time.
        if !(refused && matches!(outage, Some(Error::Unavailable { .. }))) {
            self.outage = outage.cloned();
        }
    }

    /// As [`Queue::remember_outage`], and ends the waits of those who would wait for ever.
    pub(super) fn note_outage(&mut self, outage: Option<&Error>) {
        self.remember_outage(outage);
        if let Some(error) = outage {
            for ticket in self.waiting.iter().filter(|ticket| ticket.is_patient()) {
                ticket.fail(error);
            }
        }
    }

    pub(super) fn outage(&self) -> Option<Error> {
        self.outage.clone()
    }

    pub(super) fn fail(&self, error: &Error) {
        for ticket in self.waiting.iter().chain(&self.listening_in) {
            ticket.fail(error);
        }
    }

    pub(super) fn take_over(
        &mut self,
        ticket: &Ticket,
        overdue: Moment,
    ) -> Option<Option<Arc<Hold>>> {
        let contender = self.contender()?;
        if contender.id == ticket.id {
            return None;
        }
        let acquire = contender.replace(overdue)?;
        self.contender = Some(ticket.id);
        Some(acquire)
    }

    /// Picks the waiter to hand the lock to, the contender if it can take it, and lets it expect it.
    /// It becomes the contender.
    pub(super) fn receiver(
        &mut self,
        now: Moment,
        overdue: Moment,
        until: Moment,
    ) -> Option<Arc<Ticket>> {
        let contender = self.contender()?;
        if !self.listening_in.is_empty() {
            // It has to be free for a moment to be had together with others.
            return None;
        }
        if contender.unanswered_since().is_some() {
            // It asks Redis already, and may get the lock by that.
            return None;
        }
        if contender.asks_for_itself(overdue) {
            // It is its turn.
            return None;
        }
        let can_take = |ticket: &&Arc<Ticket>| ticket.expect(now, overdue, until);
        let next = Some(contender)
            .filter(can_take)
            .or_else(|| self.waiting.iter().find(can_take))?
            .clone();
        self.contender = Some(next.id);
        Some(next)
    }

    /// Leaves the lock, which is about to be released, to so many others, if their number is known.
    pub(super) fn stay_out(&mut self, others: Option<u32>, until: Moment) {
        self.retreat = Some(Retreat {
            until,
            releases: others.unwrap_or(1),
            own: self.is_listening(),
        });
    }

    /// Whether the lock is left to others.
    pub(super) fn stays_out(&mut self, now: Moment) -> Option<Retreat> {
        self.retreat = self.retreat.filter(|retreat| now < retreat.until);
        self.retreat
    }

    /// A message came: the lock may be free, and for this client.
    pub(super) fn hear(&mut self, now: Moment) {
        if let Some(retreat) = &mut self.retreat
            && now < retreat.until
        {
            let is_own = std::mem::take(&mut retreat.own);
            if !is_own {
                retreat.releases = retreat.releases.saturating_sub(1);
            }
            if is_own || retreat.releases > 0 {
                return self.tell_listeners();
            }
            self.retreat = None;
        }
        self.wake_contender();
    }

    pub(super) fn unanswered_for(&self, now: Moment) -> Option<Duration> {
        let since = self.contender()?.unanswered_since()?;
        Some(now.since(since))
    }

    pub(super) fn is_listening(&self) -> bool {
        self.subscription
            .as_ref()
            .is_some_and(Subscription::is_listening)
    }

    pub(super) fn subscription(&mut self, make: impl FnOnce() -> Subscription) -> Subscription {
        self.subscription.get_or_insert_with(make).clone()
    }

    /// How many wait, and how the contender is.
    pub(super) fn shown(&self, now: Moment) -> String {
        let contender = match self.contender() {
            Some(ticket) => ticket.shown(now),
            None => "missing".to_owned(),
        };
        format!(
            "waiting={} listening={} outage={} retreat={} contender={contender}",
            self.waiting.len(),
            self.is_listening(),
            self.outage.is_some(),
            self.retreat.is_some(),
        )
    }

    fn contender(&self) -> Option<&Arc<Ticket>> {
        let id = self.contender?;
        self.waiting.iter().find(|ticket| ticket.id == id)
    }

    /// Gives the role to the first who is there, with the wake-up that its last bearer may have had.
    fn pass_on(&mut self, wake: bool) {
        let present = |ticket: &&Arc<Ticket>| !ticket.is_absent();
        let next = self
            .waiting
            .iter()
            .find(present)
            .or_else(|| self.waiting.front());
        self.contender = next.map(|ticket| ticket.id);
        if let Some(ticket) = next
            && wake
            && !mutant!("swallowed_wake")
        {
            ticket.tell();
        }
    }
}
