//! Acquires several locks of one client, or several permits, by one command: all of them, or none.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::PendingAcquire;
use super::attempt_outcome::AttemptOutcome;
use super::replicas::acknowledge;
use super::{Claim, Core, Session};
use crate::clock::Moment;
use crate::error::{Error, Lost, LostReason};
use crate::hold::{HoldState, Terms, TurnGuard};
use crate::key::QueueSide;
use crate::script::{self, AcquireItem, BatchReply};
use crate::server::{Failure, Sent, TimeBox};

/// Acquires in flight that succeed or fail together. If they are dropped before they are complete, the
/// background undoes them (design: invariant 6).
pub(crate) struct BatchAcquire {
    session: Arc<Session>,
    parts: Vec<PendingAcquire>,
    sent: Sent,
    /// They are permits that never expire.
    is_endless: bool,
    /// What was sent, and its answer, have been recorded in the parts.
    noted: bool,
}

/// The result of one attempt at all of them. An index is the position among the acquires.
pub(crate) enum BatchAttempt {
    Granted {
        /// One for each, in their order.
        claims: Vec<Claim>,
        /// How many permits are left; 0 for locks.
        free: u64,
    },
    /// Another owner has this one, or too few permits are free; the TTL of that hold or of the next
    /// permit to expire, if it has one.
    Busy(usize, Option<Duration>),
    /// A hold to be re-entered was lost.
    Lost(Lost),
    /// One of the holds ended while the command was in flight: the grant does not count.
    Ended,
    /// Granted, but answered after the deadline of one of them: the grant does not count.
    TooLate,
}

impl BatchAttempt {
    /// The result for the only one of them.
    fn of_one(attempt: AttemptOutcome) -> Self {
        match attempt {
            AttemptOutcome::Granted(claim) => Self::Granted {
                claims: vec![claim],
                free: 0,
            },
            AttemptOutcome::Busy(ttl) => Self::Busy(0, ttl),
            AttemptOutcome::Lost(lost) => Self::Lost(lost),
            AttemptOutcome::Ended => Self::Ended,
            AttemptOutcome::TooLate => Self::TooLate,
        }
    }
}

impl PendingAcquire {
    /// Asks for this many permits of a semaphore; 0: for all that are free.
    pub(crate) fn with_permits(self, permits: u32) -> Self {
        self.hold.state().weight = permits;
        self
    }
}

impl BatchAcquire {
    /// Combines these acquires, which are all of this client.
    pub(crate) fn new(session: &Arc<Session>, parts: Vec<PendingAcquire>) -> Self {
        Self {
            session: session.clone(),
            parts,
            sent: Sent::default(),
            is_endless: false,
            noted: false,
        }
    }

    /// Makes the permits endless, by a second command.
    pub(crate) fn endless(mut self, is_endless: bool) -> Self {
        self.is_endless = is_endless;
        self
    }

    pub(super) fn parts(&self) -> &[PendingAcquire] {
        &self.parts
    }

    pub(super) fn turns(&self) -> Vec<&TurnGuard> {
        let parts = self.parts.iter();
        parts.filter_map(PendingAcquire::command).collect()
    }

