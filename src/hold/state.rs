//! The state of one hold, and its transitions. There is no clock, task or socket in here: every
//! decision takes the time as an argument.

use std::num::NonZeroU64;
use std::time::Duration;

use super::Streak;
use super::thin_list::ThinList;
use super::unreported_loss::UnreportedLoss;
use crate::clock::Moment;
use crate::error::LostReason;
use crate::observe::End;

/// The life cycle of a hold (design: invariant 5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HoldPhase {
    /// Its acquire is in flight. Becomes Held by a grant in time, else Ended.
    Pending,
    /// Redis granted it. Becomes Jeopardy when a renewal fails, Lost, or Ended with its last claim.
    Held,
    /// Renewals fail. Becomes Held by a successful one, or when the last claim that needs them ends; else as Held.
    Jeopardy,
    /// The lock is gone and its claims are notified. Becomes Ended when the last claim is dropped.
    Lost(LostReason),
    /// Ended by its owner: its field in Redis has to be deleted. This is final.
    Ended,
}

/// What one acquire asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The lease that is sent.
    pub(crate) lease: Duration,
    /// The watchdog renews it.
    pub(crate) watched: bool,
    /// How long the watchdog may keep it.
    pub(crate) max_hold: Option<Duration>,
    /// The claim may be counted locally if the hold exists and does not need a longer lease.
    pub(crate) local: bool,
    /// How long the lock stays in Redis at least.
    pub(crate) at_least: Option<Duration>,
}

impl Terms {
    /// This lease, and no further terms.
    pub(crate) const fn new(lease: Duration, watched: bool) -> Self {
        Self {
            lease,
            watched,
            max_hold: None,
            local: false,
            at_least: None,
        }
    }
}

/// What one claim adds to the counts of its hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ClaimFlags {
    /// It was acquired without a lease.
    pub(crate) watched: bool,
    /// It is counted locally only.
    pub(crate) local: bool,
    /// It belongs to a composite lock, which reports its loss itself.
    pub(crate) part: bool,
    /// What it adds to the count: 1, and for a semaphore the number of its permits.
    pub(crate) weight: u32,
}

/// The state of one hold.
#[derive(Debug)]
pub(crate) struct HoldState {
    pub(crate) phase: HoldPhase,
    /// Living claims: guards and forgotten ones. Of a semaphore, their permits.
    pub(crate) count: u32,
    /// What an acquire adds to the count: 1, and for a semaphore the number of its permits.
    pub(crate) weight: u32,
    /// What the ledger of a semaphore is known to have of it. 0 while a command without an answer may have
    /// changed that.
    pub(crate) known: u32,
    /// Each sending of its acquire was answered, so none of them can still run.
    pub(crate) certain: bool,
    /// The claims among them that Redis does not count. Never all of them, because Redis deletes a
    /// field with the count zero. When the last counted claim ends, a local one takes its place.
    pub(crate) local: u32,
    /// The claims among them that were acquired without a lease.
    pub(crate) watched: u32,
    /// The claims among them that belong to composite locks.
    pub(crate) parts: u32,
    /// The claims among them whose guards were forgotten.
    pub(super) forgotten: ThinList<ClaimFlags>,
    /// The claims among them that ended and left the lock in Redis to its lease. The number stays when
    /// the hold ends: such a hold deletes nothing in Redis.
    pub(crate) left: u32,
    /// Until when the hold counts as held.
    pub(crate) deadline: Moment,
    /// Until when Redis may still have something of it.
    pub(crate) remains_until: Moment,
    /// When the watchdog should renew it next.
    pub(crate) renew_at: Moment,
    /// The watchdog may not keep it beyond this.
    pub(crate) max_until: Moment,
    pub(crate) acquired: Moment,
    /// When the last successful grant or renewal was sent.
    pub(crate) renewed: Moment,
    /// The command that ends it hands the lock to another owner of this client.
    pub(crate) handing_on: bool,
    /// Its unlock is in flight: the latest moment at which the background checks on it.
    pub(crate) hasten_at: Moment,
    /// The release of a part of a semaphore's permits is in flight. Others wait for that part, too.
    pub(crate) is_lowering: bool,
    /// A settlement was sent and failed, so its field may remain for as long as the lease.
    pub(crate) unsettled: bool,
    /// The current server may not know it: the watchdog has to check, even without a watched claim.
    pub(crate) doubted: bool,
    /// Redis granted it, or may have, so a server may have something of it.
    pub(crate) granted: bool,
    /// The number of server switches at the time when it was last released again.
    pub(crate) released_after: u64,
    /// Redis granted it or may have; its caller has until the deadline to accept the grant.
    pub(crate) awaited: bool,
    /// The fencing token of the hold, if its kind issues tokens. It stays when the hold ends.
    pub(crate) token: Option<NonZeroU64>,
    /// Until when its lock is kept in Redis at least, also if it ends earlier.
    pub(crate) kept_until: Moment,
    /// It ended, and the server has its lock for the rest of that time.
    pub(crate) lingers: bool,
    /// The longest lease that was sent for it, in milliseconds.
    pub(crate) lease_ms: u32,
    /// Its fixed lease is longer than others may let the lock live, so the watchdog renews what is left of it.
    pub(crate) exposed: bool,
    /// The hand-overs that led to this hold; few holds have any.
    pub(crate) streak: Option<Box<Streak>>,
    /// Another owner of this client handed it over.
    pub(crate) handed_over: bool,
    /// Its owner had it, and the observers were not notified of its end yet.
    pub(crate) owes_end: bool,
    /// In which way its owner ended it.
    pub(crate) ended_as: End,
    /// Its loss, until a party reports it.
    pub(crate) unreported: Option<UnreportedLoss>,
}

