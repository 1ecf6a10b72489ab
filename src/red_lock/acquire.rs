//! One call to acquire a RedLock: a re-entry, one round, or a wait of several rounds.

use std::sync::Arc;
use std::time::Duration;

use lockdog_quorum::{Event, MemberOutcome, Phase, Rules};
use tracing::Instrument;

use super::RedLockConfig;
use super::claim::QuorumClaim;
use super::dispatch::InFlight;
use super::query::Completion;
use super::quorum_hold::QuorumHold;
use crate::clock::Moment;
use crate::error::{Error, InstanceState, NoQuorum, Result};
use crate::guard::Guard;
use crate::hold::Terms;
use crate::lock_request::{
    Acquire, AcquireOptions, Boxed, FIRST_ATTEMPT, WaitLimit, WatchedCall, acquire_span, record,
    unlocker,
};
use crate::observe::How;
use crate::owner::Owner;
use crate::session::Unlocked;

impl Acquire for RedLockConfig {
    fn name(&self) -> &str {
        &self.name
    }

    fn lock(self: Arc<Self>, options: AcquireOptions) -> Boxed<Guard> {
        Box::pin(async move {
            // A wait without a limit ends with a guard or an error.
            let guard = self.acquired(options, WaitLimit::ForEver).await?;
            guard.ok_or(Error::Closed)
        })
    }

    fn acquire(self: Arc<Self>, options: AcquireOptions, wait: WaitLimit) -> Boxed<Option<Guard>> {
        Box::pin(async move { self.acquired(options, wait).await })
    }

    fn unlock(self: Arc<Self>, owner: Option<Owner>) -> Boxed<Unlocked> {
        Box::pin(async move {
            let owner = unlocker(owner)?;
            self.end_forgotten(owner).await
        })
    }
}

impl RedLockConfig {
    async fn acquired(
        self: &Arc<Self>,
        mut options: AcquireOptions,
        wait: WaitLimit,
    ) -> Result<Option<Guard>> {
        let owner = options.owner()?;
        let terms = self.terms(&options)?;
        let core = self.home_instance().core();
        let watched = WatchedCall::begin(core, || self.shown(owner));
        let outcome = self.acquired_by(owner, &terms, wait).await;
        watched.end(&outcome, |(_, how)| *how);
        outcome.map(|acquired| acquired.map(|(guard, _)| guard))
    }

    async fn acquired_by(
        self: &Arc<Self>,
        owner: Owner,
        terms: &Terms,
        wait: WaitLimit,
    ) -> Result<Option<Acquired>> {
        let began = self.clock().now();
        let deadline = match wait {
            WaitLimit::ForEver | WaitLimit::Not => None,
            WaitLimit::AtMost(wait) => Some(began + wait),
        };
        let caller = RedLockCall {
            lock: self,
            owner,
            terms,
            began,
            deadline,
            ends: deadline.map(|deadline| deadline.max(began + FIRST_ATTEMPT)),
        };
        // The call uses several servers, so the span names none.
        let span = acquire_span!("lockdog::quorum", lock = &*self.name, %owner);
        let outcome = caller.call(wait).instrument(span.clone()).await;
        let waited = self.clock().now().since(began);
        record(&span, &outcome, waited);
        // The time in the last error covers only a part of the call.
        outcome.map_err(|error| error.after(waited))
    }
}

/// One call to acquire.
pub(super) struct RedLockCall<'a> {
    pub(super) lock: &'a Arc<RedLockConfig>,
    pub(super) owner: Owner,
    pub(super) terms: &'a Terms,
    pub(super) began: Moment,
    /// When the wait has to end.
    pub(super) deadline: Option<Moment>,
    /// When the last round has to end.
    ends: Option<Moment>,
}

/// What a call acquired, and in which way.
pub(super) type Acquired = (Guard, How);

/// The outcome of one round.
pub(super) enum RoundOutcome {
    Won(Acquired),
    /// The hold knows the outcome of each instance.
    Lost(Arc<QuorumHold>),
    /// Another call of this owner made the round, until this call's time was over.
    Elsewhere,
}

