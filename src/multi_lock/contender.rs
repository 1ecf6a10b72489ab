//! The wait for a multi lock: it waits for the one member that another owner holds, and holds nothing
//! meanwhile. Only what differs from other waits is here.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::MultiLockCall;
use super::members::LockMember;
use super::outcome::{Blocked, MultiRound, Trouble};
use super::queue_wait::{MemberAnswer, MemberQueueWait};
use crate::clock::Moment;
use crate::contend::{
    Attempted, Contender, FailedAttempt, LocalState, OwnerHas, QueuePlace, TimedOut, contend,
};
use crate::error::{Error, Result};
use crate::hold::{Hold, OwnerState};
use crate::observe::{LockRef, Observers};
use crate::owner::Owner;
use crate::session::{Claim, Core};
use crate::wait::{Backoff, READERS_PATIENCE, WaitRequest, WaiterGuard, WaiterKind};

/// A caller that waits for a multi lock, in the queue of one of its members at a time.
struct MultiLockContender<'a> {
    call: &'a MultiLockCall<'a>,
    /// The group to ask before the others: the last one that was busy or failed.
    lead: Option<usize>,
    /// How many rounds had to release other members because one was busy.
    collisions: u32,
    /// Some grants of the last round came after their own deadline.
    too_late: bool,
    /// Its place in the server's queue of the member for which it waits, if that member has such a queue.
    queue_wait: Option<MemberQueueWait>,
}

impl MultiLockCall<'_> {
    /// Waits until all members are acquired or the deadline has come.
    pub(super) async fn wait(&self) -> Result<Option<Vec<Claim>>> {
        let contender = MultiLockContender {
            call: self,
            lead: None,
            collisions: 0,
            too_late: false,
            queue_wait: None,
        };
        let at = self.awaited();
        let now = contender.core(at).clock.now();
        contend(contender, at, now).await
    }

    /// The member for which other calls of its client already wait, if any. This call waits behind them.
    fn awaited(&self) -> Option<usize> {
        let mut members = self.members.list().iter().enumerate();
        let found = members.find(|(at, member)| {
            member.core().waiters.is_awaited(&member.key) && !self.may_overtake(*at)
        });
        found.map(|(at, _)| at)
    }
}

impl Contender for MultiLockContender<'_> {
    type Won = Vec<Claim>;

    fn ensure_open(&self) -> Result<()> {
        let mut members = self.call.members.list().iter();
        members.try_for_each(|member| member.core().ensure_open())
    }

    fn core(&self, at: Option<usize>) -> &Arc<Core> {
        self.call.members.list()[at.unwrap_or_default()].core()
    }

    fn deadline(&self, at: Option<usize>) -> Option<Moment> {
        self.call.deadline_of(self.core(at))
    }

    fn backoff(&self, at: usize) -> Option<Backoff> {
        self.member(at).backoff()
    }

    fn enter(&mut self, at: usize, now: Moment) -> Result<WaiterGuard> {
        let member = &self.call.members.list()[at];
        // A place in another queue is given up here: the call has a place in one queue at a time.
        self.queue_wait = member.has_server_queue().then(|| MemberQueueWait::of(at));
        let options = WaitRequest {
            owner: self.call.owner,
            // A single member is of no use to this call, so it must not be handed over.
            terms: None,
            deadline: self.deadline(Some(at)),
            kind: WaiterKind::of(&member.key, READERS_PATIENCE),
        };
        member.core().waiters.enter(&member.key, options, now)
    }

    /// Takes nothing here: the round counts the members that the owner holds.
    async fn own(
        &mut self,
        place: Option<&QueuePlace>,
        now: &mut Moment,
    ) -> Result<OwnerHas<Self::Won>> {
        if let (Some(place), Some(queue_wait)) = (place, &mut self.queue_wait) {
            queue_wait.check(self.call, &place.waiter, *now);
        }
        Ok(match place {
            // The owner may re-enter a member that it holds.
            Some(place) if self.call.may_overtake(place.at) => OwnerHas::Part,
            _ => OwnerHas::Nothing,
        })
    }

    fn observers(&self) -> &Observers {
        self.call.members.first().core().observers()
    }

    fn shown(&self) -> Option<LockRef<'_>> {
        Some(self.call.shown())
    }

    fn owner(&self) -> Option<Owner> {
        Some(self.call.owner)
    }

    fn local_holder(&self) -> Option<Arc<Hold>> {
        let mut members = self.call.members.list().iter();
        members.find_map(|member| {
            let holds = &member.core().holds;
            holds.of_another(&member.key, self.call.owner)
        })
    }

    fn asks_at_once(&self) -> bool {
        self.queue_wait
            .as_ref()
            .is_some_and(MemberQueueWait::asks_at_once)
    }

    fn kept(&mut self, _now: Moment, has_waited: bool) -> LocalState {
        if let Some(queue_wait) = &self.queue_wait {
            // It keeps its place in that member's queue, whatever its clients do with the other members.
            return queue_wait.kept(self.call, has_waited);
        }
        for (at, member) in self.call.members.list().iter().enumerate() {
            let core = member.core();
            let local = core.holds.local_holds(&member.key, self.call.owner);
            if local.kept_until.is_none() && !local.releasing {
                continue;
            }
            let state = self.call.owner_state(member);
            if !matches!(state, OwnerState::Acquiring | OwnerState::Nothing) {
                // Its own owner holds it, or held it.
                continue;
            }
            if let Some(kept) = local.kept_until {
                let left = kept.since(core.clock.now());
                return LocalState::For { at, left };
            }
            if local.releasing && !has_waited {
                // An attempt is a round at all servers, so the call waits for the release up to its deadline.
                let timeout = Duration::MAX;
                return LocalState::Releasing { at, timeout };
            }
        }
        LocalState::Nothing
    }

    async fn attempt(
        &mut self,
        place: Option<&QueuePlace>,
        _now: Moment,
    ) -> Result<Attempted<Self::Won>> {
        let began = self.call.now();
        let mut turn = None;
        if let (Some(place), Some(queue_wait)) = (place, &mut self.queue_wait) {
            match queue_wait.query(self.call, &place.waiter).await {
                MemberAnswer::Turn(granted) => turn = Some(granted),
                MemberAnswer::Held => {}
                MemberAnswer::Waits(attempted) => return Ok(attempted),
                MemberAnswer::TooLate => {
                    self.too_late = true;
                    return Ok(Attempted::TooLate(self.call.too_late()));
                }
                MemberAnswer::Failed(trouble) => {
                    let took = self.call.now().since(began);
                    return Ok(Attempted::Failed(self.failed(trouble, Some(place), took)));
                }
            }
        }
        let round = self.call.round(self.lead, place, turn).await;
        if let Some(place) = place {
            place.waiter.attempted();
        }
        let took = self.call.now().since(began);
        let round = match round {
            Ok(round) => round,
            Err(trouble) => return Ok(Attempted::Failed(self.failed(trouble, place, took))),
        };
        self.too_late = false;
        Ok(match round {
            MultiRound::Taken(claims) => Attempted::Won(claims),
            MultiRound::Blocked(blocked) => self.blocked(&blocked, took),
            MultiRound::Again => Attempted::Again,
            MultiRound::TooLate => {
                self.too_late = true;
                Attempted::TooLate(self.call.too_late())
            }
        })
    }

    fn about(&self, at: usize, error: Error) -> Error {
        self.call.members.about(at..at + 1, error)
    }

    fn give_up(&self, end: TimedOut<'_>) -> Result<()> {
        // Its own round may have failed at another server than that of its queue. The queue's contender does not
        // know of that.
        if let Some(outage) = end.outage {
            return Err(outage);
        }
        let waited = self.call.waited();
        if let Some(place) = end.place {
            if let Some(outage) = place.waiter.outage() {
                return Err(self.about(place.at, outage));
            }
            let member = self.member(place.at);
            let local = member
                .core()
                .holds
                .local_holds(&member.key, self.call.owner);
            let is_silent = local.kept_until.is_none() && end.silent(waited).is_some();
            // With `is_unreleased`, this member is the one whose release it waits for.
            if is_silent || end.is_unreleased {
                return Err(self.about(place.at, Error::timeout(waited)));
            }
        }
        if self.too_late {
            return Err(Error::timeout(waited));
        }
        Ok(())
    }
}

