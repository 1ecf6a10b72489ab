//! The wait for a RedLock: one round after another, each when enough instances may be free. Only what
//! differs from other waits is here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lockdog_quorum::{RetryTimer, Rules};

use super::acquire::{Acquired, RedLockCall, RoundOutcome};
use super::lock_instance::LockInstance;
use super::quorum_hold::QuorumHold;
use crate::clock::{Clock, Moment};
use crate::contend::{
    Attempted, Contender, FailedAttempt, LocalState, OwnerHas, QueuePlace, TimedOut, contend,
};
use crate::error::{Error, InstanceState, Result};
use crate::hold::Hold;
use crate::observe::LockRef;
use crate::owner::Owner;
use crate::session::Core;
use crate::wait::{Backoff, Listener, WaitRequest, WaiterGuard, WaiterKind};

/// A caller that waits for a RedLock. Of all its callers in this process only one asks the instances:
/// the contender in the queue of this lock. The instances' own queues are for callers that want a
/// single one of them; the two kinds of queue are independent.
pub(super) struct RedLockContender<'a> {
    pub(super) caller: &'a RedLockCall<'a>,
    /// The instance in whose client the queue is.
    pub(super) home: &'a LockInstance,
    /// The listener for each instance. Set once the lock was found busy.
    pub(super) listeners: Vec<(usize, Listener)>,
    pub(super) retry_timer: RetryTimer,
    /// It has subscribed to the instances' channels.
    pub(super) listens: bool,
    pub(super) rounds: u32,
    /// Until when the answers of an instance do not count.
    pub(super) quarantined: Vec<Moment>,
    /// The latest start of the next round. Until then it only waits for instances.
    pub(super) next_round: Option<Moment>,
    /// Since when too few instances answer.
    pub(super) outage: Option<Moment>,
}

impl RedLockCall<'_> {
    /// Waits until a quorum is acquired or the deadline has come.
    pub(super) async fn wait(&self) -> Result<Option<Acquired>> {
        let members = self.lock.instances().len();
        let need = Rules::need(members, self.lock.masked);
        let contender = RedLockContender {
            caller: self,
            home: self.lock.home_instance(),
            listeners: Vec::new(),
            retry_timer: RetryTimer::new(members, need),
            listens: false,
            rounds: 0,
            quarantined: vec![Moment(0); members],
            next_round: None,
            outage: None,
        };
        let now = self.lock.clock().now();
        contend(contender, Some(ONLY), now).await
    }
}

