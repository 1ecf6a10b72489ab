//! One attempt to acquire a lock that is a member of a quorum.

use std::pin::pin;
use std::time::Duration;

use super::acquire::PendingAcquire;
use super::attempt_outcome::AttemptOutcome;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::{Terms, TurnGuard};
use crate::script::{self, AcquireReply, InstanceChecks, RegisterState};
use crate::server::TimeBox;

/// The result of one attempt for a member of a quorum.
pub(crate) struct MemberAttempt {
    /// `Busy` in quarantine.
    pub(crate) attempt: AttemptOutcome,
    /// The server may have lost its data, and grants nothing for this long.
    pub(crate) quarantined: Option<Duration>,
    pub(crate) register: Option<RegisterState>,
    /// The moment since which its data may have been lost, as the client sent it to the server; in
    /// milliseconds of the server's clock.
    pub(crate) asked_since: u64,
}

impl From<AttemptOutcome> for MemberAttempt {
    fn from(attempt: AttemptOutcome) -> Self {
        Self {
            attempt,
            quarantined: None,
            register: None,
            asked_since: 0,
        }
    }
}

impl PendingAcquire {
    /// As [`PendingAcquire::attempt`], for a member of a quorum. The result includes what the command
    /// found besides the lock.
    ///
    /// # Cancel safety
    ///
    /// As [`PendingAcquire::attempt`].
    pub(crate) async fn attempt_member(
        &mut self,
        terms: &Terms,
        guards: InstanceChecks,
        now: Moment,
        until: Moment,
    ) -> Result<MemberAttempt, Error> {
        if guards.is_none() {
            return Ok(self.attempt_for(terms, now, until, true).await?.into());
        }
        let Some(target) = self.prepare(terms.lease, now, until)? else {
            return Ok(self.gone().into());
        };
        let core = self.session.core();
        let field = core.field(&self.hold);
        let turn = self.command.as_ref();
        let taken = {
            let sending = pin!(script::acquire_member(
                &core.server,
                self.hold.key(),
                &field,
                target,
                terms.lease,
                guards,
                TimeBox { now, until },
                &mut self.sent,
            ));
            TurnGuard::drive(turn.as_slice(), sending).await
        };
        let Some(taken) = taken else {
            return Ok(self.gone().into());
        };
        let asked_since = taken.as_ref().map_or(0, |taken| taken.asked_since);
        let (acquired, quarantined, register) = match taken {
            Ok(taken) => (Ok(taken.acquired), taken.quarantined, taken.register),
            Err(failure) => (Err(failure), None, None),
        };
        if matches!(acquired, Ok(AcquireReply::Granted(_))) {
            self.acknowledged(until, true).await?;
        }
        Ok(MemberAttempt {
            attempt: self.answered(acquired, terms)?,
            quarantined,
            register,
            asked_since,
        })
    }
}
