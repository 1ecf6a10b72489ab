//! The wait for a member whose waiters are in a queue on the server. The multi lock is there as one
//! waiter of that member, and asks for the other members once it is granted.

use std::time::Duration;

use super::acquire::MultiLockCall;
use super::outcome::Trouble;
use super::round::MemberTurn;
use crate::clock::Moment;
use crate::contend::{Attempted, LocalState};
use crate::hold::{POLL_TIMEOUT, Terms};
use crate::lock::{QueryResult, QueueCall, QueueWait, next_query};
use crate::session::{AttemptOutcome, Claim};
use crate::wait::WaiterGuard;

/// A multi lock's place in the server's queue of one of its members.
pub(super) struct MemberQueueWait {
    at: usize,
    queue_wait: QueueWait,
    /// How long it may send nothing while its client has the member.
    silent_for: Duration,
}

/// The result of a query at that member.
pub(super) enum MemberAnswer {
    /// It is granted: the other members can be asked for.
    Turn(MemberTurn),
    /// The call's owner has it: the place is given up, and the round acquires it once more.
    Held,
    Waits(Attempted<Vec<Claim>>),
    /// Granted, but answered after the grant's own deadline.
    TooLate,
    Failed(Trouble),
}

impl MemberQueueWait {
    /// A wait for this member, which has no place on the server yet.
    pub(super) fn of(at: usize) -> Self {
        Self {
            at,
            queue_wait: QueueWait::default(),
            silent_for: Duration::MAX,
        }
    }

    /// Whether the call has to query now, even without the contender's role.
    pub(super) fn asks_at_once(&self) -> bool {
        self.queue_wait.asks_at_once()
    }

    /// Updates how long the call may send nothing.
    pub(super) fn check(&mut self, call: &MultiLockCall<'_>, waiter: &WaiterGuard, now: Moment) {
        let core = call.members.list()[self.at].core();
        self.silent_for = next_query(core, waiter, now);
    }

    /// Queries whether this call is the first in the server's queue.
    ///
    /// # Cancel safety
    ///
    /// The place is given up in the background.
    pub(super) async fn query(
        &mut self,
        call: &MultiLockCall<'_>,
        waiter: &WaiterGuard,
    ) -> MemberAnswer {
        let at = self.at;
        if call.may_overtake(at) {
            self.queue_wait.give_up(waiter);
            return MemberAnswer::Held;
        }
        let began = call.now();
        let member = &call.members.list()[at];
        let core = member.core();
        // As for the other members: the round confirms all claims together.
        let terms = Terms {
            watched: false,
            max_hold: None,
            local: false,
            ..call.terms[call.members.group_of(at)]
        };
        let query_call = QueueCall {
            session: &member.session,
            key: &member.key,
            owner: call.owner,
            terms: &terms,
            at,
        };
        let now = core.clock.now();
        let until = call.until(core, now);
        match self.queue_wait.query(&query_call, waiter, now, until).await {
            QueryResult::Waits(attempted) => MemberAnswer::Waits(attempted),
            QueryResult::Ended(_, AttemptOutcome::Granted(claim)) => {
                // The next of this client's waiters queries while this call asks for the other members.
                self.queue_wait.give_up(waiter);
                MemberAnswer::Turn(MemberTurn {
                    member: at,
                    claim,
                    began,
                })
            }
            QueryResult::Ended(_, AttemptOutcome::TooLate) => MemberAnswer::TooLate,
            QueryResult::Ended(..) => MemberAnswer::Waits(Attempted::Again),
            QueryResult::Failed(error) => MemberAnswer::Failed(Trouble {
                about: at..at + 1,
                error,
                had_full_timeout: MultiLockCall::has_full_timeout(core, now, until),
            }),
        }
    }

    /// What this client does with the member. The call still queries its place from time to time.
    pub(super) fn kept(&self, call: &MultiLockCall<'_>, has_waited: bool) -> LocalState {
        let at = self.at;
        let member = &call.members.list()[at];
        let core = member.core();
        let local = core.holds.local_holds(&member.key, call.owner);
        if let Some(kept) = local.kept_until {
            let left = kept.since(core.clock.now()).min(self.silent_for);
            return match left.is_zero() {
                true => LocalState::Nothing,
                false => LocalState::For { at, left },
            };
        }
        if local.releasing && !has_waited {
            let timeout = POLL_TIMEOUT;
            return LocalState::Releasing { at, timeout };
        }
        LocalState::Nothing
    }
}