impl Contender for RedLockContender<'_> {
    type Won = Acquired;

    fn ensure_open(&self) -> Result<()> {
        self.caller.lock.ensure_open()
    }

    /// The client with the lock's clock, regardless of the client with the queue: all clients of a
    /// RedLock share one clock.
    fn core(&self, _at: Option<usize>) -> &Arc<Core> {
        self.caller.lock.home_instance().core()
    }

    fn deadline(&self, _at: Option<usize>) -> Option<Moment> {
        self.caller.deadline
    }

    /// Its queue has no channel and no retreat: it listens to the instances' channels itself.
    fn backoff(&self, _at: usize) -> Option<Backoff> {
        self.home.backoff()
    }

    /// Takes the last place in the queue, at the first client that is still open.
    fn enter(&mut self, _at: usize, _now: Moment) -> Result<WaiterGuard> {
        let lock = self.caller.lock;
        let options = WaitRequest {
            owner: self.caller.owner,
            terms: None,
            deadline: self.caller.deadline,
            kind: WaiterKind::Sole,
        };
        for instance in lock.instances() {
            let core = instance.core();
            match core.waiters.enter(&lock.queue, options, core.clock.now()) {
                Err(Error::Closed) => {}
                entered => {
                    self.home = instance;
                    return entered;
                }
            }
        }
        Err(Error::Closed)
    }

    async fn own(
        &mut self,
        place: Option<&QueuePlace>,
        now: &mut Moment,
    ) -> Result<OwnerHas<Acquired>> {
        if let Some(guard) = self.caller.reenter().await? {
            if let Some(place) = place {
                self.leave_with(&place.waiter);
            }
            return Ok(OwnerHas::Has(guard));
        }
        *now = self.clock().now();
        Ok(OwnerHas::Nothing)
    }

    fn shown(&self) -> Option<LockRef<'_>> {
        Some(self.caller.lock.shown(self.caller.owner))
    }

    fn owner(&self) -> Option<Owner> {
        Some(self.caller.owner)
    }

    fn local_holder(&self) -> Option<Arc<Hold>> {
        let RedLockCall { lock, owner, .. } = *self.caller;
        self.kept_until(self.clock().now())?;
        let mut instances = lock.instances().iter();
        instances.find_map(|instance| instance.core().holds.of_another(instance.key(), owner))
    }

    /// While this process keeps a quorum of it, its waiters send nothing.
    fn kept(&mut self, now: Moment, _has_waited: bool) -> LocalState {
        let Some(kept) = self.kept_until(now) else {
            return LocalState::Nothing;
        };
        // The lock may have been released before the listeners were added, so check again.
        if self.add_listeners() {
            return LocalState::Again;
        }
        LocalState::For {
            at: ONLY,
            left: kept.since(now),
        }
    }

    async fn attempt(
        &mut self,
        place: Option<&QueuePlace>,
        now: Moment,
    ) -> Result<Attempted<Acquired>> {
        let Some(QueuePlace { waiter, .. }) = place else {
            return Ok(Attempted::Unasked);
        };
        if let Some(cap) = self.next_round {
            let next = self.retry_timer.next_round(cap);
            if now < next {
                return Ok(Attempted::NotYet(next));
            }
            self.next_round = None;
        }
        waiter.promise(now + LONGEST_ROUND);
        waiter.note_round(Some(now));
        let hold = match self.caller.round().await? {
            RoundOutcome::Won(acquired) => return Ok(Attempted::Won(acquired)),
            RoundOutcome::Lost(hold) => hold,
            RoundOutcome::Elsewhere => return Ok(Attempted::Unasked),
        };
        waiter.note_round(None);
        self.note_lost_round(&hold);
        let failed = self.failure(&hold);
        if failed.is_none() {
            // Noted before the call subscribes, because that takes time.
            self.outage = None;
            waiter.note_outage(None);
        }
        // In an outage the call does not subscribe. Its listeners are notified when an instance answers
        // again.
        if self.listen(waiter).await {
            return Ok(Attempted::Taken { again: None });
        }
        let now = self.clock().now();
        let cap = now + self.pause();
        self.next_round = Some(cap);
        let next = self.retry_timer.next_round(cap);
        Ok(match failed {
            Some(failed) => Attempted::Failed(FailedAttempt {
                again: (!failed.had_full_timeout).then_some(next),
                ..failed
            }),
            None => Attempted::Taken {
                again: Some(next).filter(|next| *next > now),
            },
        })
    }

    /// It got the lock, so enough instances answer, and an earlier outage is over. It does not call
    /// [`WaiterGuard::has_lock`], so the next waiter is woken: that one must listen for the release.
    fn leave_with(&self, waiter: &WaiterGuard) {
        waiter.note_outage(None);
    }

    async fn park(&mut self, place: &QueuePlace, until: Moment) -> Result<()> {
        let (received, ended) = {
            let mut listeners: FuturesUnordered<_> = self
                .listeners
                .iter()
                .map(|(member, listener)| async move { (*member, listener.wait(until).await) })
                .collect();
            tokio::select! {
                biased;
                ended = place.waiter.wait(until) => (None, ended),
                Some((member, ended)) = listeners.next() => (Some(member), ended),
            }
        };
        let now = self.clock().now();
        match received {
            Some(member) if ended.is_err() => {
                // Its client was shut down: continue with the others.
                self.listeners.retain(|(other, _)| *other != member);
                self.retry_timer.out_of_reach(member);
                return Ok(());
            }
            // An instance may be free.
            Some(member) if now < until => {
                if now >= self.quarantined[member] {
                    self.retry_timer.free(member);
                }
            }
            // The time is over, or the state must be checked from the beginning.
            _ => self.next_round = None,
        }
        ended
    }

    fn give_up(&self, end: TimedOut<'_>) -> Result<()> {
        if let Some(outage) = end.place.and_then(|place| place.waiter.outage()) {
            return Err(outage);
        }
        let waited = end.now.since(self.caller.began);
        // Another call asks the instances for the whole queue, and they do not answer it.
        if self.kept_until(end.now).is_none() && end.is_round_silent(waited) {
            return Err(Error::timeout(waited));
        }
        Ok(())
    }
}