/// What has to be done after a claim was dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Dropped {
    /// Send a settlement to Redis.
    Settle,
    /// The hold ended with the claim. Redis can have nothing of it, or what it has is left to its lease.
    Forget,
    /// Nothing: the hold continues, or another party ends it.
    Nothing,
}

impl HoldState {
    pub(crate) fn pending(now: Moment) -> Self {
        Self {
            phase: HoldPhase::Pending,
            count: 0,
            weight: 1,
            known: 0,
            certain: false,
            local: 0,
            watched: 0,
            parts: 0,
            forgotten: ThinList::EMPTY,
            left: 0,
            deadline: now,
            remains_until: now,
            renew_at: Moment::NEVER,
            max_until: Moment::NEVER,
            acquired: now,
            renewed: now,
            handing_on: false,
            hasten_at: Moment::NEVER,
            is_lowering: false,
            unsettled: false,
            doubted: false,
            granted: false,
            released_after: 0,
            awaited: false,
            token: None,
            kept_until: Moment(0),
            lingers: false,
            lease_ms: 0,
            exposed: false,
            streak: None,
            handed_over: false,
            owes_end: false,
            ended_as: End::Dropped,
            unreported: None,
        }
    }

    /// Redis granted it and its owner did not end it. The deadline may be over.
    pub(crate) fn is_living(&self) -> bool {
        matches!(self.phase, HoldPhase::Held | HoldPhase::Jeopardy)
    }

