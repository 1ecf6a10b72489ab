//! What the watchdog does for a hold, and how the answers change the hold.

use std::time::Duration;

use super::{ClaimFlags, HoldPhase, HoldState};
use crate::clock::Moment;
use crate::lease;

impl HoldState {
    /// The watchdog has to renew it, or to check whether the server knows it.
    pub(crate) fn is_renewed(&self) -> bool {
        self.is_living() && (self.watched > 0 || self.doubted)
    }

    /// The watchdog has to act at `renew_at`.
    pub(crate) fn needs_watchdog(&self) -> bool {
        self.is_renewed() || (self.is_living() && self.exposed)
    }

    /// Records that the watchdog does not renew it for this claim any more. If it renews it for no claim, it repeats no
    /// failed renewal.
    pub(super) fn end_renewals_for(&mut self, flags: ClaimFlags) {
        self.watched = self.watched.saturating_sub(u32::from(flags.watched));
        if self.phase == HoldPhase::Jeopardy && !self.needs_watchdog() {
            self.phase = HoldPhase::Held;
        }
    }

    /// The watchdog will move its deadline. False near the end of its `max_hold`.
    pub(crate) fn will_be_extended(&self) -> bool {
        self.watched > 0 && !self.is_as_far_as_allowed(self.renewed)
    }

    /// Other clients may set the TTL of the lock to `lease`. A hold with a longer lease of its own would then be
    /// gone too early. So the watchdog renews such a hold for the rest of its own lease.
    pub(crate) fn expose(&mut self, lease: Duration) {
        if self.is_living() && self.deadline.since(self.renewed) > lease / 3 {
            self.exposed = true;
            self.renew_at = self.renew_at.min(self.renewed + lease / 3);
        }
    }

    /// The current server may not know it. This includes a grant that is not accepted yet: it may come
    /// from the previous server.
    pub(crate) fn suspect(&mut self, now: Moment) {
        if self.is_living() || self.phase == HoldPhase::Pending {
            self.doubted = true;
            self.renew_at = now;
        }
    }

    /// Starts a renewal that is sent now, and returns its lease. `None` if the renewal would not move
    /// the deadline.
    pub(crate) fn renewal(&mut self, now: Moment, lease: Duration) -> Option<Duration> {
        // A TTL that another client sets to `lease` outlasts a deadline that is this near.
        let is_over_soon = now + lease / 3 >= self.deadline;
        // The watchdog's own renewals keep a watched hold, unless another claim or an extension has a longer lease.
        let is_beyond_lease = self.watched == 0 || now + lease < self.deadline;
        let is_exposed = self.exposed && is_beyond_lease && !is_over_soon;
        // Its lease is known to be good only after the server answered again, also if no renewal moves its deadline.
        let is_failing = self.phase == HoldPhase::Jeopardy && self.watched > 0;
        if self.is_living() && (self.doubted || is_exposed || is_failing) {
            // Neither a check nor a renewal of what is left extends a hold without a watchdog.
            let until = if self.watched > 0 {
                (now + lease).min(self.max_until).max(self.deadline)
            } else {
                self.deadline
            };
            let asked = lease::whole(until.since(now)).max(lease::SHORTEST);
            self.sending(now, asked);
            self.renew_at = now + lease / 6;
            return Some(asked);
        }
        let asked = lease::whole(lease.min(self.max_until.since(now)));
        let is_bounded = asked < lease;
        let is_longer = lease::deadline(now, asked) > self.deadline;
        if self.is_renewed() && is_longer && !(is_bounded && self.is_as_far_as_allowed(now)) {
            self.sending(now, asked);
            // Due again soon, in case this renewal gets no answer.
            self.renew_at = now + lease / 6;
            return Some(asked);
        }
        // Without a watchdog, or at the bound of `max_hold`, no renewal can move the deadline any more.
        self.renew_at = if is_bounded || self.watched == 0 {
            Moment::NEVER
        } else {
            self.deadline.minus(lease / 3 * 2)
        };
        None
    }

