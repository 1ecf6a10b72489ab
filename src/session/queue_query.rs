//! The queries of an acquire whose queue is on the server, and what the client keeps of an acquire
//! between its attempts.

use std::pin::pin;
use std::time::Duration;

use super::acquire::PendingAcquire;
use super::attempt_outcome::AttemptOutcome;
use crate::clock::Moment;
use crate::error::{Error, LostReason};
use crate::hold::{Hold, HoldPhase, Terms, TurnGuard};
use crate::script::{self, QueryMode, QueueQuery, QueueReply};
use crate::server::{Failure, Sent, TimeBox};
use crate::wait::QueueEntry;

/// The result of a query.
pub(crate) enum QueueOutcome {
    /// The acquire is complete.
    Ended(AttemptOutcome),
    /// Another holder has the lock, or another waiter is first.
    Waits {
        /// The TTL of the holder, if there is one and it has one.
        ttl: Option<Duration>,
        /// When the acquire took its place by this query, by the server's clock.
        arrival: Option<u64>,
        /// The field of the first waiter, if the lock is free.
        head: Option<String>,
    },
    /// It has no place in the server's queue any more.
    NoPlace,
}

impl PendingAcquire {
    /// Called when the caller keeps the acquire for a later attempt. After a definite no there is no grant
    /// to accept meanwhile, so the time limit for that does not apply.
    pub(crate) fn rest(&self) {
        if self.refused {
            let core = self.session.core();
            core.holds.change(&self.hold, |state| state.awaited = false);
        }
    }

    /// Whether it cannot be used again: the answer to a repeated command says nothing about the earlier
    /// sendings.
    pub(crate) fn is_spent(&self) -> bool {
        !self.refused || self.hold.state().phase != HoldPhase::Pending
    }

    /// Queries the lock from the acquire's place in the server's queue. The query keeps the waiters with the
    /// fields `others` present too. Sends the command first at `now`, and retries while there is time and a
    /// reason to.
    ///
    /// Unless the acquire is complete, this may be called again, also after an error. If an unanswered query
    /// began a hold, the next query finds that hold and extends its lease. So the deadline counts from the
    /// next query.
    ///
    /// # Cancel safety
    ///
    /// The effect of the command is undone in the background.
    pub(crate) async fn query(
        &mut self,
        mode: QueryMode,
        others: &[String],
        terms: &Terms,
        now: Moment,
        until: Moment,
    ) -> Result<QueueOutcome, Error> {
        let until_taken = self.session.core().left_after(until);
        self.session.core().holds.change(&self.hold, |state| {
            if state.awaited {
                // The caller's future is polled, so it gets more time to accept a grant, even if nothing
                // can be sent now.
                state.require_acceptance(until_taken);
            }
        });
        let Some(target) = self.prepare(terms.lease, now, until)? else {
            return Ok(QueueOutcome::Ended(self.gone()));
        };
        self.has_place |= mode == QueryMode::Enter;
        let core = self.session.core();
        let field = core.field(&self.hold);
        let query = QueueQuery {
            mode,
            field: &field,
            target,
            lease: terms.lease,
            queue_timeouts: core.settings.queue_timeouts,
            others,
        };
        let turn = self.command.as_ref();
        let answer = {
            let sending = pin!(script::query_queue(
                &core.server,
                self.hold.key(),
                &query,
                TimeBox { now, until },
                &mut self.sent,
            ));
            TurnGuard::drive(turn.as_slice(), sending).await
        };
        let Some(answer) = answer else {
            // Another party took the turn over, and settles the command.
            return Ok(QueueOutcome::Ended(self.gone()));
        };
        if until.since(now) >= core.server.command_timeout() {
            // The server had a full command timeout. No settlement follows that would notice a half-open
            // connection.
            core.server.abandon_unanswered(&answer, &self.sent);
        }
        let is_no = !matches!(&answer, Ok(QueueReply::Granted(_)) | Err(_))
            || matches!(&answer, Err(Failure::Refused { .. }));
        self.refused = is_no && self.sent.is_answered();
        match answer? {
            QueueReply::Granted(token) => {
                self.hold.note_token(token);
                self.acknowledged(until, false).await?;
                self.accept_grant(terms).map(QueueOutcome::Ended)
            }
            QueueReply::Waits { ttl, arrival, head } => {
                Ok(QueueOutcome::Waits { ttl, arrival, head })
            }
            QueueReply::NoPlace => Ok(QueueOutcome::NoPlace),
            QueueReply::Gone => {
                core.lose(&self.hold, LostReason::NotOurs);
                Ok(QueueOutcome::Ended(self.gone()))
            }
        }
    }

    /// One attempt without a place in the server's queue.
    pub(super) async fn try_once(
        &mut self,
        terms: &Terms,
        now: Moment,
        until: Moment,
    ) -> Result<AttemptOutcome, Error> {
        Ok(
            match self.query(QueryMode::Try, &[], terms, now, until).await? {
                QueueOutcome::Ended(outcome) => outcome,
                QueueOutcome::Waits { ttl, .. } => AttemptOutcome::Busy(ttl),
                QueueOutcome::NoPlace => AttemptOutcome::Busy(None),
            },
        )
    }

    /// Whether another query may follow: the hold has not ended, and no other party has taken its turn over.
    pub(crate) fn may_query(&self) -> bool {
        self.hold.state().phase == HoldPhase::Pending
            && self.command.as_ref().is_some_and(TurnGuard::is_valid)
    }

    /// Whether the last answer was a definite no to the only sending. If not, an earlier sending may still be
    /// granted.
    pub(crate) fn is_certain(&self) -> bool {
        self.refused
    }

    /// Its place in the server's queue, for a holder that hands the lock to it.
    pub(crate) fn queue_entry(&self) -> QueueEntry {
        let core = self.session.core();
        let channel = core.channel_of(&self.hold);
        QueueEntry {
            hold: self.hold.clone(),
            permit: self.command.as_ref().map(TurnGuard::permit),
            channel: channel.into(),
        }
    }

    /// A hand-over granted it.
    pub(crate) fn received(&mut self, sent: Sent) {
        self.sent = sent;
        self.refused = false;
    }
}

impl super::Core {
    /// The channel on which the waiter with this hold gets its messages.
    fn channel_of(&self, hold: &Hold) -> String {
        let prefix = hold.key().channel().unwrap_or_default();
        format!("{prefix}:{}", self.field(hold))
    }
}
