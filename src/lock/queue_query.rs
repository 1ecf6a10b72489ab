//! The queries of a call that waits for one lock whose queue is on the server.

use std::time::Duration;

use super::acquire::LockCall;
use super::contender::{LockContender, ONLY};
use super::queue_wait::{QueryResult, QueueCall, next_query};
use crate::clock::Moment;
use crate::contend::{Attempted, QueuePlace};
use crate::key::QueueSide;
use crate::session::Claim;
use crate::wait::WaiterGuard;

impl LockContender<'_> {
    /// One query from the waiter's place in the server's queue.
    pub(super) async fn query(&mut self, waiter: &WaiterGuard, now: Moment) -> Attempted<Claim> {
        let LockCall {
            session,
            key,
            owner,
            terms,
            ..
        } = *self.caller;
        let call = QueueCall {
            session,
            key,
            owner,
            terms,
            at: ONLY,
        };
        let until = self.caller.until(now);
        match self.queue_wait.query(&call, waiter, now, until).await {
            QueryResult::Waits(attempted) => {
                if matches!(attempted, Attempted::Busy { .. } | Attempted::Taken { .. }) {
                    self.too_late = None;
                }
                attempted
            }
            QueryResult::Ended(hold, outcome) => self.evaluate(&hold, outcome),
            QueryResult::Failed(error) => self.failed(error, now),
        }
    }

    /// How long the contender may send nothing while its own client has the lock.
    pub(super) fn may_be_silent(&self, place: Option<&QueuePlace>, now: Moment) -> Duration {
        match (self.caller.key.kind().queue, place) {
            (QueueSide::Server, Some(place)) => next_query(self.caller.core(), &place.waiter, now),
            _ => Duration::MAX,
        }
    }
}
