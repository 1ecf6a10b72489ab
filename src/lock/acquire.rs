//! One call to acquire a lock: a re-entry, a single attempt, or a wait.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span};

use super::preference::Preference;
use crate::clock::Moment;
use crate::contend::QueuePlace;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::{Hold, OwnerState, POLL_TIMEOUT, Terms};
use crate::key::{LockKey, Mode};
use crate::lease;
use crate::lock_request::{
    FIRST_ATTEMPT, WaitLimit, WatchedCall, acquire_span, record, record_server,
};
use crate::observe::LockRef;
use crate::owner::Owner;
use crate::script::{Listing, ModeOptions};
use crate::session::{AttemptOutcome, Claim, Core, PendingAcquire, Session};
use crate::wait::{Backoff, WaitRequest, WaiterKind};

/// Acquires a lock, on the caller's runtime.
pub(crate) async fn acquire(
    session: &Arc<Session>,
    key: &Arc<LockKey>,
    options: HandleOptions,
    owner: Owner,
    terms: &Terms,
    wait: WaitLimit,
) -> Result<Option<Guard>> {
    let core = session.core();
    let began = core.clock.now();
    let watched = WatchedCall::begin_at(core, began, || LockRef::of(key, owner));
    let outcome = acquire_claim(session, key, options, owner, terms, (began, wait)).await;
    watched.end(&outcome, Claim::how);
    outcome.map(|claim| claim.map(Guard::new))
}

async fn acquire_claim(
    session: &Arc<Session>,
    key: &Arc<LockKey>,
    options: HandleOptions,
    owner: Owner,
    terms: &Terms,
    (began, wait): (Moment, WaitLimit),
) -> Result<Option<Claim>> {
    let core = session.core();
    core.ensure_open()?;
    let deadline = wait.deadline(began, core.server.command_timeout());
    let caller = LockCall {
        session,
        key,
        options,
        owner,
        terms,
        began,
        deadline,
    };
    let span = caller.span();
    let outcome = if span.is_disabled() {
        // No subscriber uses the span. Without it the future is half as large.
        caller.call(wait).await
    } else {
        record_server(&span, iter::once((&core.server, key.key())));
        let outcome = Box::pin(caller.call(wait)).instrument(span.clone()).await;
        record(&span, &outcome, core.clock.now().since(began));
        outcome
    };
    // The time in the last error covers only a part of the call.
    outcome.map_err(|error| error.after(core.clock.now().since(began)))
}

/// The options of a handle, or of a guard that upgrades, for its acquires.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandleOptions {
    /// The pauses of its waiters, if they differ from the client's setting.
    pub(crate) backoff: Option<Backoff>,
    /// Who goes first in a read/write lock.
    pub(crate) preference: Preference,
    /// The call acquires the write lock while its owner keeps its read hold.
    pub(crate) upgrades: bool,
    /// When the hold has to end, however long the call waits for it.
    pub(crate) ends_at: Option<Moment>,
}

/// One call to acquire a lock.
pub(super) struct LockCall<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) key: &'a Arc<LockKey>,
    pub(super) options: HandleOptions,
    pub(super) owner: Owner,
    pub(super) terms: &'a Terms,
    pub(super) began: Moment,
    /// When the call has to end.
    pub(super) deadline: Option<Moment>,
}

