//! What a client's thread does for locks of many instances: it looks after them in time, extends the
//! leases of their parts when it is asked to, and does whatever else is to be asked of its own server.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::mem::take;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::Core;
use crate::clock::Moment;
use crate::hold::Hold;
use crate::owner::Owner;
use crate::script::RenewReply;
use crate::server::{Addressee, Failure};

/// Something that has to be looked at in time.
pub(crate) trait Timed: Send + Sync {
    /// It is time. False if there is nothing to do about it.
    fn look(self: Arc<Self>) -> bool;

    /// The client where it had this turn looks after it no more.
    fn leave(self: Arc<Self>, turn: TimerKey);
}

/// What is to be looked at, and what is to be extended.
#[derive(Default)]
pub(crate) struct Upkeep {
    list: Mutex<List>,
    changed: Notify,
}

#[derive(Default)]
struct List {
    kept: BTreeMap<TimerKey, Arc<dyn Timed>>,
    extensions: Vec<ExtendRequest>,
    work: Vec<BackgroundTask>,
    /// What owners hold, or are acquiring, of locks of many instances, by the lock's id.
    known: HashMap<(Owner, Arc<str>), Weak<dyn Any + Send + Sync>>,
    next_id: u64,
    /// When the thread means to look next, so that only an earlier moment has to wake it.
    looks_at: Option<Moment>,
    closed: bool,
}

/// Something that a client's thread is to do.
pub(crate) type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where something stands in the list.
pub(crate) type TimerKey = (Moment, u64);

/// A lease that is to be extended.
pub(crate) struct ExtendRequest {
    pub(crate) hold: Arc<Hold>,
    pub(crate) lease: Duration,
    /// The question takes a third of this at most.
    pub(crate) patience: Duration,
    pub(crate) addressee: Addressee,
    /// Dropped, it counts as unanswered.
    pub(crate) answer: oneshot::Sender<Result<RenewReply, Failure>>,
}

impl Upkeep {
    /// Has something looked at from then on, instead of where it stood. False if this client's thread
    /// has ended.
    pub(crate) fn set(
        &self,
        kept: Arc<dyn Timed>,
        turn: &mut Option<TimerKey>,
        at: Moment,
    ) -> bool {
        let mut list = self.list.lock();
        if list.closed {
            return false;
        }
        let id = match turn.take() {
            Some(old) => {
                list.kept.remove(&old);
                old.1
            }
            None => {
                list.next_id += 1;
                list.next_id
            }
        };
        *turn = Some((at, id));
        list.kept.insert((at, id), kept);
        let is_earlier = list.looks_at.is_none_or(|looks_at| at < looks_at);
        drop(list);
        if is_earlier {
            self.changed.notify_one();
        }
        true
    }

    /// Looks at it no more.
    pub(crate) fn remove(&self, turn: &mut Option<TimerKey>) {
        if let Some(turn) = turn.take() {
            self.list.lock().kept.remove(&turn);
        }
    }

    /// What this owner holds, or is acquiring, of the lock with this id.
    pub(crate) fn get(&self, owner: Owner, id: &Arc<str>) -> Option<Arc<dyn Any + Send + Sync>> {
        let list = self.list.lock();
        list.known.get(&(owner, id.clone()))?.upgrade()
    }

    /// From now on this owner holds this of it, or is acquiring it; unless something else is known of
    /// it already, which is the answer then.
    pub(crate) fn insert(
        &self,
        owner: Owner,
        id: &Arc<str>,
        hold: Weak<dyn Any + Send + Sync>,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        let mut list = self.list.lock();
        match list.known.entry((owner, id.clone())) {
            Entry::Occupied(mut known) => {
                let living = known.get().upgrade();
                if living.is_none() {
                    known.insert(hold);
                }
                living
            }
            Entry::Vacant(unknown) => {
                unknown.insert(hold);
                None
            }
        }
    }

    /// The owner does not hold this any more, or did not acquire it.
    pub(crate) fn forget(&self, owner: Owner, id: &Arc<str>, hold: &Arc<dyn Any + Send + Sync>) {
        let mut list = self.list.lock();
        let key = (owner, id.clone());
        let found = list.known.get(&key).and_then(Weak::upgrade);
        if found.is_none_or(|found| Arc::ptr_eq(&found, hold)) {
            list.known.remove(&key);
        }
    }

    /// What is due now. It stays in the list, a little later, until it says itself when it is due next.
    pub(crate) fn due(&self, now: Moment) -> Vec<Arc<dyn Timed>> {
        let list = self.list.lock();
        let due = list.kept.range(..=(now, u64::MAX));
        due.map(|(_, kept)| kept.clone()).collect()
    }

    /// When something is due next; from now on, what is due before wakes the thread.
    pub(crate) fn next(&self) -> Moment {
        let mut list = self.list.lock();
        let next = list.kept.first_key_value();
        let next = next.map_or(Moment::NEVER, |((at, _), _)| *at);
        list.looks_at = Some(next);
        next
    }

    /// What is to be extended.
    pub(crate) fn extensions(&self) -> Vec<ExtendRequest> {
        take(&mut self.list.lock().extensions)
    }

    /// Has the thread do this; given back if it has ended.
    pub(crate) fn run(&self, work: BackgroundTask) -> Result<(), BackgroundTask> {
        let mut list = self.list.lock();
        if list.closed {
            return Err(work);
        }
        list.work.push(work);
        drop(list);
        self.changed.notify_one();
        Ok(())
    }

    /// What the thread is to do.
    pub(crate) fn work(&self) -> Vec<BackgroundTask> {
        take(&mut self.list.lock().work)
    }

    /// Ends when there may be something to do before the moment that [`Upkeep::next`] told.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The thread ends: everything is somebody else's to look after.
    pub(crate) fn close(&self) {
        let (kept, extensions, work) = {
            let mut list = self.list.lock();
            list.closed = true;
            let List {
                kept,
                extensions,
                work,
                ..
            } = &mut *list;
            (take(kept), take(extensions), take(work))
        };
        // Told so, not under the list's lock.
        drop((extensions, work));
        for (turn, kept) in kept {
            kept.leave(turn);
        }
    }
}

impl Core {
    /// Has the client's thread extend the lease of one hold, and say whom it asks for that. The question
    /// takes a third of `patience` at most.
    pub(crate) async fn extend(
        &self,
        hold: &Arc<Hold>,
        lease: Duration,
        patience: Duration,
        addressee: &Addressee,
    ) -> Result<RenewReply, Failure> {
        let (answer, answered) = oneshot::channel();
        {
            let mut list = self.upkeep.list.lock();
            if !list.closed {
                let hold = hold.clone();
                list.extensions.push(ExtendRequest {
                    hold,
                    lease,
                    patience,
                    addressee: addressee.clone(),
                    answer,
                });
            }
        }
        self.upkeep.changed.notify_one();
        answered
            .await
            .unwrap_or_else(|_| Err(Failure::Unsent("the client ends".into())))
    }
}
