//! One acquire: its command, its answer, and what the background undoes after a drop.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::Session;
use super::attempt_outcome::AttemptOutcome;
use super::claim::Claim;
use super::settle::Job;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::{Hold, HoldPhase, HoldState, Terms, TurnGuard};
use crate::key::{LockKey, QueueSide};
use crate::owner::Owner;
use crate::script::{self, AcquireItem, AcquireReply, Listing, ModeOptions};
use crate::server::{Addressee, Sent, TimeBox};
use crate::wait::HandedOver;

/// An acquire in flight. If it is dropped before it is complete, the background undoes it (design:
/// invariant 6).
pub(crate) struct PendingAcquire {
    pub(super) session: Arc<Session>,
    pub(super) hold: Arc<Hold>,
    pub(super) command: Option<TurnGuard>,
    /// The hold begins with this acquire: without a grant there is no hold.
    pub(super) first: bool,
    pub(super) sent: Sent,
    /// Receives the server of each sending, for a caller that needs it while the command is in flight.
    pub(crate) addressee: Option<Addressee>,
    /// How it treats the holders and waiters in the other mode of a read/write lock.
    pub(crate) modes: ModeOptions,
    /// How the next command lists this client as waiting, if it does.
    pub(crate) listing: Option<Box<Listing>>,
    /// The owner's hold in the other mode, as the last command named it.
    partner: Option<Arc<Hold>>,
    /// How long after the call's end the grant may be accepted. `None`: for a waiter's answer time.
    pub(crate) accept_limit: Option<Duration>,
    /// It was granted and a claim exists for it, or another party has taken it over.
    pub(super) granted: bool,
    /// It was sent once and the server refused it: there is nothing to undo.
    pub(super) refused: bool,
    /// It may have a place in the server's queue, which has to be given up.
    pub(super) has_place: bool,
    /// The server may announce it as a writer that waits.
    announced: bool,
}

impl PendingAcquire {
    /// A first acquire. Its hold is registered with the watchdog before the command is sent.
    pub(crate) fn first(session: &Arc<Session>, key: &Arc<LockKey>, owner: Owner) -> Self {
        let hold = session.core().holds.enter(key, owner);
        // No other party knows the hold yet, so its turn is free.
        let command = hold.try_command();
        Self::new(session, hold, command, true)
    }

    /// A further acquire of a hold. Waits for the hold's command in flight. Returns an error if the
    /// lock is not reentrant.
    pub(crate) async fn again(
        session: &Arc<Session>,
        hold: Arc<Hold>,
        now: Moment,
        until: Moment,
    ) -> Result<Self, Error> {
        if !hold.key().kind().reentrant {
            return Err(hold.already_held(now).into());
        }
        let command = match hold.try_fair_command() {
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
            addressee: None,
            modes: ModeOptions::default(),
            listing: None,
            partner: None,
            accept_limit: None,
            granted: false,
            refused: false,
            has_place: false,
            announced: false,
        }
    }

