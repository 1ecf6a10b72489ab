//! One attempt to acquire: a command, its answer, and what is owed if nobody waits for the answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::Session;
use super::claim::Claim;
use super::settle::Job;
use crate::clock::Moment;
use crate::error::{Error, Lost, LostReason};
use crate::hold::{ClaimFlags, Hold, HoldPhase, HoldState, Terms, TurnGuard};
use crate::key::LockKey;
use crate::owner::Owner;
use crate::script::{self, AcquireReply};
use crate::server::{Failure, Sent, TimeBox};
use crate::wait::HandedOver;

/// An acquire under way. Dropped before it came to an end, it is undone in the background
/// (design: invariant 6).
pub(crate) struct PendingAcquire {
    pub(super) session: Arc<Session>,
    pub(super) hold: Arc<Hold>,
    pub(super) command: Option<TurnGuard>,
    /// It is what the hold begins with: without a grant there is no hold.
    pub(super) first: bool,
    pub(super) sent: Sent,
    /// It was granted, and a claim stands for it now; or somebody else sees to it.
    pub(super) granted: bool,
    /// The server said no, to the only sending there was: nothing is owed.
    pub(super) refused: bool,
}

/// What one attempt came to.
pub(crate) enum AttemptOutcome {
    Granted(Claim),
    /// Somebody else has the lock; its TTL, if it has one.
    Busy(Option<Duration>),
    /// The hold that was to be re-entered was lost.
    Lost(Lost),
    /// The hold was given up while the command was under way, or its master is none any more: this is
    /// no grant.
    Ended,
    /// It was granted, and answered after its own deadline: this is no grant.
    TooLate,
}

impl PendingAcquire {
    /// A first acquire. Known to the watchdog before it leaves.
    pub(crate) fn first(session: &Arc<Session>, key: &Arc<LockKey>, owner: Owner) -> Self {
        let hold = session.core().holds.enter(key, owner);
        // Nobody else knows the hold yet.
        let command = hold.try_command();
        Self::new(session, hold, command, true)
    }

    /// A further acquire of a hold; waits for its command that is under way. An error for a lock that is
    /// not reentrant.
    pub(crate) async fn again(
        session: &Arc<Session>,
        hold: Arc<Hold>,
        now: Moment,
        until: Moment,
    ) -> Result<Self, Error> {
        if !hold.key().kind().reentrant {
            return Err(hold.already_held(now).into());
        }
        let command = match hold.try_command() {
            Some(command) => command,
            None => {
                let waited = until.since(now);
                let command =
                    tokio::time::timeout(waited, session.core().acquire_turn(&hold)).await;
                command.map_err(|_| hold.unanswered(waited))?
            }
        };
        Ok(Self::new(session, hold, Some(command), false))
    }

    fn new(
        session: &Arc<Session>,
        hold: Arc<Hold>,
        command: Option<TurnGuard>,
        first: bool,
    ) -> Self {
        Self {
            first,
            session: session.clone(),
            hold,
            command,
            sent: Sent::default(),
            granted: false,
            refused: false,
        }
    }

