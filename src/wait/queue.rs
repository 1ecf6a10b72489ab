//! One lock's queue, and who in it has the contender's role.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Subscription;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::Hold;
use crate::owner::Owner;

/// The waiters of one lock, in the order of their arrival.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Arc<Ticket>>,
    /// The id of the one that may talk to Redis.
    contender: Option<u64>,
    subscription: Option<Subscription>,
    /// What kept the contender from asking when it last tried.
    outage: Option<Error>,
}

/// One waiter.
pub(super) struct Ticket {
    id: u64,
    owner: Owner,
    patient: bool,
    told: Notify,
    outlook: Mutex<Outlook>,
}

struct Outlook {
    /// When it means to look again at the latest.
    promised: Moment,
    /// It broke its promise and lost the role; cleared by its next sign of life.
    absent: bool,
    /// Its acquire that is under way, and since when.
    acquire: Option<Arc<Hold>>,
    asked: Moment,
    /// What ends its wait.
    failure: Option<Error>,
}

impl Queue {
    pub(super) fn push(&mut self, ticket: Arc<Ticket>) {
        if self.contender.is_none() {
            self.contender = Some(ticket.id);
        }
        self.waiting.push_back(ticket);
    }

    pub(super) fn leave(&mut self, ticket: &Ticket) {
        match self.waiting.front() {
            // The usual one to leave.
            Some(first) if first.id == ticket.id => drop(self.waiting.pop_front()),
            _ => self.waiting.retain(|other| other.id != ticket.id),
        }
        if self.contender == Some(ticket.id) {
            self.pass_on();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn is_contender(&self, ticket: &Ticket) -> bool {
        ticket.outlook.lock().absent = false;
        self.contender == Some(ticket.id)
    }

    pub(super) fn wake_contender(&self) {
        if let Some(ticket) = self.contender() {
            ticket.told.notify_one();
        }
    }

    pub(super) fn wake_owner(&self, owner: Owner) {
        for ticket in self.waiting.iter().filter(|ticket| ticket.owner == owner) {
            ticket.told.notify_one();
        }
    }

    pub(super) fn note_outage(&mut self, outage: Option<&Error>) {
        let refused = matches!(self.outage, Some(Error::Refused { .. }));
        // What the server said tells more than that it could not be asked again in time.
        if !(refused && matches!(outage, Some(Error::Unavailable { .. }))) {
            self.outage = outage.cloned();
        }
        if let Some(error) = outage {
            for ticket in self.waiting.iter().filter(|ticket| ticket.patient) {
                ticket.fail(error);
            }
        }
    }

    pub(super) fn outage(&self) -> Option<Error> {
        self.outage.clone()
    }

    pub(super) fn fail(&self, error: &Error) {
        for ticket in &self.waiting {
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
        let acquire = {
            let mut outlook = contender.outlook.lock();
            if outlook.promised > overdue {
                return None;
            }
            outlook.absent = true;
            outlook.acquire.take()
        };
        self.contender = Some(ticket.id);
        Some(acquire)
    }

    pub(super) fn unanswered_for(&self, now: Moment) -> Option<Duration> {
        let outlook = self.contender()?.outlook.lock();
        outlook.acquire.as_ref()?;
        Some(now.since(outlook.asked))
    }

    pub(super) fn is_listening(&self) -> bool {
        self.subscription
            .as_ref()
            .is_some_and(Subscription::is_listening)
    }

    pub(super) fn subscription(&mut self, make: impl FnOnce() -> Subscription) -> Subscription {
        self.subscription.get_or_insert_with(make).clone()
    }

    fn contender(&self) -> Option<&Arc<Ticket>> {
        let id = self.contender?;
        self.waiting.iter().find(|ticket| ticket.id == id)
    }

    /// Gives the role, and the wake-up that its last bearer may have had, to the first who is there.
    fn pass_on(&mut self) {
        let present = |ticket: &&Arc<Ticket>| !ticket.outlook.lock().absent;
        let next = self
            .waiting
            .iter()
            .find(present)
            .or_else(|| self.waiting.front());
        self.contender = next.map(|ticket| ticket.id);
        if let Some(ticket) = next
            && !mutant!("swallowed_wake")
        {
            ticket.told.notify_one();
        }
    }
}

impl Ticket {
    pub(super) fn new(id: u64, owner: Owner, patient: bool, now: Moment) -> Self {
        Self {
            id,
            owner,
            patient,
            told: Notify::new(),
            outlook: Mutex::new(Outlook {
                promised: now,
                absent: false,
                acquire: None,
                asked: now,
                failure: None,
            }),
        }
    }

    pub(super) fn promise(&self, at: Moment) {
        self.outlook.lock().promised = at;
    }

    pub(super) fn attempting(&self, hold: Option<Arc<Hold>>, now: Moment, until: Moment) {
        let mut outlook = self.outlook.lock();
        outlook.asked = now;
        outlook.promised = until;
        outlook.acquire = hold;
    }

    pub(super) async fn told(&self) {
        self.told.notified().await;
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.outlook.lock().failure.take()
    }

    fn fail(&self, error: &Error) {
        self.outlook.lock().failure = Some(error.clone());
        self.told.notify_one();
    }
}
