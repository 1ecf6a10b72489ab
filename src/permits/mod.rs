//! What semaphores of both kinds share: a call to acquire permits, which is a single attempt or a wait, and
//! the addition of permits.

mod adding;
mod contender;

use std::iter;
use std::sync::Arc;

use tracing::{Instrument, Span};

use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::hold::{Hold, Terms};
use crate::key::LockKey;
use crate::key::kind::PermitKind;
use crate::lock::released;
use crate::lock_request::{
    FIRST_ATTEMPT, WaitLimit, WatchedCall, acquire_span, record, record_server,
};
use crate::object::Object;
use crate::observe::{How, LockRef};
use crate::owner::Owner;
use crate::session::{BatchAcquire, BatchAttempt, Claim, Core, PendingAcquire, Session};

pub(crate) use adding::{ADDED_FOR, Adding, add_permits};

/// What a caller asks for, checked.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// 0: all that are free, of a semaphore without leases.
    pub(crate) permits: u32,
    /// The permits are of a kind with leases, but must not expire.
    pub(crate) is_endless: bool,
    pub(crate) terms: Terms,
}

/// Acquires permits, on the caller's runtime. `None`: too few are free.
pub(crate) async fn acquire(
    object: &Object,
    wanted: Wanted,
    wait: WaitLimit,
) -> Result<Option<Vec<Claim>>> {
    let core = object.core();
    let key = object.key()?;
    // Permits have no owner that could re-enter, so each call is an owner of its own.
    let owner = Owner::new();
    let watched = WatchedCall::begin(core, || LockRef::of(key, owner));
    let outcome = acquire_claims(object.session(), key, owner, wanted, wait).await;
    let how = |claims: &Vec<Claim>| claims.first().map_or(How::First, |one| one.how());
    watched.end(&outcome, how);
    outcome
}

async fn acquire_claims(
    session: &Arc<Session>,
    key: &Arc<LockKey>,
    owner: Owner,
    wanted: Wanted,
    wait: WaitLimit,
) -> Result<Option<Vec<Claim>>> {
    let core = session.core();
    core.ensure_open()?;
    let began = core.clock.now();
    let deadline = wait.deadline(began, core.server.command_timeout());
    let call = PermitCall {
        session,
        key,
        owner,
        wanted,
        began,
        deadline,
    };
    let span = call.span();
    record_server(&span, iter::once((&core.server, key.key())));
    let outcome = Box::pin(call.call(wait));
    let outcome = outcome.instrument(span.clone()).await;
    let waited = core.clock.now().since(began);
    record(&span, &outcome, waited);
    // The time in the last error covers only a part of the call.
    outcome.map_err(|error| error.after(waited))
}

/// One call to acquire permits.
struct PermitCall<'a> {
    session: &'a Arc<Session>,
    key: &'a Arc<LockKey>,
    /// New for each call: the permits of one call are its holds.
    owner: Owner,
    wanted: Wanted,
    began: Moment,
    /// When the call has to end.
    deadline: Option<Moment>,
}

impl PermitCall<'_> {
    async fn call(&self, wait: WaitLimit) -> Result<Option<Vec<Claim>>> {
        match wait {
            WaitLimit::Not => self.try_once().await,
            WaitLimit::ForEver | WaitLimit::AtMost(_) => self.wait().await,
        }
    }

    fn span(&self) -> Span {
        acquire_span!(
            "lockdog::lock",
            lock = self.key.name(),
            owner = %self.owner,
            permits = self.wanted.permits
        )
    }

    /// One attempt, beside the contender of this client.
    async fn try_once(&self) -> Result<Option<Vec<Claim>>> {
        let core = self.core();
        let mut has_waited = false;
        loop {
            let now = core.clock.now();
            let releasing = core.holds.releasing(self.key);
            let until = self.until(now);
            let acquires = self.acquires();
            let asked_for = acquires[0].hold().clone();
            match self.ask(acquires, now, until).await? {
                BatchAttempt::Granted { claims, .. } => return Ok(Some(self.confirmed(claims))),
                BatchAttempt::TooLate => return Err(self.too_late(&asked_for)),
                // The caller did not poll, or the machine slept: the watchdog gave the attempt up.
                BatchAttempt::Ended | BatchAttempt::Lost(_) if core.clock.now() >= until => {
                    return Err(self.too_late(&asked_for));
                }
                BatchAttempt::Ended | BatchAttempt::Lost(_) => core.ensure_open()?,
                BatchAttempt::Busy(..) => match releasing {
                    // A permit that this client dropped just now must not look like one in use.
                    Some(releasing) if !has_waited => {
                        has_waited = true;
                        released(core, &releasing, self.owner, self.deadline, self.began).await?;
                    }
                    _ => return Ok(None),
                },
            }
        }
    }

    /// New holds: one for each permit that has a lease, otherwise one for all of them. They are registered
    /// with the watchdog before anything is sent.
    fn acquires(&self) -> Vec<PendingAcquire> {
        let Wanted { permits, .. } = self.wanted;
        let first = || PendingAcquire::first(self.session, self.key, self.owner);
        match self.key.kind().permits {
            Some(PermitKind::Counted) => vec![first().with_permits(permits)],
            Some(PermitKind::Leased) | None => (0..permits).map(|_| first()).collect(),
        }
    }

    /// Sends the command for these permits, first at `now`, and for endless permits a second one.
    ///
    /// # Cancel safety
    ///
    /// Its effect is undone in the background.
    async fn ask(
        &self,
        acquires: Vec<PendingAcquire>,
        now: Moment,
        until: Moment,
    ) -> Result<BatchAttempt> {
        let permits = BatchAcquire::new(self.session, acquires).endless(self.wanted.is_endless);
        let attempt = permits.attempt(self.wanted.terms.lease, now, until).await;
        attempt.map_err(|(_, error)| error)
    }

    /// Applies the terms of the call to the claims: whether the watchdog renews them, and for how long at most.
    fn confirmed(&self, mut claims: Vec<Claim>) -> Vec<Claim> {
        for claim in &mut claims {
            let acquired = claim.hold().state().acquired;
            let bound = self.wanted.terms.max_hold.map(|bound| acquired + bound);
            claim.confirm(&self.wanted.terms, bound.unwrap_or(Moment::NEVER));
        }
        claims
    }

    /// When an attempt that begins now has to end.
    fn until(&self, now: Moment) -> Moment {
        let latest = now + self.core().server.command_timeout();
        let ends = self
            .deadline
            .map(|deadline| deadline.max(self.began + FIRST_ATTEMPT));
        ends.map_or(latest, |ends| ends.min(latest))
    }

    /// The error when the server that was asked for this hold answered too late, or not at all.
    fn too_late(&self, asked_for: &Hold) -> Error {
        let waited = self.core().clock.now().since(self.began);
        asked_for.unanswered(waited)
    }

    fn core(&self) -> &Arc<Core> {
        self.session.core()
    }
}