impl MultiLockContender<'_> {
    fn member(&self, at: usize) -> &LockMember {
        &self.call.members.list()[at]
    }

    /// Handles a round that took this long and found a member that another owner holds.
    fn blocked(&mut self, blocked: &Blocked, took: Duration) -> Attempted<Vec<Claim>> {
        let at = blocked.member;
        tracing::debug!(
            target: "lockdog::wait",
            lock = self.member(at).key.name(),
            ttl_ms = blocked.ttl.map(|ttl| ttl.as_millis() as u64),
            given_back = blocked.collided,
            "a member is held by another owner"
        );
        if self.call.may_reenter(at) {
            // Another call of its own owner acquired it meanwhile.
            return Attempted::Again;
        }
        self.lead = Some(self.call.members.group_of(at));
        if blocked.collided {
            // It leaves the queue.
            self.queue_wait = None;
            return Attempted::Collided(self.back_off(at, took));
        }
        Attempted::Busy {
            at,
            ttl: blocked.ttl,
        }
    }

    /// Other callers want the same members, and each acquired some of them. A random pause, longer each time,
    /// lets one of them succeed.
    fn back_off(&mut self, at: usize, took: Duration) -> Duration {
        self.collisions = (self.collisions + 1).min(MOST_DOUBLINGS);
        let most = took.max(SHORTEST_ROUND) * (1 << self.collisions);
        let clock = &self.member(at).core().clock;
        clock.some_of(most.min(LONGEST_PAUSE))
    }

    /// Handles a round that failed after this time.
    fn failed(
        &mut self,
        trouble: Trouble,
        place: Option<&QueuePlace>,
        took: Duration,
    ) -> FailedAttempt {
        let members = self.call.members;
        let group = members.group_of(trouble.about.start);
        self.lead = Some(group);
        let is_elsewhere = place.is_none_or(|place| members.group_of(place.at) != group);
        if is_elsewhere {
            // It leaves the queue.
            self.queue_wait = None;
        }
        let had_full_timeout = trouble.had_full_timeout;
        let is_cut_off = !had_full_timeout && trouble.error.is_timeout();
        FailedAttempt {
            error: trouble.error.clone(),
            had_full_timeout,
            cut_off_after: is_cut_off.then_some(took),
            is_elsewhere,
            again: None,
            named: self.call.named(trouble),
        }
    }
}

/// Pauses grow to 64 times the length of a round.
const MOST_DOUBLINGS: u32 = 6;

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The smallest length that the pauses are based on; shorter rounds count as this.
const SHORTEST_ROUND: Duration = Duration::from_millis(1);
