//! The wait for a lock: only what differs from other waits.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::LockCall;
use super::queue_wait::QueueWait;
use crate::clock::Moment;
use crate::contend::{
    Attempted, Contender, FailedAttempt, LocalState, OwnerHas, QueuePlace, TimedOut, contend,
};
use crate::error::{Error, Result};
use crate::hold::{Hold, LocalHolds, POLL_TIMEOUT};
use crate::key::{Mode, QueueSide};
use crate::observe::LockRef;
use crate::owner::Owner;
use crate::session::{AttemptOutcome, Claim, Core, PendingAcquire};
use crate::wait::{Backoff, HandedOver, WaitRequest, WaiterGuard, WaiterKind};

/// A caller that waits for one lock.
pub(super) struct LockContender<'a> {
    pub(super) caller: &'a LockCall<'a>,
    /// What this client itself held of the lock at the last check.
    own: LocalHolds,
    /// An acquire that was answered with a definite no, to be sent again.
    spare: Option<PendingAcquire>,
    /// Its place in the server's queue, if the lock has one.
    pub(super) queue_wait: QueueWait,
    /// How long it may send nothing while its client has the lock.
    silent_for: Duration,
    /// The hold of the last attempt, if it was granted after its own deadline.
    pub(super) too_late: Option<Arc<Hold>>,
}

impl LockCall<'_> {
    /// Waits in the queue until the lock is acquired or the deadline has come.
    pub(super) async fn wait(&self) -> Result<Option<Claim>> {
        let core = self.core();
        let mut now = self.began;
        // Before it enters the queue: what its owner holds is re-entered immediately, regardless of
        // other waiters.
        if core.holds.local_holds(self.key, self.owner).has_holds {
            if let Some(claim) = self.reenter().await? {
                return Ok(Some(claim));
            }
            now = core.clock.now();
        }
        self.refuse_deadlock()?;
        let contender = LockContender {
            caller: self,
            own: LocalHolds::default(),
            spare: None,
            queue_wait: QueueWait::default(),
            silent_for: Duration::MAX,
            too_late: None,
        };
        contend(contender, Some(ONLY), now).await
    }
}