impl RedLockCall<'_> {
    async fn call(&self, wait: WaitLimit) -> Result<Option<Acquired>> {
        if let Some(acquired) = self.reenter().await? {
            return Ok(Some(acquired));
        }
        self.lock.ensure_open()?;
        match wait {
            WaitLimit::Not => match self.round().await? {
                RoundOutcome::Won(acquired) => Ok(Some(acquired)),
                RoundOutcome::Lost(hold) => match self.reenter().await? {
                    // Another branch of this owner acquired it meanwhile.
                    Some(acquired) => Ok(Some(acquired)),
                    None => self.no_quorum(&hold).map_or(Ok(None), Err),
                },
                RoundOutcome::Elsewhere => Ok(None),
            },
            WaitLimit::ForEver | WaitLimit::AtMost(_) => self.wait().await,
        }
    }

    /// Re-enters what this owner holds; `None` if it holds nothing.
    pub(super) async fn reenter(&self) -> Result<Option<Acquired>> {
        let Some(hold) = self.lock.registered(self.owner) else {
            return Ok(None);
        };
        if hold.is_over()? {
            return Ok(None);
        }
        let Terms { lease, watched, .. } = *self.terms;
        let ends = self.ends.unwrap_or(Moment::NEVER);
        let lengthened = hold.lengthen(lease, watched, ends).await;
        // Another call of this owner may have ended the last guard meanwhile.
        if lengthened.is_err() && hold.is_over()? {
            return Ok(None);
        }
        let lengthening = lengthened?;
        let counted = hold.claim_again(self.terms);
        // Kept up to here, so that the watchdog renews the hold until the new claim counts.
        drop(lengthening);
        Ok(counted.then(|| {
            let claim = QuorumClaim::new(hold, watched);
            (Guard::several(Arc::new(claim)), How::Reentered)
        }))
    }

    /// One attempt on all instances. Only one call of an owner makes a round at a time; the other calls
    /// re-enter what it wins.
    pub(super) async fn round(&self) -> Result<RoundOutcome> {
        let (now, (hold, requests)) = loop {
            let now = self.lock.clock().now();
            let begun = QuorumHold::begin(self.lock, self.owner, self.terms, now);
            let Some(other) = begun.0.register() else {
                break (now, begun);
            };
            // Nothing was sent for the new hold yet, so nothing has to be undone.
            drop(begun);
            if !other.decided(self.ends.unwrap_or(Moment::NEVER)).await {
                return Ok(RoundOutcome::Elsewhere);
            }
            if let Some(acquired) = self.reenter().await? {
                return Ok(RoundOutcome::Won(acquired));
            }
        };
        let attempt = QuorumAttempt { hold: &hold };
        // From here on the background ends the attempt if this call is not polled any more.
        hold.follow(&mut hold.state());
        let mut requests = InFlight::new(&hold, requests);
        let time_limit = self.ends;
        loop {
            let (phase, wake_at) = hold.see(|state, _| {
                if let Some(ends) = time_limit {
                    state.quorum.end_round_by(ends);
                }
                (state.quorum.phase(), state.quorum.wake_at())
            });
            if !matches!(phase, Phase::Acquiring | Phase::Marking) {
                break;
            }
            let more = tokio::select! {
                biased;
                Some(done) = requests.next() => match done {
                    Completion::Answered { member, round, answer } => hold.process_answer(member, round, answer),
                    Completion::GivenBack(..) => continue,
                },
                () = hold.clock.sleep_until(wake_at) => hold.step(Event::Tick),
            };
            requests.give(more);
        }
        // Only a round with its full time shows that an instance is silent.
        if time_limit.is_none_or(|ends| ends >= now + Rules::answer_limit(self.terms.lease)) {
            self.suspect_late(&hold);
        }
        // Releases are sent before any later command of this caller.
        requests.send().await;
        requests.finish_detached();
        let won = hold.claim_first(self.terms);
        if won {
            std::mem::forget(attempt);
            // Before the user's code runs: if the log subscriber panics, the drop of the guard releases the lock.
            let claim = QuorumClaim::new(hold.clone(), self.terms.watched);
            let guard = Guard::several(Arc::new(claim));
            hold.notify_round(true);
            hold.log_round_won();
            for instance in self.lock.instances() {
                let waiters = &instance.core().waiters;
                waiters.wake_owner(instance.key(), self.owner);
                waiters.wake_owner(&self.lock.queue, self.owner);
            }
            return Ok(RoundOutcome::Won((guard, How::First)));
        }
        drop(attempt);
        hold.notify_round(false);
        hold.log_round_lost();
        Ok(RoundOutcome::Lost(hold))
    }

    /// Suspects the instances that were silent for the whole round, so that the client sends them nothing
    /// until they answer a probe. It does so here because the next attempt may begin before their own calls
    /// time out. A caller that was not polled in time suspects none: the answers may have arrived in time.
    fn suspect_late(&self, hold: &QuorumHold) {
        if hold.see(|state, now| now > state.quorum.round_ends() + OVERDUE) {
            return;
        }
        let waited = Rules::answer_limit(self.terms.lease);
        for (member, instance) in self.lock.instances().iter().enumerate() {
            if hold.see(|state, _| state.quorum.outcome(member)) == MemberOutcome::Late {
                instance.suspect_late(&hold.addressees[member], waited);
            }
        }
    }

    /// The error of a lost round if too few instances could be acquired; `None` if other owners hold
    /// them.
    pub(super) fn no_quorum(&self, hold: &QuorumHold) -> Option<Error> {
        let instances = hold.instances();
        let need = hold.see(|state, _| state.quorum.rules().need);
        let (mut available, mut is_busy) = (0, false);
        for instance in &instances {
            match instance.state {
                InstanceState::Acquired | InstanceState::Unanswered => available += 1,
                InstanceState::HeldByAnother { .. } => {
                    available += 1;
                    is_busy = true;
                }
                _ => {}
            }
        }
        (available < need || !is_busy).then(|| NoQuorum::new(instances, need).into())
    }
}