    /// It may be acted on now. Exact, even if no party has noticed yet that the deadline is over.
    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        self.is_living() && now < self.deadline
    }

    /// The number of acquires that are not unlocked yet.
    pub(crate) fn claims(&self) -> u32 {
        if self.is_living() { self.count } else { 0 }
    }

    /// The count that Redis should have.
    pub(crate) fn target(&self) -> u32 {
        self.claims().saturating_sub(self.local)
    }

    /// The release takes too long: the unlock may be frozen.
    pub(crate) fn is_slow(&self, now: Moment) -> bool {
        (self.phase == HoldPhase::Ended || self.is_lowering) && now >= self.hasten_at
    }

    /// The server has this count. If another part was dropped meanwhile, others wait for that one, too, and its
    /// settlement follows. A later end of the hold is not slow because this part was given back long ago.
    pub(crate) fn end_lowering(&mut self, target: u32) {
        if self.is_lowering && self.target() == target {
            self.is_lowering = false;
            self.hasten_at = Moment::NEVER;
        }
    }

    /// It was ended to release the lock. A hold that hands the lock over leaves it to the next owner
    /// instead.
    pub(crate) fn is_releasing(&self) -> bool {
        self.phase == HoldPhase::Ended && !self.handing_on
    }

    /// Exactly one claim remains besides those that were left to the lease.
    pub(crate) fn is_last_beside_left(&self) -> bool {
        self.left > 0 && self.count == self.left + 1
    }

    /// The hold is over, and a guard left the lock in Redis to its lease. A loss changes nothing about
    /// that.
    pub(crate) fn is_left(&self) -> bool {
        self.left > 0 && !self.is_living()
    }

    /// Adds a claim that Redis does not count. Returns false if Redis has to be asked: the hold is not
    /// valid, is not renewed as the claim requires, or ends before the claim's lease.
    pub(crate) fn count_locally(&mut self, terms: &Terms, now: Moment) -> bool {
        let is_enough = if terms.watched {
            self.watched > 0
        } else {
            now + terms.lease <= self.deadline
        };
        let counts = terms.local && is_enough && self.is_valid(now);
        if counts {
            self.count += 1;
            self.local += 1;
            self.watched += u32::from(terms.watched);
        }
        counts
    }

    /// Completes a claim that was acquired without a watchdog, because other locks had to be acquired
    /// first. `bound` is the end of its `max_hold`.
    pub(crate) fn confirm(&mut self, terms: &Terms, bound: Moment) {
        if terms.watched {
            self.watched += 1;
            self.renew_at = self.renew_at.min(self.renewed + terms.lease / 3);
        }
        self.bound(bound);
    }

    /// The hold ends at this moment, if not earlier.
    pub(crate) fn bound(&mut self, until: Moment) {
        self.max_until = self.max_until.min(until);
        self.deadline = self.deadline.min(self.max_until);
    }

    /// Ends the hold: its field in Redis has to be deleted.
    pub(crate) fn end(&mut self) {
        self.phase = HoldPhase::Ended;
        self.count = 0;
        self.local = 0;
        self.watched = 0;
        self.parts = 0;
        self.forgotten.clear();
    }

    /// Ends a claim if that changes nothing in Redis. Returns the number of claims left.
    pub(crate) fn drop_locally(&mut self, flags: ClaimFlags, now: Moment) -> Option<u32> {
        let replaced = self.local > 0 && (flags.local || self.target() == 1);
        if !(replaced || self.is_last_beside_left()) || !self.is_valid(now) {
            return None;
        }
        let left = self.count - 1;
        self.drop_claim(flags, now);
        Some(left)
    }

    /// Ends a claim. With the last claim, a living hold ends immediately (design: invariant 6).
    pub(crate) fn drop_claim(&mut self, flags: ClaimFlags, now: Moment) -> Dropped {
        let lost = match self.phase {
            // The party that ended the hold cleans up.
            HoldPhase::Ended => return Dropped::Nothing,
            HoldPhase::Lost(_) => true,
            HoldPhase::Pending | HoldPhase::Held | HoldPhase::Jeopardy => false,
        };
        let target_before = self.target();
        self.count = self.count.saturating_sub(flags.weight);
        self.end_renewals_for(flags);
        self.parts = self.parts.saturating_sub(u32::from(flags.part));
        let local = self.local.saturating_sub(u32::from(flags.local));
        self.local = local.min(self.count.saturating_sub(1));
        if self.count == self.left || (lost && self.is_only_forgotten()) {
            // No guard is left that has to be notified.
            if self.left > 0 {
                return self.end_left();
            }
            self.end();
        } else if lost || self.target() == target_before {
            // Redis has to change nothing: the hold is gone there, or its count stays.
            return Dropped::Nothing;
        }
        // The lease is over, so Redis has nothing of the lost hold.
        if lost && now >= self.remains_until {
            return Dropped::Forget;
        }
        Dropped::Settle
    }

    /// Ends a claim and leaves the hold in Redis to its lease, when the last claim has ended.
    pub(crate) fn leave_claim(&mut self, flags: ClaimFlags, now: Moment) -> Dropped {
        if !self.is_living() {
            return self.drop_claim(flags, now);
        }
        // It stays counted, so nothing has to be sent to Redis.
        self.left += 1;
        self.end_renewals_for(flags);
        self.parts = self.parts.saturating_sub(u32::from(flags.part));
        if self.count == self.left {
            self.end_left()
        } else {
            Dropped::Nothing
        }
    }

    /// Ends a hold that is left to its lease, in Redis now and at another master later.
    fn end_left(&mut self) -> Dropped {
        self.end();
        self.granted = false;
        Dropped::Forget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);
    const UNWATCHED: ClaimFlags = ClaimFlags {
        watched: false,
        local: false,
        part: false,
        weight: 1,
    };

    #[test]
    fn a_longer_inner_lease_delays_renewals_but_does_not_end_them() {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        assert!(state.grant(start, &Terms::new(LEASE, true), start));
        assert!(state.grant(start, &Terms::new(3 * LEASE, false), start));
        let now = start + LEASE / 3;
        assert_eq!(state.renewal(now, LEASE), None);
        let later = state.renew_at;
        assert!(later > now && later < state.deadline, "{later:?}");
        assert_eq!(state.renewal(later, LEASE), Some(LEASE));
    }

    proptest::proptest! {
        #[test]
        fn redis_counts_at_least_one_claim_and_is_notified_of_each_change(
            steps in proptest::collection::vec((0..4_u8, 0..8_usize, proptest::bool::ANY), 1..40)
        ) {
            let now = Moment(1_000_000_000);
            let mut state = HoldState::pending(now);
            let mut claims: Vec<ClaimFlags> = Vec::new();
            for (step, which, watched) in steps {
                let shown = state.target();
                let mut terms = Terms::new(LEASE / 2, watched);
                terms.local = step == 1;
                if state.phase == HoldPhase::Pending || step == 0 {
                    assert!(state.grant(now, &terms, now));
                    claims.push(ClaimFlags { watched, local: false, part: false, weight: 1 });
                    assert_eq!(state.target(), shown + 1);
                } else if step == 1 {
                    if state.count_locally(&terms, now) {
                        claims.push(ClaimFlags { watched, local: true, part: false, weight: 1 });
                    }
                    assert_eq!(state.target(), shown);
                } else {
                    let flags = claims.remove(which % claims.len());
                    let quietly = (step == 2).then(|| state.drop_locally(flags, now)).flatten();
                    let asked = match quietly {
                        Some(left) => {
                            assert_eq!(left as usize, claims.len());
                            false
                        }
                        None => state.drop_claim(flags, now) == Dropped::Settle,
                    };
                    assert_eq!(asked, state.target() != shown);
                }
                let watched = claims.iter().filter(|flags| flags.watched).count();
                assert_eq!((state.claims() as usize, state.watched as usize), (claims.len(), watched));
                assert_eq!(state.target() == 0, claims.is_empty());
                assert_eq!(state.phase == HoldPhase::Ended, claims.is_empty());
                if claims.is_empty() {
                    break;
                }
            }
        }
    }

    /// Of a semaphore: a part is unlocked, and another one is dropped before the answer.
    #[test]
    fn a_part_that_was_dropped_during_the_release_of_another_one_is_still_awaited() {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        state.weight = 3;
        assert!(state.grant(start, &Terms::new(LEASE, false), start));
        state.is_lowering = true;
        let [first, second] = [(); 2].map(|()| {
            assert_eq!(state.drop_claim(UNWATCHED, start), Dropped::Settle);
            state.target()
        });
        state.end_lowering(first);
        assert!(state.is_lowering);
        state.end_lowering(second);
        assert!(!state.is_lowering);
    }

    #[test]
    fn a_lost_hold_ends_with_its_last_guard_despite_forgotten_claims() {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        assert!(state.grant(start, &Terms::new(LEASE, false), start));
        assert!(state.grant(start, &Terms::new(LEASE, false), start));
        state.forgotten.push(UNWATCHED);
        assert!(state.expire(start + LEASE));
        state.drop_claim(UNWATCHED, start + LEASE);
        assert_eq!(state.phase, HoldPhase::Ended);
    }
}