impl LockCall<'_> {
    async fn call(&self, wait: WaitLimit) -> Result<Option<Claim>> {
        match wait {
            WaitLimit::Not => self.try_once().await,
            WaitLimit::ForEver | WaitLimit::AtMost(_) => self.wait().await,
        }
    }

    fn span(&self) -> Span {
        acquire_span!("lockdog::lock", lock = self.key.name(), owner = %self.owner)
    }

    /// One attempt, beside the contender of this client.
    async fn try_once(&self) -> Result<Option<Claim>> {
        let core = self.core();
        if let Some(claim) = self.reenter().await? {
            return Ok(Some(claim));
        }
        if let Some(releasing) = core.holds.releasing(self.key) {
            // A guard dropped just now must not look like another owner's lock.
            released(core, &releasing, self.owner, self.deadline, self.began).await?;
        }
        loop {
            let now = core.clock.now();
            let mut acquiring = PendingAcquire::first(self.session, self.key, self.owner);
            acquiring.modes = self.modes(now, false);
            let until = self.until(now);
            match acquiring.attempt(&self.terms_at(now), now, until).await? {
                AttemptOutcome::Granted(claim) => {
                    core.waiters.wake_owner(self.key, self.owner);
                    return Ok(Some(claim));
                }
                AttemptOutcome::TooLate => return Err(self.too_late(acquiring.hold())),
                // The caller did not poll, or the machine slept: the watchdog gave the attempt up.
                AttemptOutcome::Ended if core.clock.now() >= until => {
                    return Err(self.too_late(acquiring.hold()));
                }
                // A force unlock ended the hold before its grant was processed. The call asks again.
                AttemptOutcome::Ended => {
                    core.ensure_open()?;
                    self.ensure_upgradable()?;
                }
                // Another call of this owner may have acquired it meanwhile.
                AttemptOutcome::Busy(_) | AttemptOutcome::Lost(_) => {
                    return self.reenter_meanwhile().await;
                }
            }
        }
    }

    /// Re-enters what another call of this owner acquired since this one began. If the lock is not
    /// reentrant, only the other call holds it, and this one waits for it like any other waiter.
    pub(super) async fn reenter_meanwhile(&self) -> Result<Option<Claim>> {
        if !self.key.kind().reentrant {
            return Ok(None);
        }
        self.reenter().await
    }

    /// Re-enters what this owner holds; `None` if it holds nothing. An error if it held the lock and
    /// lost it, or if the lock is not reentrant.
    pub(super) async fn reenter(&self) -> Result<Option<Claim>> {
        let core = self.core();
        loop {
            let hold = match core.owner_state(self.key, self.owner) {
                OwnerState::Holding(hold) => hold,
                OwnerState::Lost(_, lost) => return Err(Error::Lost(lost)),
                OwnerState::Acquiring | OwnerState::Nothing => return Ok(None),
            };
            let again = Claim::again(self.session, self.key, self.owner, self.terms);
            if again.is_some() {
                return Ok(again);
            }
            let now = core.clock.now();
            let until = self.until(now);
            let mut acquiring = PendingAcquire::again(self.session, hold, now, until).await?;
            // Waiting for another command of the hold may have taken time.
            let now = core.clock.now();
            match acquiring.attempt(&self.terms_at(now), now, until).await? {
                AttemptOutcome::Granted(claim) => return Ok(Some(claim)),
                AttemptOutcome::Lost(lost) => return Err(Error::Lost(lost)),
                // The last claim was dropped meanwhile.
                AttemptOutcome::Busy(_) | AttemptOutcome::Ended | AttemptOutcome::TooLate => {}
            }
        }
    }

    /// How an acquire that begins now treats holders and waiters in the other mode.
    pub(super) fn modes(&self, now: Moment, waits: bool) -> ModeOptions {
        let HandleOptions {
            preference,
            upgrades,
            ..
        } = self.options;
        let prefers_writers = preference == Preference::Writers;
        let reads = self.key.mode() == Some(Mode::Read);
        ModeOptions {
            gives_way: (reads && prefers_writers).then(|| now.since(self.began)),
            announces: waits
                && self.key.mode() == Some(Mode::Write)
                && (prefers_writers || upgrades),
            upgrades,
        }
    }

    /// How an acquire that begins now lists this client as waiting.
    pub(super) fn listing(&self, place: &QueuePlace, now: Moment) -> Option<Box<Listing>> {
        // Checked first: the name of the list is allocated, and the first attempt of each call comes here.
        if !place.is_listed {
            return None;
        }
        // Boxed because it is rare.
        Some(Box::new(Listing {
            list: self.key.waiting_list()?,
            client: self.key.listed_as(self.core().id),
            waited: now.since(self.began),
            yields: place.yields,
        }))
    }

    /// Fails if the call upgrades and its read hold is lost.
    pub(super) fn ensure_upgradable(&self) -> Result<()> {
        if !self.options.upgrades {
            return Ok(());
        }
        let core = self.core();
        let reads = self.key.partner();
        let state = reads.map(|reads| core.owner_state(&reads, self.owner));
        match state {
            Some(OwnerState::Lost(_, lost)) => Err(Error::Lost(lost)),
            Some(OwnerState::Holding(_)) => Ok(()),
            // The call owns a guard of the read hold, so the hold is held or lost.
            _ => Err(Error::Closed),
        }
    }

    /// Fails if the call would wait forever, because its own owner reads.
    pub(super) fn refuse_deadlock(&self) -> Result<()> {
        let waits_forever = self.deadline.is_none() && !self.options.upgrades;
        if waits_forever
            && self.key.mode() == Some(Mode::Write)
            && let Some(reads) = self.core().holds.partner_of(self.key, self.owner)
        {
            return Err(reads.would_deadlock());
        }
        Ok(())
    }

    /// The terms of an attempt that begins now.
    pub(super) fn terms_at(&self, now: Moment) -> Terms {
        let terms = Terms {
            lease: self.lease_at(now),
            ..*self.terms
        };
        let Some(ends_at) = self.options.ends_at else {
            return terms;
        };
        let left = ends_at.since(now);
        Terms {
            lease: lease::whole(terms.lease.min(left)).max(lease::SHORTEST),
            max_hold: Some(left),
            ..terms
        }
    }

    /// The lease of an attempt that begins now. An upgrade of a read hold with a fixed lease gets what is left of
    /// that lease, however long the call has waited.
    fn lease_at(&self, now: Moment) -> Duration {
        let lease = self.terms.lease;
        if !self.options.upgrades || self.terms.watched {
            return lease;
        }
        let reads = self.core().holds.partner_of(self.key, self.owner);
        let left = reads.map(|reads| lease::whole(reads.remaining(now)));
        left.map_or(lease, |left| left.max(lease::SHORTEST))
    }

    /// When an attempt that begins now has to end.
    pub(super) fn until(&self, now: Moment) -> Moment {
        let latest = now + self.core().server.command_timeout();
        let ends = self
            .deadline
            .map(|deadline| deadline.max(self.began + FIRST_ATTEMPT));
        ends.map_or(latest, |ends| ends.min(latest))
    }

    /// Whether an attempt that began then had a whole command timeout. If not, a timeout means that the
    /// caller had no more time, not that the server does not answer.
    pub(super) fn had_full_timeout(&self, then: Moment) -> bool {
        self.until(then).since(then) >= self.core().server.command_timeout()
    }

    /// The error when the server that was asked for this hold answered too late, or not at all.
    pub(super) fn too_late(&self, asked_for: &Hold) -> Error {
        let waited = self.core().clock.now().since(self.began);
        asked_for.unanswered(waited)
    }

    /// The pauses between its attempts; `None` if messages wake it.
    pub(super) fn backoff(&self) -> Option<Backoff> {
        let own = self.options.backoff;
        own.or_else(|| self.core().backoff(self.key))
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        self.session.core()
    }
}

/// Waits until the client has settled a hold that it releases, or a part of it, or until the deadline.
pub(crate) async fn released(
    core: &Core,
    releasing: &Arc<Hold>,
    owner: Owner,
    deadline: Option<Moment>,
    now: Moment,
) -> Result<()> {
    let key = releasing.key();
    let options = WaitRequest {
        owner,
        terms: None,
        deadline,
        kind: WaiterKind::Sole,
    };
    let waiter = core.waiters.enter(key, options, now)?;
    let mut requests_at = now + POLL_TIMEOUT;
    let is_in_flight = |hold: Arc<Hold>| {
        let state = hold.state();
        !state.is_living() || state.is_lowering
    };
    while core
        .holds
        .numbered(key, releasing.number())
        .is_some_and(is_in_flight)
    {
        let now = core.clock.now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            break;
        }
        if now >= requests_at {
            // The first request wakes the future that releases. If it is not polled, the next request takes
            // the release over.
            core.request_turn(releasing);
            requests_at = now + POLL_TIMEOUT;
        }
        waiter.wait(now + RELEASED_SOON).await?;
    }
    Ok(())
}

const RELEASED_SOON: Duration = Duration::from_millis(10);
