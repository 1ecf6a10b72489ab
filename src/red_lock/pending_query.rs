//! Queries under way.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use lockdog_quorum::Quorum;

use super::query::{Completion, InstanceQuery};
use super::quorum_hold::QuorumHold;
use crate::clock::Moment;

pub(super) type Doing = Pin<Box<dyn Future<Output = Completion> + Send>>;

impl InstanceQuery {
    /// Asks the instance. The future uses resources of the runtime that polls it.
    pub(super) fn ask(&self, hold: &Arc<QuorumHold>, until: Moment) -> Doing {
        let (hold, asked) = (hold.clone(), self.clone());
        Box::pin(async move {
            let told = hold.ask(&asked, until).await;
            Completion::Answered {
                member: asked.member,
                round: asked.round,
                told,
            }
        })
    }
}

/// A query under way. If it is dropped without an answer, it tells the quorum's core that none comes.
pub(super) struct PendingQuery {
    hold: Arc<QuorumHold>,
    asked: InstanceQuery,
    answered: bool,
}

impl PendingQuery {
    pub(super) fn new(hold: &Arc<QuorumHold>, asked: InstanceQuery) -> Self {
        let hold = hold.clone();
        Self {
            hold,
            asked,
            answered: false,
        }
    }

    pub(super) fn member(&self) -> usize {
        self.asked.member
    }

    /// Whether an answer may still change something.
    pub(super) fn is_awaited(&self, quorum: &Quorum) -> bool {
        quorum.awaits(self.asked.member, self.asked.round)
    }

    /// The caller passes the answer to the quorum's core, or the core does not need it.
    pub(super) fn is_answered(&mut self) {
        self.answered = true;
    }

    /// Asks the instance in the background, and executes the requests that follow from the answer.
    pub(super) async fn ask_behind(mut self, until: Moment) {
        let told = self.hold.ask(&self.asked, until).await;
        self.is_answered();
        let requests = self.hold.take_in(self.asked.member, self.asked.round, told);
        self.hold.delegate(requests);
    }
}

impl Drop for PendingQuery {
    fn drop(&mut self) {
        if !self.answered {
            self.hold.note_dropped(self.asked.member, self.asked.round);
        }
    }
}
