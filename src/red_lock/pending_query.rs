//! Requests in flight. Their caller polls them, because their timers belong to the caller's runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::query::{Completion, InstanceQuery, Request};
use super::quorum_hold::QuorumHold;
use crate::clock::Moment;

/// A request in flight. If it is dropped, its effects are undone in the background.
pub(super) type PendingRequest = Pin<Box<dyn Future<Output = Completion> + Send>>;

impl Request {
    /// Executes it when the result is polled.
    pub(super) fn execute(self, hold: &Arc<QuorumHold>) -> PendingRequest {
        match self {
            Self::GiveBack(member, claim) => {
                Box::pin(async move { Completion::GivenBack(member, claim.unlock().await) })
            }
            Self::Ask { asked, until } => {
                let asking = PendingQuery::new(hold, asked);
                Box::pin(asking.ask(until))
            }
        }
    }
}

/// A query in flight. If it is dropped without an answer, it reports to the quorum's core that no answer
/// will come.
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

    /// Asks the instance. The caller passes the answer to the quorum's core.
    async fn ask(mut self, until: Moment) -> Completion {
        let answer = self.hold.ask(&self.asked, until).await;
        self.answered = true;
        Completion::Answered {
            member: self.asked.member,
            round: self.asked.round,
            answer,
        }
    }

    /// Asks the instance in the background, and executes the requests that follow from the answer.
    pub(super) async fn ask_in_background(mut self, until: Moment) {
        let answer = self.hold.ask(&self.asked, until).await;
        self.answered = true;
        let requests = self
            .hold
            .process_answer(self.asked.member, self.asked.round, answer);
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