    /// Applies a successful renewal that was sent at `sent`. A late one does not revive a lost hold. Returns
    /// whether the caller has to report a loss: read in the same step, because the last guard may be dropped
    /// right after it, which ends the lost hold.
    pub(crate) fn renew(&mut self, sent: Moment, lease: Duration, now: Moment) -> bool {
        self.expire(now);
        if !self.is_living() {
            return self.unreported.is_some();
        }
        self.phase = HoldPhase::Held;
        self.doubted = false;
        self.renewed = self.renewed.max(sent);
        self.renew_at = sent + lease / 3;
        let deadline = lease::deadline(sent, lease);
        self.deadline = self.deadline.max(deadline.min(self.max_until));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::Terms;

    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn a_suspect_hold_without_a_watchdog_is_checked_but_not_extended() {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        assert!(state.grant(start, &Terms::new(LEASE * 10, false), start));
        let deadline = state.deadline;
        assert!(!state.is_renewed());
        let now = start + LEASE;
        state.suspect(now);
        assert!(state.is_renewed() && state.renew_at == now);
        let asked = state.renewal(now, LEASE).expect("it is asked for");
        assert!(now + asked <= deadline, "{asked:?}");
        state.renew(now, asked, now);
        assert!(!state.is_renewed() && state.deadline == deadline);
    }

    #[test]
    fn a_longer_lease_of_a_watched_hold_that_others_may_shorten_is_renewed_for_its_rest() {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        assert!(state.grant(start, &Terms::new(LEASE, true), start));
        assert!(state.grant(start, &Terms::new(LEASE * 10, false), start));
        state.expose(LEASE);
        let (now, deadline) = (state.renew_at, state.deadline);
        assert!(now <= start + LEASE / 3);
        let asked = state.renewal(now, LEASE).expect("it is asked for");
        assert!(asked > LEASE * 9 && now + asked <= deadline, "{asked:?}");
        state.renew(now, asked, now);
        assert_eq!(state.deadline, deadline);
        // Near the end of that lease it is extended as every watched hold.
        let now = deadline.minus(LEASE / 2);
        assert_eq!(state.renewal(now, LEASE), Some(LEASE));
    }

    #[test]
    fn a_nested_acquire_that_was_sent_before_a_renewal_does_not_hide_the_renewal() {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        assert!(state.grant(start, &Terms::new(LEASE, true), start));
        let [earlier, later] = [LEASE / 3, LEASE / 2].map(|after| start + after);
        state.renew(later, LEASE, later);
        assert!(state.grant(earlier, &Terms::new(LEASE, true), later));
        assert_eq!(state.renewed, later);
    }

    #[test]
    fn a_hold_in_jeopardy_with_a_longer_lease_is_renewed_for_its_rest() {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        assert!(state.grant(start, &Terms::new(LEASE, true), start));
        state.phase = HoldPhase::Jeopardy;
        assert!(state.grant(start, &Terms::new(LEASE * 10, false), start));
        let (now, deadline) = (start + LEASE / 2, state.deadline);
        let asked = state.renewal(now, LEASE).expect("it is asked for");
        assert!(asked > LEASE * 9 && now + asked <= deadline, "{asked:?}");
        state.renew(now, asked, now);
        assert!(state.phase == HoldPhase::Held && state.deadline == deadline);
        assert_eq!(state.renewal(now, LEASE), None);
    }

    /// A nested acquire moved its deadline to the end of its `max_hold` after a renewal had failed.
    #[test]
    fn a_hold_in_jeopardy_is_renewed_also_at_the_bound_of_max_hold() {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        let bounded = Terms {
            max_hold: Some(LEASE / 3 * 4),
            ..Terms::new(LEASE, true)
        };
        assert!(state.grant(start, &bounded, start));
        state.phase = HoldPhase::Jeopardy;
        let now = start + LEASE / 2;
        assert!(state.grant(now, &Terms::new(LEASE, true), now));
        let deadline = state.deadline;
        assert_eq!(deadline, start + LEASE / 3 * 4);
        let asked = state.renewal(now, LEASE).expect("it is asked for");
        assert!(now + asked <= deadline, "{asked:?}");
        state.renew(now, asked, now);
        assert!(state.phase == HoldPhase::Held && state.deadline == deadline);
        assert_eq!(state.renewal(now, LEASE), None);
    }

    #[test]
    fn a_hold_is_in_jeopardy_only_as_long_as_it_is_renewed() {
        let start = Moment(1_000_000_000);
        let watched = ClaimFlags {
            watched: true,
            local: false,
            part: false,
            weight: 1,
        };
        for (doubted, left) in [(false, HoldPhase::Held), (true, HoldPhase::Jeopardy)] {
            let mut state = HoldState::pending(start);
            assert!(state.grant(start, &Terms::new(LEASE, true), start));
            assert!(state.grant(start, &Terms::new(LEASE, true), start));
            assert!(state.grant(start, &Terms::new(LEASE * 10, false), start));
            state.phase = HoldPhase::Jeopardy;
            // After a failover the watchdog checks it without a claim, too.
            state.doubted = doubted;
            state.drop_claim(watched, start);
            assert_eq!(state.phase, HoldPhase::Jeopardy);
            state.drop_claim(watched, start);
            assert_eq!(state.phase, left);
        }
    }

    #[test]
    fn a_hold_that_was_suspect_before_its_grant_is_checked_at_once() {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        state.suspect(start);
        assert!(!state.is_renewed());
        assert!(state.grant(start, &Terms::new(LEASE, true), start));
        assert!(state.is_renewed() && state.renew_at <= start);
        assert_eq!(state.renewal(start, LEASE), Some(LEASE));
    }

    #[test]
    fn a_suspect_hold_is_not_renewed_beyond_max_hold() {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        let terms = Terms {
            max_hold: Some(LEASE),
            ..Terms::new(LEASE, true)
        };
        assert!(state.grant(start, &terms, start));
        let now = start + LEASE / 2;
        state.suspect(now);
        let asked = state.renewal(now, LEASE).expect("it is asked for");
        assert!(asked <= LEASE / 2, "{asked:?}");
        state.renew(now, asked, now);
        assert!(state.deadline <= start + LEASE);
    }
}