/// An acquire in flight. Its drop undoes it.
struct QuorumAttempt<'a> {
    hold: &'a Arc<QuorumHold>,
}

impl Drop for QuorumAttempt<'_> {
    fn drop(&mut self) {
        self.hold.abandon();
    }
}

impl QuorumHold {
    /// Whether it has ended or is lost, and no guard is left that reports a loss: then the owner may acquire
    /// again. An error if it is lost and such a guard is left.
    fn is_over(self: &Arc<Self>) -> Result<bool> {
        let Some(lost) = self.loss() else {
            return Ok(false);
        };
        let may_acquire =
            self.see(|state, _| state.quorum.phase() == Phase::Ended || state.is_only_forgotten());
        if !may_acquire {
            return Err(Error::Lost(lost));
        }
        self.unregister();
        Ok(true)
    }

    /// Waits until this attempt of another call is decided; false if it is not decided by `until`. If
    /// the attempt is overdue, its caller does not poll its future any more, and this call ends it.
    async fn decided(self: &Arc<Self>, until: Moment) -> bool {
        loop {
            let changed = self.changed.notified();
            let (is_undecided, ends) =
                self.see(|state, _| (state.is_undecided(), state.quorum.round_ends()));
            if !is_undecided {
                return true;
            }
            let is_left = ends + OVERDUE;
            tokio::select! {
                biased;
                () = changed => {}
                () = self.clock.sleep_until(is_left.min(until)) => {
                    let now = self.clock.now();
                    if now >= is_left {
                        self.abandon();
                    } else if now >= until {
                        return false;
                    }
                }
            }
        }
    }

    /// Undoes an acquire that has no claim yet. Dropped requests are released in the background.
    pub(super) fn abandon(self: &Arc<Self>) {
        let mut state = self.state();
        if state.count > 0 {
            // Its call has accepted the grant meanwhile.
            return;
        }
        let given_back = self.step_locked(&mut state, Event::Unlock);
        drop(state);
        self.unregister();
        drop(given_back);
    }
}

/// An attempt that is not over this long after its end is not polled any more.
const OVERDUE: Duration = Duration::from_millis(100);