    /// An acquire that a hand-over made; its receiver has to accept the grant.
    pub(crate) fn handed(session: &Arc<Session>, handed: HandedOver) -> Self {
        let mut acquiring = Self::new(session, handed.hold, handed.command, true);
        acquiring.sent = handed.sent;
        acquiring
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Whether it acquires a lock that its owner does not hold yet.
    pub(crate) fn is_first(&self) -> bool {
        self.first
    }

    /// Where the last attempt was sent, and which of its sendings may have run.
    pub(crate) fn sent(&self) -> &Sent {
        &self.sent
    }

    /// Notes how a command for this hold and others was sent. `refused`: its answer was a definite no.
    pub(super) fn note(&mut self, sent: &Sent, refused: bool) {
        self.sent = sent.clone();
        self.refused = refused;
    }

    /// The hand-over acquired this hold for its receiver, which has to accept the grant.
    pub(super) fn give_to_receiver(&mut self, sent: &Sent) -> HandedOver {
        // The receiver has everything now, so the drop must undo nothing.
        self.granted = true;
        HandedOver {
            hold: self.hold.clone(),
            command: self.command.take(),
            sent: sent.clone(),
        }
    }

    /// Sends the command, first at `now`, and retries while there is time and a reason to.
    ///
    /// After `Busy` this may be called again; after any other result the acquire is complete.
    ///
    /// # Cancel safety
    ///
    /// The effect of the command is undone in the background.
    pub(crate) async fn attempt(
        &mut self,
        terms: &Terms,
        now: Moment,
        until: Moment,
    ) -> Result<AttemptOutcome, Error> {
        match self.hold.key().kind().queue {
            QueueSide::Client => self.attempt_for(terms, now, until, false).await,
            QueueSide::Server => self.try_once(terms, now, until).await,
        }
    }

    /// Finds the owner's hold in the other mode: the server lets the owner of a write hold read too.
    pub(super) fn find_partner(&mut self) {
        let holds = &self.session.core().holds;
        self.partner = holds.partner_of(self.hold.key(), self.hold.owner());
    }

    /// What its command asks for.
    pub(super) fn item(&self, target: u32) -> AcquireItem<'_> {
        let core = self.session.core();
        core.item(&self.hold, target, self.partner.as_deref(), self.modes)
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
        self.find_partner();
        self.announced |= self.modes.announces;
        let core = self.session.core();
        // `self.item` would borrow all of `self`, and `self.sent` is borrowed mutably below.
        let mut item = core.item(&self.hold, target, self.partner.as_deref(), self.modes);
        item.listing = self.listing.as_deref();
        let turn = self.command.as_ref();
        let acquired = {
            let sending = pin!(script::acquire(
                &core.server,
                &item,
                terms.lease,
                TimeBox { now, until },
                &mut self.sent,
            ));
            TurnGuard::drive(turn.as_slice(), sending).await
        };
        let Some(acquired) = acquired else {
            // Another party took the turn over, and settles the command.
            return Ok(self.gone());
        };
        if let Ok(AcquireReply::Granted(token)) = acquired {
            self.hold.note_token(token);
            self.acknowledged(until, is_member).await?;
        }
        self.answered(acquired, terms)
    }

    /// Prepares the command, which is sent between `now` and `until`. Returns the count that it asks
    /// for; `None` if the hold has ended.
    pub(super) fn prepare(
        &mut self,
        lease: Duration,
        now: Moment,
        until: Moment,
    ) -> Result<Option<u32>, Error> {
        let core = self.session.core();
        // Checked after the hold was registered, so that a shutdown either sees the hold or is seen
        // here.
        core.ensure_open()?;
        core.can_be_acknowledged(self.hold.key().key())?;
        self.verify_master(lease, now)?;
        let Some(target) = self.target(lease, now, until) else {
            return Ok(None);
        };
        let permits = self.command.iter().map(TurnGuard::permit);
        self.sent = Sent::with(permits).to(self.addressee.clone());
        self.refused = false;
        Ok(self.command.is_some().then_some(target))
    }

    /// The count that a command asks for which is sent between `now` and `until`; `None` if the hold
    /// has ended.
    pub(super) fn target(&self, lease: Duration, now: Moment, until: Moment) -> Option<u32> {
        let core = self.session.core();
        // The latest moment at which the command may still be sent.
        let latest = now + core.server.command_timeout();
        core.holds.change(&self.hold, |state| {
            if !matches!(
                state.phase,
                HoldPhase::Pending | HoldPhase::Held | HoldPhase::Jeopardy
            ) {
                return None;
            }
            state.sending(until.min(latest), lease);
            // If the future was polled late, `until` may be over. Its time to accept begins now.
            let until = until.max(now);
            state.require_acceptance(match self.accept_limit {
                Some(limit) => core.left_for(limit, until),
                None => core.left_after(until),
            });
            Some(state.target() + state.weight)
        })
    }