impl Contender for LockContender<'_> {
    type Won = Claim;

    /// An attempt is one command.
    const ASKS_BESIDE: bool = true;

    fn ensure_open(&self) -> Result<()> {
        self.caller.core().ensure_open()
    }

    fn core(&self, _at: Option<usize>) -> &Arc<Core> {
        self.caller.core()
    }

    fn deadline(&self, _at: Option<usize>) -> Option<Moment> {
        self.caller.deadline
    }

    fn backoff(&self, _at: usize) -> Option<Backoff> {
        self.caller.backoff()
    }

    fn enter(&mut self, _at: usize, now: Moment) -> Result<WaiterGuard> {
        let LockCall {
            key,
            owner,
            terms,
            deadline,
            ..
        } = *self.caller;
        let options = WaitRequest {
            owner,
            // The lock may be handed to this waiter.
            terms: Some(*terms),
            deadline,
            kind: WaiterKind::of(key, self.patience()),
        };
        self.caller.core().waiters.enter(key, options, now)
    }

    async fn own(
        &mut self,
        place: Option<&QueuePlace>,
        now: &mut Moment,
    ) -> Result<OwnerHas<Claim>> {
        let core = self.caller.core();
        self.own = core.holds.local_holds(self.caller.key, self.caller.owner);
        if self.own.has_holds {
            if let Some(claim) = self.caller.reenter_meanwhile().await? {
                return Ok(OwnerHas::Has(claim));
            }
            self.own = core.holds.local_holds(self.caller.key, self.caller.owner);
            *now = core.clock.now();
        }
        if self.own.kept_until.is_some() {
            self.silent_for = self.may_be_silent(place, *now);
        }
        self.caller.ensure_upgradable()?;
        let LockCall {
            key,
            owner,
            options,
            ..
        } = *self.caller;
        // Other waiters may wait for this owner, so it asks without the contender's role.
        Ok(
            match options.upgrades || core.holds.reads_own_write(key, owner) {
                true => OwnerHas::Part,
                false => OwnerHas::Nothing,
            },
        )
    }

    fn shown(&self) -> Option<LockRef<'_>> {
        Some(LockRef::of(self.caller.key, self.caller.owner))
    }

    fn owner(&self) -> Option<Owner> {
        Some(self.caller.owner)
    }

    fn local_holder(&self) -> Option<Arc<Hold>> {
        let LockCall { key, owner, .. } = *self.caller;
        self.caller.core().holds.of_another(key, owner)
    }

    fn kept(&mut self, now: Moment, has_waited: bool) -> LocalState {
        let at = ONLY;
        let reads = self.reads_until(now);
        // With a queue on the server, what this client holds only delays the next query.
        let own = self
            .own
            .kept_until
            .map(|kept| kept.since(now).min(self.silent_for));
        let reads = reads.map(|reads| reads.since(now));
        if let Some(left) = own.max(reads) {
            if left.is_zero() {
                return LocalState::Nothing;
            }
            return LocalState::For { at, left };
        }
        if !self.own.releasing {
            return LocalState::Nothing;
        }
        if !has_waited {
            // As long as a future that releases the lock may take until it is polled.
            let timeout = POLL_TIMEOUT;
            return LocalState::Releasing { at, timeout };
        }
        // An attempt is one command, so it does not wait for a release that makes no progress. It also
        // speeds up that release, which blocks the lock for all clients.
        let core = self.caller.core();
        if let Some(releasing) = core.holds.releasing(self.caller.key) {
            core.request_turn(&releasing);
        }
        LocalState::Nothing
    }

    async fn attempt(
        &mut self,
        place: Option<&QueuePlace>,
        now: Moment,
    ) -> Result<Attempted<Claim>> {
        let Some(place @ QueuePlace { waiter, .. }) = place else {
            return Ok(Attempted::Unasked);
        };
        if self.caller.key.kind().queue == QueueSide::Server {
            return Ok(self.query(waiter, now).await);
        }
        let mut acquiring = match self.spare.take() {
            Some(spare) if !spare.is_spent() => spare,
            _ => self.first(),
        };
        acquiring.modes = self.caller.modes(now, true);
        acquiring.listing = self.caller.listing(place, now);
        if !waiter.attempting(acquiring.hold(), now) {
            // The lock is being handed to this waiter.
            return Ok(Attempted::Unasked);
        }
        let until = self.caller.until(now);
        self.promise(waiter, until);
        let terms = self.caller.terms_at(now);
        let attempt = acquiring.attempt(&terms, now, until).await;
        waiter.attempted();
        match attempt {
            Ok(AttemptOutcome::Busy(ttl)) => {
                self.too_late = None;
                acquiring.rest();
                self.spare = Some(acquiring);
                Ok(Attempted::Busy { at: ONLY, ttl })
            }
            Ok(attempt) => Ok(self.evaluate(acquiring.hold(), attempt)),
            Err(error) => Ok(self.failed(error, now)),
        }
    }

    fn asks_at_once(&self) -> bool {
        self.caller.key.kind().queue == QueueSide::Server && self.queue_wait.asks_at_once()
    }

    async fn ask_beside(&mut self, now: Moment) -> Result<Attempted<Claim>> {
        // This caller has no role in the queue that others could take over.
        let mut acquiring = self.first();
        acquiring.modes = self.caller.modes(now, false);
        let until = self.caller.until(now);
        let terms = self.caller.terms_at(now);
        match acquiring.attempt(&terms, now, until).await {
            Ok(AttemptOutcome::Granted(claim)) => Ok(Attempted::Won(claim)),
            Ok(AttemptOutcome::Busy(ttl)) => Ok(Attempted::Busy { at: ONLY, ttl }),
            Ok(_) => Ok(Attempted::Again),
            Err(error) => Ok(self.failed(error, now)),
        }
    }

    /// The handed-over grant counts only if it is still valid.
    async fn accept_hand_over(
        &mut self,
        place: &QueuePlace,
        handed: HandedOver,
    ) -> Result<Attempted<Claim>> {
        // The hand-over has an acquire of its own, so the spare one is not needed.
        self.spare = None;
        let mut acquiring = match self.queue_wait.receive(&handed) {
            // It granted the acquire that waited in the server's queue.
            Some(waiting) => waiting,
            None => PendingAcquire::handed(self.caller.session, handed),
        };
        let now = self.caller.core().clock.now();
        let until = self.caller.until(now);
        self.promise(&place.waiter, until);
        if let Err(error) = acquiring.acknowledged_by_hand(until).await {
            return Ok(self.failed(error, now));
        }
        let attempt = acquiring.accept_grant(self.caller.terms)?;
        Ok(self.evaluate(acquiring.hold(), attempt))
    }

    /// A hold that waits in the server's queue keeps its place: its next query finds a grant, if any.
    fn resolves_hand_over(&mut self, hold: &Arc<Hold>) -> bool {
        let is_own = self.queue_wait.is_for(hold);
        if is_own {
            self.queue_wait.miss_hand_over();
        }
        is_own
    }

    fn leave_with(&self, waiter: &WaiterGuard) {
        waiter.has_lock();
        if self.caller.key.mode() == Some(Mode::Read) {
            // A writer behind it has to be announced.
            waiter.shares();
        }
    }

    fn decline(&self, handed: HandedOver) {
        if self.queue_wait.is_for(&handed.hold) {
            // The drop of `queue_wait` gives up the place, or the grant.
            return;
        }
        drop(PendingAcquire::handed(self.caller.session, handed));
    }

    fn give_up(&self, end: TimedOut<'_>) -> Result<()> {
        let core = self.caller.core();
        let waited = end.now.since(self.caller.began);
        let is_kept = core
            .holds
            .local_holds(self.caller.key, self.caller.owner)
            .kept_until
            .is_some();
        if end.is_known_busy || is_kept {
            // The lock is certainly busy. Earlier failures of the contender do not matter.
            return Ok(());
        }
        // The contender asks for the whole queue, so its failure is the error. This waiter's own
        // attempts do not say more.
        if let Some(outage) = end.place.and_then(|place| place.waiter.outage()) {
            return Err(outage);
        }
        // The hold whose command has no answer: the contender's, or one that is being released.
        let unanswered = end.silent(waited).or_else(|| self.too_late.clone());
        if unanswered.is_none() && !end.is_unreleased {
            return Ok(());
        }
        let unanswered = unanswered.or_else(|| core.holds.releasing(self.caller.key));
        Err(unanswered.map_or_else(|| Error::timeout(waited), |hold| hold.unanswered(waited)))
    }
}