impl RedLockContender<'_> {
    pub(super) fn clock(&self) -> &Clock {
        self.caller.lock.clock()
    }

    /// The longest wait for the next round. If some instances send no messages, the one with the shortest pause
    /// between attempts decides, independent of the client with the queue.
    fn pause(&mut self) -> Duration {
        let instances = self.caller.lock.instances().iter();
        let pauses = instances.filter_map(|instance| Some(instance.backoff()?.pause(self.rounds)));
        let shortest = pauses.min();
        self.rounds = self.rounds.saturating_add(1);
        let core = self.home.core();
        let cap = core.settings.poll_cap;
        match shortest {
            None => core.clock.jitter_down(cap),
            Some(pause) => core.clock.jitter_up(pause.min(cap)),
        }
    }

    /// Until when other owners of this process hold too many instances for another quorum.
    fn kept_until(&self, now: Moment) -> Option<Moment> {
        let RedLockCall { lock, owner, .. } = *self.caller;
        let free_at =
            |instance: &LockInstance| instance.core().holds.kept_from(instance.key(), owner);
        let mut kept: Vec<Option<Moment>> = lock.instances().iter().map(free_at).collect();
        kept.sort_unstable();
        let need = Rules::need(kept.len(), lock.masked);
        kept[need - 1].filter(|until| *until > now)
    }

    /// Learns from a lost round when the next one may succeed.
    fn note_lost_round(&mut self, hold: &QuorumHold) {
        let clock = &hold.clock;
        let now = clock.now();
        let mut acquired = false;
        for (member, instance) in hold
            .see(|state, _| hold.members(state))
            .into_iter()
            .enumerate()
        {
            match instance.state {
                InstanceState::Acquired => {
                    acquired = true;
                    self.retry_timer.free(member);
                }
                InstanceState::Unanswered => self.retry_timer.free(member),
                InstanceState::HeldByAnother { ttl } => {
                    // A TTL of n ms is certainly over after n + 1 ms.
                    let until = ttl.map(|ttl| now + ttl + Duration::from_millis(1));
                    self.retry_timer.busy(member, until);
                }
                InstanceState::Quarantined { left } => {
                    self.quarantined[member] = now + left;
                    self.retry_timer.busy(member, Some(now + left));
                }
                _ => self.retry_timer.out_of_reach(member),
            }
        }
        if acquired {
            // The round was lost to competing callers, or for a reason that may also apply to the next
            // round.
            let began = hold.see(|state, _| state.quorum.began());
            self.retry_timer
                .collided(now.since(began), clock.part(), now);
        } else {
            self.retry_timer.was_held();
        }
    }

    /// The failure of a round in which too few instances could be acquired; `None` if other owners hold
    /// them.
    fn failure(&mut self, hold: &QuorumHold) -> Option<FailedAttempt> {
        let error = self.caller.no_quorum(hold)?;
        let now = self.clock().now();
        let began = hold.see(|state, _| state.quorum.began());
        let is_over = self.caller.deadline.is_some_and(|end| now >= end);
        let since = *self.outage.get_or_insert(now);
        // A round is shorter than a command timeout, so a single round does not end a wait without a
        // deadline.
        let is_long = now.since(since) >= self.home.core().server.command_timeout();
        Some(FailedAttempt {
            named: error.clone(),
            error,
            had_full_timeout: is_long && self.caller.deadline.is_none(),
            cut_off_after: is_over.then(|| now.since(began)),
            is_elsewhere: false,
            again: None,
        })
    }
}

/// A RedLock has one queue.
const ONLY: usize = 0;

/// The longest time of a round and what follows: two phases of half a second, with a fencing token.
const LONGEST_ROUND: Duration = Duration::from_secs(1);
