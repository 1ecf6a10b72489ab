//! Lengthening the lease of a hold, for a guard.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::error::{Error, LostReason, Result};
use crate::hold::Hold;
use crate::lease;
use crate::script::RenewReply;
use crate::server::Addressee;

impl Core {
    /// Extends a hold so that it ends `lease` from now or later. The client's thread sends the command, as
    /// for a renewal, so a caller that is not polled delays no other party.
    pub(crate) async fn lengthen(&self, hold: &Arc<Hold>, lease: Duration) -> Result<()> {
        self.ensure_held(hold)?;
        self.ensure_open()?;
        lease::check_lease("lease", lease, self.settings.max_lease)?;
        // The lease must not go beyond the `max_hold` of the hold.
        let allowed = hold.state().max_until.since(self.clock.now());
        let lease = lease::whole(lease.min(allowed));
        if lease < lease::SHORTEST {
            // Its `max_hold` is nearly over: no lease that Redis accepts is short enough.
            return Ok(());
        }
        let limit = self.server.command_timeout();
        let addressee = Addressee::default();
        let asked = self.extend(hold, lease, limit * 3, &addressee);
        match tokio::time::timeout(limit, asked).await {
            // The answer may come after the deadline: then the hold was lost before it was extended.
            Ok(Ok(RenewReply::Extended)) => {
                self.ensure_held(hold)?;
                // A reader of Redisson may set the lock's TTL to its own, shorter lease, so the
                // watchdog has to renew this lease.
                if hold.key().kind().has_shared_ttl() {
                    let every = self.settings.watchdog_lease;
                    self.holds.change(hold, |state| state.expose(every));
                }
                Ok(())
            }
            // The field is gone. If the client knows a more exact reason, such as the deadline, it
            // reports that one.
            Ok(Ok(RenewReply::Missing)) => {
                self.ensure_held(hold)?;
                Err(hold.lost_as(LostReason::NotOurs, self.clock.now()).into())
            }
            Ok(Ok(RenewReply::Unknown)) => {
                let cause = "the server could not extend the lease".into();
                Err(Error::Unavailable { cause })
            }
            Ok(Err(failure)) => Err(failure.into()),
            // The caller waits one command timeout. The command itself may take longer and still succeed.
            Err(_) => Err(hold.unanswered(limit)),
        }
    }

    fn ensure_held(&self, hold: &Arc<Hold>) -> Result<()> {
        let Some(lost) = hold.loss(self.clock.now()) else {
            return Ok(());
        };
        // Recorded, so that a renewal that is answered later does not make the hold valid again after
        // the caller got this error.
        self.lose(hold, lost.reason());
        Err(lost.into())
    }
}
