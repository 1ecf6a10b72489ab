//! Waits until replicas acknowledge a grant, and undoes a grant that they do not acknowledge in time.

use std::time::Duration;

use super::Core;
use super::acquire::PendingAcquire;
use super::job_outcome::JobOutcome;
use super::settle::Job;
use crate::clock::Moment;
use crate::error::{Error, NotReplicated};
use crate::hold::HoldState;
use crate::script;
use crate::server::Unacknowledged;

impl Core {
    /// Refuses an acquire if it is already known that it cannot be acknowledged.
    pub(super) fn can_be_acknowledged(&self, key: &str) -> Result<(), Error> {
        match self.server.ack_refusal(key) {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    /// The latest moment of an answer to an acquire that is given up by `until`. It is later than
    /// `until` only if replicas have to acknowledge, because an unacknowledged grant is undone.
    pub(crate) fn answered_by(&self, until: Moment) -> Option<Moment> {
        let waits = !self.server.ack().is_off();
        waits.then(|| until + TO_UNDO)
    }
}

impl PendingAcquire {
    /// Waits until the replicas acknowledge a grant, at most until `until`. If an acknowledgement is
    /// required but missing, the grant is undone, before the error is returned or in the background. A
    /// re-entry does not wait. Neither does a member of a quorum unless acknowledgement is required:
    /// the other members cover the loss of this one.
    ///
    /// # Cancel safety
    ///
    /// The grant is undone in the background.
    pub(super) async fn acknowledged(
        &mut self,
        until: Moment,
        is_member: bool,
    ) -> Result<(), Error> {
        let ack = self.session.core().server.ack();
        if ack.is_off() || !self.first || (is_member && !ack.is_required()) {
            return Ok(());
        }
        // Boxed because it is large; unboxed it would be part of every acquire.
        Box::pin(acknowledge(&mut [self], until)).await
    }

    /// As [`PendingAcquire::acknowledged`], for the grant of a hand-over.
    pub(crate) async fn acknowledged_by_hand(&mut self, until: Moment) -> Result<(), Error> {
        self.acknowledged(until, false).await
    }

    /// Leaves the grant to the background. The receiver is notified when it is undone.
    fn give_up(&mut self) -> tokio::sync::oneshot::Receiver<JobOutcome> {
        let core = self.session.core();
        if self.first {
            core.holds.change(&self.hold, HoldState::end);
        }
        let (command, on) = (self.command.take(), self.sent.on.take());
        let (job, answered) = Job::answering_after(self.hold.clone(), command, on);
        // The drop must undo nothing.
        self.granted = true;
        core.settle_in_background(job);
        answered
    }
}

/// Waits until the replicas acknowledge the command that granted all of these.
pub(super) async fn acknowledge(
    granted: &mut [&mut PendingAcquire],
    until: Moment,
) -> Result<(), Error> {
    // A re-entry does not wait for replicas.
    let Some(first) = granted.iter().find(|it| it.first) else {
        return Ok(());
    };
    let core = first.session.core().clone();
    let Some(on) = first.sent.on.clone() else {
        return Ok(());
    };
    for acquiring in &*granted {
        // The watchdog must not take these for abandoned grants while this call waits.
        core.holds.change(&acquiring.hold, |state| {
            if state.is_awaited() {
                state.deadline = state.deadline.max(until + TO_UNDO);
            }
        });
    }
    let key = first.hold.key().clone();
    let field = core.field(&first.hold);
    let acknowledged = script::acknowledge(&core.server, &key, &field, &on, until).await;
    let Err(unacknowledged) = acknowledged else {
        return Ok(());
    };
    let undoing: Vec<_> = granted.iter_mut().map(|it| it.give_up()).collect();
    let limit = until.since(core.clock.now()).max(TO_UNDO);
    let undone = tokio::time::timeout(limit, futures_util::future::join_all(undoing)).await;
    let undone = undone.is_ok_and(|all| {
        all.into_iter()
            .all(|it| it.is_ok_and(JobOutcome::is_answered))
    });
    Err(match unacknowledged {
        Unacknowledged::Refused(failure) => failure.into(),
        Unacknowledged::TooFew {
            acknowledged,
            required,
            cause,
        } => NotReplicated::new(key.name(), [acknowledged, required], cause, undone).into(),
    })
}

/// How much longer an acquire may take to undo an unacknowledged grant.
const TO_UNDO: Duration = Duration::from_millis(100);