    /// Accepts a grant.
    pub(crate) fn accept_grant(&mut self, terms: &Terms) -> Result<AttemptOutcome, Error> {
        let core = self.session.core();
        let now = core.clock.now();
        let sent = self.sent.first.unwrap_or(now);
        let was_first = self.hold.state().phase == HoldPhase::Pending;
        let on = self.sent.on.as_ref();
        if on.is_some_and(|on| !on.is_current()) {
            // While the call waited for replicas or for its owner, another server became the master. It
            // may not know the lock or, for a re-entry, the longer lease.
            return Ok(AttemptOutcome::Ended);
        }
        // Checked under the hold's mutex. A party that takes the turn over later reads the count after
        // this; it either sees this claim, or ends the hold without it.
        let granted = core.holds.change(&self.hold, |state| {
            state.certain = self.sent.is_answered();
            let granted = !self.is_taken_over() && state.grant(sent, terms, now);
            if let (true, Some(at_least)) = (granted, terms.at_least) {
                state.keep_for(at_least, self.sent.last.unwrap_or(now));
            }
            if granted && self.hold.key().kind().has_shared_ttl() && !terms.watched {
                // A reader of Redisson may shorten the lock's TTL, so the watchdog renews this lease.
                state.expose(core.settings.watchdog_lease);
            }
            granted
        });
        if !granted {
            let is_late = self.hold.state().phase == HoldPhase::Pending && !self.is_taken_over();
            return Ok(if is_late {
                AttemptOutcome::TooLate
            } else {
                self.gone()
            });
        }
        if let Some(partner) = self.partner.take() {
            // The write hold may have ended before the client knew of the read hold that keeps its field.
            core.end_outlived(partner);
        }
        self.granted = true;
        let flags = self.hold.state().flags_of_acquire(terms.watched);
        let claim = Claim::new(self.session.clone(), self.hold.clone(), flags);
        let claim = claim.reentering(!self.first);
        // Checked after the hold is visible, so that a shutdown either saw the hold or is seen here.
        // Without this, the hold could remain without a watchdog.
        if let Err(closed) = core.ensure_open() {
            if was_first {
                // The caller never had the lock, so no other owner has to wait for its least time.
                self.hold.state().keep_no_longer();
            }
            return Err(closed);
        }
        // Several permits are valid at a time, so the grant of a permit proves nothing about the others.
        if was_first && self.hold.key().kind().permits.is_none() {
            for other in core.holds.supersede(&self.hold) {
                core.report_lost(&other);
            }
        }
        Ok(AttemptOutcome::Granted(claim))
    }

    /// Another party took the turn over, and handles what was sent.
    fn is_taken_over(&self) -> bool {
        let command = self.command.as_ref();
        command.is_some_and(|command| !command.is_valid())
    }

    /// The turn, for a command that acquires several holds.
    pub(super) fn command(&self) -> Option<&TurnGuard> {
        self.command.as_ref()
    }
}

impl Drop for PendingAcquire {
    fn drop(&mut self) {
        if self.granted || self.is_taken_over() {
            return;
        }
        let core = self.session.core();
        let may_have_run = self.sent.first.is_some() && !self.refused;
        // The announcement of a writer that gave up would keep readers out, so it has to be removed.
        let is_announced = self.announced && self.refused;
        if may_have_run || is_announced || self.has_place {
            if self.first {
                core.holds.change(&self.hold, |state| {
                    if self.has_place {
                        // The settlement is retried for as long as other waiters respect the place.
                        state.sending(core.clock.now(), core.settings.queue_timeouts.fair_absence);
                    }
                    state.end();
                });
            }
            let job = Job::after(self.hold.clone(), self.command.take(), self.sent.on.take());
            core.settle_in_background(job);
        } else if self.first {
            // Redis has nothing of the hold, so no waiter waits for its end, and none is woken. The hold
            // is removed before it ends, so that no waiter sees a release in flight.
            core.holds.remove(&self.hold);
            core.holds.change(&self.hold, HoldState::end);
        }
    }
}
