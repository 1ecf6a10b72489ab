//! Waiting for replicas behind a grant, and undoing one that they do not have in time.

use std::time::Duration;

use super::Core;
use super::acquire::PendingAcquire;
use super::settle::{Job, JobOutcome};
use crate::clock::Moment;
use crate::error::{Error, NotReplicated};
use crate::hold::HoldState;
use crate::script;
use crate::server::Unacknowledged;

impl Core {
    /// Refuses an acquire of which it is known that nobody could acknowledge it.
    pub(super) fn can_be_acknowledged(&self, key: &str) -> Result<(), Error> {
        match self.server.ack_refusal(key) {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    /// Up to when the answer to an acquire may be had that is given up by `until`; later than that
    /// only where replicas are waited for, and the grant is to be undone then.
    pub(crate) fn answered_by(&self, until: Moment) -> Option<Moment> {
        let waits = !self.server.ack().is_off();
        waits.then(|| until + TO_UNDO)
    }
}

impl PendingAcquire {
    /// Waits for the replicas behind a grant, up to `until`. What they do not have in time, where it is
    /// required, is undone before the error is told, or in the background. A re-entry waits for
    /// nothing, and neither does a quorum's member where nothing is required: the other members are
    /// there for what this one may lose.
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
        // Boxed: it is large, and part of every acquire otherwise.
        Box::pin(acknowledge(&mut [self], until)).await
    }

    /// As [`PendingAcquire::acknowledged`], for the grant of a hand-over.
    pub(crate) async fn acknowledged_by_hand(&mut self, until: Moment) -> Result<(), Error> {
        self.acknowledged(until, false).await
    }

    /// Leaves what was granted to the background, which tells when it is undone.
    fn give_up(&mut self) -> tokio::sync::oneshot::Receiver<JobOutcome> {
        let core = self.session.core();
        if self.first {
            core.holds.change(&self.hold, HoldState::end);
        }
        let (command, on) = (self.command.take(), self.sent.on.take());
        let (job, answered) = Job::answering_after(self.hold.clone(), command, on);
        // Nothing is left to do at the drop.
        self.granted = true;
        core.settle_in_background(job);
        answered
    }
}

/// Waits for the replicas behind a command that granted all of these.
pub(super) async fn acknowledge(
    granted: &mut [&mut PendingAcquire],
    until: Moment,
) -> Result<(), Error> {
    let Some(first) = granted.iter().find(|it| it.first) else {
        return Ok(());
    };
    let core = first.session.core().clone();
    let Some(on) = first.sent.on.clone() else {
        return Ok(());
    };
    for acquiring in &*granted {
        // Whoever looks for grants that nobody takes in shall wait as long.
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
    let patience = until.since(core.clock.now()).max(TO_UNDO);
    let undone = tokio::time::timeout(patience, futures_util::future::join_all(undoing)).await;
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

/// An acquire that is not acknowledged at the end of its time takes this much longer to be undone.
const TO_UNDO: Duration = Duration::from_millis(100);
