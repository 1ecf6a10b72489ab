//! What a client's background thread does for composite locks: it runs their timers, extends the leases
//! of their parts on request, and runs other tasks that need its server.

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

/// An object with a timer.
pub(crate) trait Timed: Send + Sync {
    /// Called when the timer is due. Returns false if there is nothing to do.
    fn look(self: Arc<Self>) -> bool;

    /// Called when the client with this timer stops running it.
    fn leave(self: Arc<Self>, turn: TimerKey);
}

/// Timers, tasks and requests for the background thread, and the registry of what owners hold.
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
    /// What owners hold or are acquiring of composite locks, by the lock's id.
    known: HashMap<(Owner, Arc<str>), Weak<dyn Any + Send + Sync>>,
    next_id: u64,
    /// When the thread will check next. Only an earlier moment has to wake it.
    looks_at: Option<Moment>,
    closed: bool,
}

/// A task for a client's background thread.
pub(crate) type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A timer's position in the list.
pub(crate) type TimerKey = (Moment, u64);

/// A request to extend a lease.
pub(crate) struct ExtendRequest {
    pub(crate) hold: Arc<Hold>,
    pub(crate) lease: Duration,
    /// Sending it and waiting for the answer takes at most a third of this.
    pub(crate) timeout: Duration,
    pub(crate) addressee: Addressee,
    /// If dropped, the request counts as unanswered.
    pub(crate) answer: oneshot::Sender<Result<RenewReply, Failure>>,
}

impl Upkeep {
    /// Sets the timer to `at`, in place of its previous moment. Returns false if this client's thread
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

    /// Removes the timer.
    pub(crate) fn remove(&self, turn: &mut Option<TimerKey>) {
        if let Some(turn) = turn.take() {
            self.list.lock().kept.remove(&turn);
        }
    }

    /// What this owner holds or is acquiring of the lock with this id.
    pub(crate) fn get(&self, owner: Owner, id: &Arc<str>) -> Option<Arc<dyn Any + Send + Sync>> {
        let list = self.list.lock();
        list.known.get(&(owner, id.clone()))?.upgrade()
    }

    /// Registers what this owner holds or is acquiring of the lock. If something is registered already,
    /// it stays, and is returned.
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

    /// Unregisters what the owner no longer holds, or did not acquire.
    pub(crate) fn forget(&self, owner: Owner, id: &Arc<str>, hold: &Arc<dyn Any + Send + Sync>) {
        let mut list = self.list.lock();
        let key = (owner, id.clone());
        let found = list.known.get(&key).and_then(Weak::upgrade);
        if found.is_none_or(|found| Arc::ptr_eq(&found, hold)) {
            list.known.remove(&key);
        }
    }

    /// The timers that are due now. Each stays in the list until its object sets a new moment.
    pub(crate) fn due(&self, now: Moment) -> Vec<Arc<dyn Timed>> {
        let list = self.list.lock();
        let due = list.kept.range(..=(now, u64::MAX));
        due.map(|(_, kept)| kept.clone()).collect()
    }

    /// The moment of the next timer. From now on, an earlier one wakes the thread.
    pub(crate) fn next(&self) -> Moment {
        let mut list = self.list.lock();
        let next = list.kept.first_key_value();
        let next = next.map_or(Moment::NEVER, |((at, _), _)| *at);
        list.looks_at = Some(next);
        next
    }

    /// Takes the pending requests.
    pub(crate) fn extensions(&self) -> Vec<ExtendRequest> {
        take(&mut self.list.lock().extensions)
    }

    /// Runs a task on the thread. Returns the task if the thread has ended.
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

    /// Takes the pending tasks.
    pub(crate) fn work(&self) -> Vec<BackgroundTask> {
        take(&mut self.list.lock().work)
    }

    /// Completes when something may be due before the moment that [`Upkeep::next`] returned.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Called when the thread ends: other threads have to run the timers.
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
        // Dropping and notifying run other code, so the list is not locked.
        drop((extensions, work));
        for (turn, kept) in kept {
            kept.leave(turn);
        }
    }
}

impl Core {
    /// Asks the client's thread to extend the lease of one hold. `addressee` receives which server is
    /// asked. The query takes at most a third of `timeout`.
    pub(crate) async fn extend(
        &self,
        hold: &Arc<Hold>,
        lease: Duration,
        timeout: Duration,
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
                    timeout,
                    addressee: addressee.clone(),
                    answer,
                });
            }
        }
        self.upkeep.changed.notify_one();
        answered
            .await
            .unwrap_or_else(|_| Err(Failure::Unsent("the client is shutting down".into())))
    }
}
