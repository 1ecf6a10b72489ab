//! The wait for permits: only what differs from other waits.

use std::sync::Arc;

use super::PermitCall;
use crate::clock::Moment;
use crate::contend::{
    Attempted, Contender, FailedAttempt, LocalState, OwnerHas, QueuePlace, TimedOut, contend,
};
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::observe::LockRef;
use crate::session::{BatchAttempt, Claim, Core, PendingAcquire};
use crate::wait::{Backoff, HandedOver, WaitRequest, WaiterGuard, WaiterKind};

/// A caller that waits for permits.
struct PermitContender<'a> {
    call: &'a PermitCall<'a>,
    /// How many permits were left after the call got its own.
    free: u64,
    /// A hold of the last attempt, if it was granted after its own deadline.
    too_late: Option<Arc<Hold>>,
}

impl PermitCall<'_> {
    /// Waits in the queue until the permits are acquired or the deadline has come.
    pub(super) async fn wait(&self) -> Result<Option<Vec<Claim>>> {
        let contender = PermitContender {
            call: self,
            free: 0,
            too_late: None,
        };
        contend(contender, Some(ONLY), self.began).await
    }
}

impl Contender for PermitContender<'_> {
    type Won = Vec<Claim>;

    /// An attempt is one command.
    const ASKS_BESIDE: bool = true;

    fn ensure_open(&self) -> Result<()> {
        self.call.core().ensure_open()
    }

    fn shown(&self) -> Option<LockRef<'_>> {
        Some(LockRef::of(self.call.key, self.call.owner))
    }

    fn core(&self, _at: Option<usize>) -> &Arc<Core> {
        self.call.core()
    }

    fn deadline(&self, _at: Option<usize>) -> Option<Moment> {
        self.call.deadline
    }

    fn backoff(&self, _at: usize) -> Option<Backoff> {
        self.call.core().backoff(self.call.key)
    }

    fn enter(&mut self, _at: usize, now: Moment) -> Result<WaiterGuard> {
        let PermitCall {
            key,
            owner,
            wanted,
            deadline,
            ..
        } = *self.call;
        let is_counted = key.kind().is_counted();
        let options = WaitRequest {
            owner,
            // Permits with leases are released, and not handed over.
            terms: is_counted.then_some(wanted.terms),
            deadline,
            kind: match is_counted {
                true => WaiterKind::Permits(wanted.permits),
                false => WaiterKind::Sole,
            },
        };
        self.call.core().waiters.enter(key, options, now)
    }

    async fn own(
        &mut self,
        _place: Option<&QueuePlace>,
        _now: &mut Moment,
    ) -> Result<OwnerHas<Self::Won>> {
        Ok(OwnerHas::Nothing)
    }

    /// The holds of this client do not show whether further permits are free.
    fn kept(&mut self, _now: Moment, _has_waited: bool) -> LocalState {
        LocalState::Nothing
    }

    async fn attempt(
        &mut self,
        place: Option<&QueuePlace>,
        now: Moment,
    ) -> Result<Attempted<Self::Won>> {
        let Some(QueuePlace { waiter, .. }) = place else {
            return Ok(Attempted::Unasked);
        };
        let acquires = self.call.acquires();
        let asked_for = acquires[0].hold().clone();
        if !waiter.attempting(&asked_for, now) {
            return Ok(Attempted::Unasked);
        }
        let until = self.call.until(now);
        // Replicas must acknowledge the acquire, so it may take longer than usual.
        if let Some(until) = self.call.core().answered_by(until) {
            waiter.promise(until);
        }
        let attempt = self.call.ask(acquires, now, until).await;
        waiter.attempted();
        Ok(match attempt {
            Ok(attempt) => self.evaluate(&asked_for, attempt),
            Err(error) => self.failed(error, now),
        })
    }

    async fn ask_beside(&mut self, now: Moment) -> Result<Attempted<Self::Won>> {
        let acquires = self.call.acquires();
        let asked_for = acquires[0].hold().clone();
        let until = self.call.until(now);
        Ok(match self.call.ask(acquires, now, until).await {
            Ok(attempt) => self.evaluate(&asked_for, attempt),
            Err(error) => self.failed(error, now),
        })
    }

    /// Accepts the permits that another call of this client handed over.
    async fn accept_hand_over(
        &mut self,
        place: &QueuePlace,
        handed: HandedOver,
    ) -> Result<Attempted<Self::Won>> {
        let core = self.call.core();
        let now = core.clock.now();
        let mut acquiring = PendingAcquire::handed(self.call.session, handed);
        let until = self.call.until(now);
        if let Some(until) = core.answered_by(until) {
            place.waiter.promise(until);
        }
        if let Err(error) = acquiring.acknowledged_by_hand(until).await {
            return Ok(self.failed(error, now));
        }
        let hold = acquiring.hold().clone();
        let attempt = BatchAttempt::of_hand_over(acquiring, self.call.wanted.terms.lease)?;
        Ok(self.evaluate(&hold, attempt))
    }

    fn decline(&self, handed: HandedOver) {
        drop(PendingAcquire::handed(self.call.session, handed));
    }

    fn leave_with(&self, waiter: &WaiterGuard) {
        waiter.has_lock();
        if self.free > 0 {
            waiter.shares();
        }
    }

    fn give_up(&self, end: TimedOut<'_>) -> Result<()> {
        let waited = end.now.since(self.call.began);
        if end.is_known_busy {
            return Ok(());
        }
        // The contender asks for the whole queue, so its failure is the error. This waiter's own attempts do
        // not say more.
        if let Some(outage) = end.place.and_then(|place| place.waiter.outage()) {
            return Err(outage);
        }
        let unanswered = end.silent(waited).or_else(|| self.too_late.clone());
        unanswered.map_or(Ok(()), |hold| Err(hold.unanswered(waited)))
    }
}

impl PermitContender<'_> {
    /// The result of an attempt that was answered.
    fn evaluate(&mut self, hold: &Arc<Hold>, attempt: BatchAttempt) -> Attempted<Vec<Claim>> {
        self.too_late = None;
        match attempt {
            BatchAttempt::Granted { claims, free } => {
                self.free = free;
                Attempted::Won(self.call.confirmed(claims))
            }
            BatchAttempt::Busy(_, ttl) => Attempted::Busy { at: ONLY, ttl },
            BatchAttempt::TooLate => {
                self.too_late = Some(hold.clone());
                Attempted::TooLate(self.call.too_late(hold))
            }
            BatchAttempt::Ended | BatchAttempt::Lost(_) => Attempted::Again,
        }
    }

    /// An attempt that began at `then` failed.
    fn failed(&self, error: Error, then: Moment) -> Attempted<Vec<Claim>> {
        let had_full_timeout =
            self.call.until(then).since(then) >= self.call.core().server.command_timeout();
        let is_cut_off = !had_full_timeout && error.is_timeout();
        Attempted::Failed(FailedAttempt {
            named: error.clone(),
            error,
            had_full_timeout,
            cut_off_after: is_cut_off.then(|| self.call.core().clock.now().since(then)),
            is_elsewhere: false,
            again: None,
        })
    }
}

/// A semaphore has one queue.
const ONLY: usize = 0;
