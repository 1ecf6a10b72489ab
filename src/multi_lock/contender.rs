//! The wait for a multi lock: for the one member that somebody else has, holding nothing meanwhile. Here is
//! what differs from other waits.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::MultiLockCall;
use super::members::LockMember;
use super::outcome::{Blocked, MultiRound, Trouble};
use crate::clock::Moment;
use crate::contend::{
    Attempted, Contender, Failed, LocalState, OwnerHas, QueuePlace, TimedOut, contend,
};
use crate::error::{Error, Result};
use crate::hold::{Hold, OwnerState};
use crate::owner::Owner;
use crate::session::{Claim, Core};
use crate::wait::{Backoff, WaitRequest, WaiterGuard};

/// A caller that waits for a multi lock, in the queue of one of its members at a time.
struct MultiLockContender<'a> {
    call: &'a MultiLockCall<'a>,
    /// The group that is asked before the others: the last one that was not to be had.
    lead: Option<usize>,
    /// How often others were given back for a member that was not to be had.
    collisions: u32,
    /// The last round was granted after a deadline of its own.
    too_late: bool,
}

impl MultiLockCall<'_> {
    /// Waits until all are acquired or the deadline has come.
    pub(super) async fn wait(&self) -> Result<Option<Vec<Claim>>> {
        let contender = MultiLockContender {
            call: self,
            lead: None,
            collisions: 0,
            too_late: false,
        };
        let at = self.awaited();
        let now = contender.core(at).clock.now();
        contend(contender, at, now).await
    }

    /// Where others of a client wait for a member already, it waits behind them.
    fn awaited(&self) -> Option<usize> {
        let mut members = self.members.list().iter().enumerate();
        let found = members
            .find(|(at, member)| member.core().waiters.is_awaited(&member.key) && !self.holds(*at));
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
        let member = self.member(at);
        member.core().backoff(&member.key)
    }

    fn enter(&mut self, at: usize, now: Moment) -> Result<WaiterGuard> {
        let member = self.member(at);
        let options = WaitRequest {
            owner: self.call.owner,
            // One lock alone is of no use to it, so it is not handed to it.
            terms: None,
            deadline: self.deadline(Some(at)),
        };
        member.core().waiters.enter(&member.key, options, now)
    }

    /// The members that its owner holds are counted by the round, together with those that it acquires.
    async fn own(
        &mut self,
        place: Option<&QueuePlace>,
        _now: &mut Moment,
    ) -> Result<OwnerHas<Self::Won>> {
        Ok(match place {
            // What its owner holds already it may have once more.
            Some(place) if self.call.holds(place.at) => OwnerHas::Part,
            _ => OwnerHas::Nothing,
        })
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

    fn kept(&mut self, _now: Moment, has_waited: bool) -> LocalState {
        for (at, member) in self.call.members.list().iter().enumerate() {
            let core = member.core();
            let local = core.holds.local_holds(&member.key);
            if !local.has_holds {
                continue;
            }
            let standing = core.holds.standing(&member.key, self.call.owner);
            if !matches!(standing, OwnerState::Acquiring | OwnerState::Nothing) {
                // Its own owner has it, or had it.
                continue;
            }
            if let Some(kept) = local.kept_until {
                let left = kept.since(core.clock.now());
                return LocalState::For { at, left };
            }
            if local.releasing && !has_waited {
                // To ask again is a round at all servers, so it waits for as long as it may.
                let patience = Duration::MAX;
                return LocalState::Releasing { at, patience };
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
        let round = self.call.round(self.lead, place).await;
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
        // What its own round met may be of another server than its queue's, whose contender knows nothing
        // of that.
        if let Some(outage) = end.outage {
            return Err(outage);
        }
        let waited = self.call.waited();
        if let Some(place) = end.place {
            if let Some(outage) = place.waiter.outage() {
                return Err(self.about(place.at, outage));
            }
            let member = self.member(place.at);
            let local = member.core().holds.local_holds(&member.key);
            let is_silent = local.kept_until.is_none() && end.silent(waited).is_some();
            // It stands where the release is awaited.
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

    /// A round that took so long found a member that somebody else has.
    fn blocked(&mut self, blocked: &Blocked, took: Duration) -> Attempted<Vec<Claim>> {
        let at = blocked.member;
        tracing::debug!(
            target: "lockdog::wait",
            lock = self.member(at).key.name(),
            ttl_ms = blocked.ttl.map(|ttl| ttl.as_millis() as u64),
            given_back = blocked.collided,
            "a member is held by another"
        );
        if self.call.holds(at) {
            // By its owner, since a moment ago.
            return Attempted::Again;
        }
        self.lead = Some(self.call.members.group_of(at));
        if blocked.collided {
            return Attempted::Collided(self.back_off(at, took));
        }
        Attempted::Busy {
            at,
            ttl: blocked.ttl,
        }
    }

    /// Others want the same members, and each got some of them. A pause by chance, longer each time,
    /// lets one of them be first.
    fn back_off(&mut self, at: usize, took: Duration) -> Duration {
        self.collisions = (self.collisions + 1).min(MOST_DOUBLINGS);
        let most = took.max(SHORTEST_ROUND) * (1 << self.collisions);
        let clock = &self.member(at).core().clock;
        clock.some_of(most.min(LONGEST_PAUSE))
    }

    /// A round failed after this time.
    fn failed(&mut self, trouble: Trouble, place: Option<&QueuePlace>, took: Duration) -> Failed {
        let members = self.call.members;
        let group = members.group_of(trouble.about.start);
        self.lead = Some(group);
        let was_patient = trouble.was_patient;
        let is_cut_off = !was_patient && trouble.error.is_timeout();
        Failed {
            error: trouble.error.clone(),
            was_patient,
            cut_off_after: is_cut_off.then_some(took),
            is_elsewhere: place.is_none_or(|place| members.group_of(place.at) != group),
            again: None,
            named: self.call.named(trouble),
        }
    }
}

/// Pauses grow to 64 times the length of a round.
const MOST_DOUBLINGS: u32 = 6;

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A round of this length or less is not what makes others collide.
const SHORTEST_ROUND: Duration = Duration::from_millis(1);
