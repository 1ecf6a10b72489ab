//! What the answer to an acquire means for its hold.

use super::acquire::PendingAcquire;
use super::attempt_outcome::AttemptOutcome;
use crate::error::{Error, LostReason};
use crate::hold::{HoldPhase, Terms};
use crate::script::AcquireReply;
use crate::server::Failure;

impl PendingAcquire {
    /// Processes the server's answer.
    pub(super) fn answered(
        &mut self,
        acquired: Result<AcquireReply, Failure>,
        terms: &Terms,
    ) -> Result<AttemptOutcome, Error> {
        let core = self.session.core();
        let is_no = matches!(
            &acquired,
            Ok(AcquireReply::Busy(_)
                | AcquireReply::Unlisted(_)
                | AcquireReply::Gone
                | AcquireReply::WouldDeadlock)
                | Err(Failure::Refused { .. })
        );
        self.refused = is_no && self.sent.is_answered();
        match acquired? {
            AcquireReply::Granted(_) => self.accept_grant(terms),
            AcquireReply::Busy(ttl) => Ok(AttemptOutcome::Busy(ttl)),
            AcquireReply::Unlisted(ttl) => {
                core.waiters.refuse_lists();
                Ok(AttemptOutcome::Busy(ttl))
            }
            AcquireReply::Gone if self.modes.upgrades && self.first => {
                // The read hold is gone, and there is no write hold yet.
                let reads = core.holds.partner_of(self.hold.key(), self.hold.owner());
                if let Some(reads) = reads {
                    core.lose(&reads, LostReason::NotOurs);
                }
                Ok(AttemptOutcome::Ended)
            }
            AcquireReply::Gone => {
                core.lose(&self.hold, LostReason::NotOurs);
                Ok(self.gone())
            }
            AcquireReply::WouldDeadlock => self.would_deadlock(),
        }
    }

    /// The server reports a deadlock: the owner would wait for a lock that it holds itself.
    fn would_deadlock(&self) -> Result<AttemptOutcome, Error> {
        let (key, owner) = (self.hold.key(), self.hold.owner());
        let holds = &self.session.core().holds;
        if !key.values().is_empty() && holds.overlapping(key, owner).is_none() {
            // The owner has no valid hold on these values in this client: they are being released, or a
            // guard left them to their lease. So this is no deadlock.
            return Ok(AttemptOutcome::Busy(None));
        }
        Err(self.hold.would_deadlock())
    }

    /// The result for a hold that ended or was lost before it could accept a grant.
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