impl LockContender<'_> {
    fn first(&self) -> PendingAcquire {
        let LockCall {
            session,
            key,
            owner,
            ..
        } = *self.caller;
        PendingAcquire::first(session, key, owner)
    }

    /// Replicas must acknowledge the acquire, so it may take longer than usual.
    fn promise(&self, waiter: &WaiterGuard, until: Moment) {
        if let Some(until) = self.caller.core().answered_by(until) {
            waiter.promise(until);
        }
    }

    /// The result of an attempt, or of a hand-over, that did not find the lock busy.
    pub(super) fn evaluate(
        &mut self,
        hold: &Arc<Hold>,
        attempt: AttemptOutcome,
    ) -> Attempted<Claim> {
        match attempt {
            AttemptOutcome::Granted(claim) => Attempted::Won(claim),
            AttemptOutcome::TooLate => {
                self.too_late = Some(hold.clone());
                Attempted::TooLate(self.caller.too_late(hold))
            }
            _ => Attempted::Again,
        }
    }

    /// An attempt that began at `then` failed.
    pub(super) fn failed(&self, error: Error, then: Moment) -> Attempted<Claim> {
        let had_full_timeout = self.caller.had_full_timeout(then);
        let is_cut_off = !had_full_timeout && error.is_timeout();
        Attempted::Failed(FailedAttempt {
            named: error.clone(),
            error,
            had_full_timeout,
            cut_off_after: is_cut_off.then(|| self.caller.core().clock.now().since(then)),
            is_elsewhere: false,
            again: None,
        })
    }
}

/// A lock has one queue.
pub(super) const ONLY: usize = 0;