    /// An acquire that a hand-over did: to be taken in.
    pub(crate) fn handed(session: &Arc<Session>, handed: HandedOver) -> Self {
        let mut acquiring = Self::new(session, handed.hold, handed.command, true);
        acquiring.sent = handed.sent;
        acquiring
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// It asks for what its owner does not hold.
    pub(crate) fn is_first(&self) -> bool {
        self.first
    }

    /// Where the last attempt was sent, and what may have run of it.
    pub(crate) fn sent(&self) -> &Sent {
        &self.sent
    }

    /// A command for this hold and others was sent so; with a clear no as its answer if `refused`.
    pub(super) fn note(&mut self, sent: &Sent, refused: bool) {
        self.sent = sent.clone();
        self.refused = refused;
    }

    /// A hand-over asked for this hold and got it: for its owner to take in.
    pub(super) fn hand_on(&mut self, sent: &Sent) -> HandedOver {
        // Nothing of it is this one's any more.
        self.granted = true;
        HandedOver {
            hold: self.hold.clone(),
            command: self.command.take(),
            sent: sent.clone(),
        }
    }

    /// Sends the command, from `now` on, and again while there is time and reason to.
    ///
    /// After `Busy` this may be called again; after anything else it is over.
    ///
    /// # Cancel safety
    ///
    /// Whatever the command does is undone in the background.
    pub(crate) async fn attempt(
        &mut self,
        terms: &Terms,
        now: Moment,
        until: Moment,
    ) -> Result<AttemptOutcome, Error> {
        self.attempt_for(terms, now, until, false).await
    }

    pub(super) async fn attempt_for(
        &mut self,
        terms: &Terms,
        now: Moment,
        until: Moment,
        is_member: bool,
    ) -> Result<AttemptOutcome, Error> {
        let Some(target) = self.prepare(terms.lease, now, until)? else {
            return Ok(self.gone());
        };
        let core = self.session.core();
        let field = core.field(&self.hold);
        let turn = self.command.as_ref();
        let acquired = {
            let sending = pin!(script::acquire(
                &core.server,
                self.hold.key(),
                &field,
                target,
                terms.lease,
                TimeBox { now, until },
                &mut self.sent,
            ));
            TurnGuard::attend(turn.as_slice(), sending).await
        };
        let Some(acquired) = acquired else {
            return Ok(self.gone());
        };
        if matches!(acquired, Ok(AcquireReply::Granted)) {
            self.acknowledged(until, is_member).await?;
        }
        self.answered(acquired, terms)
    }

    /// Gets ready to send the command, from `now` on and up to `until`: the count that it is to ask for;
    /// `None` if the hold was given up.
    pub(super) fn prepare(
        &mut self,
        lease: Duration,
        now: Moment,
        until: Moment,
    ) -> Result<Option<u32>, Error> {
        let core = self.session.core();
        // Looked at after the hold was entered: the end of the client misses neither.
        core.ensure_open()?;
        core.can_be_acknowledged(self.hold.key().key())?;
        self.is_vouched_for(lease, now)?;
        let Some(target) = self.target(lease, now, until) else {
            return Ok(None);
        };
        self.sent = Sent::with(self.command.iter().map(TurnGuard::permit));
        self.refused = false;
        Ok(self.command.is_some().then_some(target))
    }

    /// Takes in what the server answered.
    pub(super) fn answered(
        &mut self,
        acquired: Result<AcquireReply, Failure>,
        terms: &Terms,
    ) -> Result<AttemptOutcome, Error> {
        let core = self.session.core();
        let is_no = matches!(
            &acquired,
            Ok(AcquireReply::Busy(_) | AcquireReply::Gone) | Err(Failure::Refused { .. })
        );
        self.refused = is_no && self.sent.is_answered();
        match acquired? {
            AcquireReply::Granted => self.take_in(terms),
            AcquireReply::Busy(ttl) => Ok(AttemptOutcome::Busy(ttl)),
            AcquireReply::Gone => {
                core.lose(&self.hold, LostReason::NotOurs);
                Ok(self.gone())
            }
        }
    }

    /// The count that a command between `now` and `until` is to ask for, which is about to leave;
    /// `None` if the hold was given up.
    pub(super) fn target(&self, lease: Duration, now: Moment, until: Moment) -> Option<u32> {
        let core = self.session.core();
        // The longest that the command may still be sent.
        let patience = now + core.server.command_timeout();
        core.holds.change(&self.hold, |state| {
            if !matches!(
                state.phase,
                HoldPhase::Pending | HoldPhase::Held | HoldPhase::Jeopardy
            ) {
                return None;
            }
            state.sending(until.min(patience), lease);
            if !mutant!("left_grant_stays") {
                // A call that comes late has some time from now on, too.
                state.await_taking_in(core.left_after(until.max(now)));
            }
            Some(state.target() + 1)
        })
    }

    /// It is kept, to ask again. After a clear no there is nothing to be taken in meanwhile.
    pub(crate) fn rest(&self) {
        if self.refused {
            let core = self.session.core();
            core.holds.change(&self.hold, |state| state.awaited = false);
        }
    }

    /// A repeated command's answer says nothing of its earlier sendings: the hold is spent.
    pub(crate) fn is_spent(&self) -> bool {
        !self.refused || self.hold.state().phase != HoldPhase::Pending
    }

    /// Takes in a grant.
    pub(crate) fn take_in(&mut self, terms: &Terms) -> Result<AttemptOutcome, Error> {
        let core = self.session.core();
        let now = core.clock.now();
        let sent = self.sent.first.unwrap_or(now);
        let sent = if mutant!("deadline_from_reply") {
            now
        } else {
            sent
        };
        let was_first = self.hold.state().phase == HoldPhase::Pending;
        let on = self.sent.on.as_ref();
        if on.is_some_and(|on| !on.is_current()) {
            // While replicas, or its owner, were waited for, another server has become the master. That
            // one may know neither the lock nor, of a re-entry, the longer lease.
            return Ok(AttemptOutcome::Ended);
        }
        // Looked at under the hold's lock: whoever takes the turn over reads the count after that, and
        // finds this claim or ends without it.
        let granted = core.holds.change(&self.hold, |state| {
            !self.is_taken_over() && state.grant(sent, terms, now)
        });
        if !granted {
            let is_late = self.hold.state().phase == HoldPhase::Pending && !self.is_taken_over();
            return Ok(if is_late {
                AttemptOutcome::TooLate
            } else {
                self.gone()
            });
        }
        self.granted = true;
        let flags = ClaimFlags {
            watched: terms.watched,
            local: false,
            part: false,
        };
        let claim = Claim::new(self.session.clone(), self.hold.clone(), flags);
        // Looked at after the hold can be seen, so that a shutdown has either seen it or is seen
        // here: nobody would watch over it any more.
        core.ensure_open()?;
        if was_first {
            for other in core.holds.supersede(&self.hold) {
                core.report_lost(&other);
            }
        }
        Ok(AttemptOutcome::Granted(claim))
    }

    /// The turn to send is somebody else's by now, who sees to what was sent.
    fn is_taken_over(&self) -> bool {
        let command = self.command.as_ref();
        command.is_some_and(|command| !command.is_valid())
    }

    /// The right to send, for a command that acquires several holds.
    pub(super) fn command(&self) -> Option<&TurnGuard> {
        self.command.as_ref()
    }

    pub(super) fn gone(&self) -> AttemptOutcome {
        let now = self.session.core().clock.now();
        if self.hold.state().phase == HoldPhase::Ended {
            return AttemptOutcome::Ended;
        }
        self.hold
            .loss(now)
            .map_or(AttemptOutcome::Ended, AttemptOutcome::Lost)
    }
}

impl Drop for PendingAcquire {
    fn drop(&mut self) {
        if self.granted || self.is_taken_over() {
            return;
        }
        let core = self.session.core();
        if self.sent.first.is_some() && !self.refused && !mutant!("no_settle") {
            if self.first {
                core.holds.change(&self.hold, HoldState::end);
            }
            let job = Job::after(self.hold.clone(), self.command.take(), self.sent.on.take());
            core.settle_in_background(job);
        } else if self.first {
            // Redis has nothing of it, so no waiter waits for its end: none is to be woken, and none
            // may see it as a release under way.
            core.holds.remove(&self.hold);
            core.holds.change(&self.hold, HoldState::end);
        }
    }
}