    /// Sends the command, first at `now`, and retries while there is time and a reason to. The claims
    /// that it returns have neither a watchdog nor a bound: they have to be confirmed.
    ///
    /// An error comes with the index of the acquire that it is about, if there is one.
    ///
    /// # Cancel safety
    ///
    /// The effect of the command is undone in the background.
    pub(crate) async fn attempt(
        mut self,
        lease: Duration,
        now: Moment,
        until: Moment,
    ) -> Result<BatchAttempt, (Option<usize>, Error)> {
        if let [alone] = &mut self.parts[..]
            && alone.hold().key().kind().queue == QueueSide::Server
        {
            // A lock whose queue is on the server is acquired by a query. The single acquire records
            // what was sent, so that its drop undoes it.
            self.noted = true;
            let attempt = alone.attempt(&unconfirmed(lease), now, until).await;
            return attempt
                .map(BatchAttempt::of_one)
                .map_err(|error| (Some(0), error));
        }
        let session = self.session.clone();
        let core = session.core();
        // Checked after the holds were registered, so that a shutdown either sees them or is seen here.
        core.ensure_open().map_err(|error| (None, error))?;
        for part in &self.parts {
            let possible = core.can_be_acknowledged(part.hold().key().key());
            possible.map_err(|error| (None, error))?;
            let confirmed = part.verify_master(lease, now);
            confirmed.map_err(|failure| (None, failure.into()))?;
        }
        let mut targets = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            match part.target(lease, now, until) {
                Some(target) => targets.push(target),
                None => return Ok(gone(part)),
            }
        }
        let time = TimeBox { now, until };
        let Some(acquired) = self.send(core, &targets, lease, time).await else {
            return Ok(BatchAttempt::Ended);
        };
        let is_no = matches!(
            &acquired,
            Ok(BatchReply::Busy(..) | BatchReply::Gone(_)) | Err((_, Failure::Refused { .. }))
        );
        let refused = is_no && self.sent.is_answered();
        self.note(refused);
        match acquired.map_err(|(which, failure)| (which, failure.into()))? {
            BatchReply::Granted {
                token,
                free,
                permits,
            } => {
                for part in &self.parts {
                    part.hold().note_token(token);
                    // The request may have been for all free permits, so only the answer has their number.
                    if part.hold().key().kind().is_counted() {
                        part.hold().state().weight = permits;
                    }
                }
                let acknowledged = self.acknowledged(until).await;
                acknowledged.map_err(|error| (None, error))?;
                if self.is_endless {
                    let made = self.make_endless(core, until).await;
                    if !made.map_err(|error| (None, error))? {
                        return Ok(BatchAttempt::Ended);
                    }
                }
                let accepted = self.accept_grants(lease, free);
                accepted.map_err(|error| (None, error))
            }
            BatchReply::Busy(which, ttl) => Ok(BatchAttempt::Busy(which, ttl)),
            BatchReply::Gone(which) => {
                core.lose(self.parts[which].hold(), LostReason::NotOurs);
                Ok(gone(&self.parts[which]))
            }
        }
    }

    /// Waits until the replicas acknowledge the grant of all of them.
    async fn acknowledged(&mut self, until: Moment) -> Result<(), Error> {
        if self.session.core().server.ack().is_off() {
            return Ok(());
        }
        let mut parts: Vec<&mut PendingAcquire> = self.parts.iter_mut().collect();
        // Boxed because it is large; unboxed it would be part of every acquire.
        Box::pin(acknowledge(&mut parts, until)).await
    }

    async fn send(
        &mut self,
        core: &Core,
        targets: &[u32],
        lease: Duration,
        time: TimeBox,
    ) -> Option<Result<BatchReply, (Option<usize>, Failure)>> {
        self.parts.iter_mut().for_each(PendingAcquire::find_partner);
        self.sent = Sent::with(self.turns().iter().map(|turn| turn.permit()));
        let parts = self.parts.iter();
        let turns: Vec<&TurnGuard> = parts.filter_map(PendingAcquire::command).collect();
        let asked = self.parts.iter().zip(targets);
        let wanted: Vec<AcquireItem<'_>> = asked.map(|(part, target)| part.item(*target)).collect();
        let sending = script::acquire_all(&core.server, &wanted, lease, time, &mut self.sent);
        TurnGuard::drive(&turns, pin!(sending)).await
    }

    fn note(&mut self, refused: bool) {
        self.noted = true;
        for part in &mut self.parts {
            part.note(&self.sent, refused);
        }
    }

    /// Accepts the grants. If one of them does not count, the others are undone.
    fn accept_grants(&mut self, lease: Duration, free: u64) -> Result<BatchAttempt, Error> {
        let terms = unconfirmed(lease);
        let mut claims = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            match part.accept_grant(&terms)? {
                AttemptOutcome::Granted(claim) => {
                    if self.is_endless || !claim.hold().key().kind().has_lease() {
                        let holds = &self.session.core().holds;
                        holds.change(claim.hold(), HoldState::disable_expiry);
                    }
                    claims.push(claim);
                }
                AttemptOutcome::TooLate => return Ok(BatchAttempt::TooLate),
                AttemptOutcome::Lost(lost) => return Ok(BatchAttempt::Lost(lost)),
                AttemptOutcome::Busy(_) | AttemptOutcome::Ended => return Ok(BatchAttempt::Ended),
            }
        }
        Ok(BatchAttempt::Granted { claims, free })
    }
}

impl BatchAttempt {
    /// Accepts permits that were handed over.
    pub(crate) fn of_hand_over(part: PendingAcquire, lease: Duration) -> Result<Self, Error> {
        let mut accepting = BatchAcquire::new(&part.session.clone(), vec![part]);
        // The hand-over has recorded in the part how its command was sent.
        accepting.noted = true;
        accepting.accept_grants(lease, 0)
    }
}

impl Drop for BatchAcquire {
    fn drop(&mut self) {
        if !self.noted {
            // The answer is unknown, so each of them has to be undone.
            self.note(false);
        }
    }
}

/// The terms of claims that have to be confirmed.
fn unconfirmed(lease: Duration) -> Terms {
    Terms::new(lease, false)
}

fn gone(part: &PendingAcquire) -> BatchAttempt {
    match part.gone() {
        AttemptOutcome::Lost(lost) => BatchAttempt::Lost(lost),
        _ => BatchAttempt::Ended,
    }
}
