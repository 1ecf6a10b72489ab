//! Extends what is held, in rounds.

use std::time::Duration;

use super::member::MemberState;
use super::round::RoundKind;
use super::{Action, Actions, Quorum};
use crate::Moment;
use crate::lease;

impl Quorum {
    /// Turns renewal on, for a claim that needs it.
    pub fn let_renew(&mut self) {
        self.rules.renewed = true;
        if self.next == Moment::NEVER && !self.round.is_open() {
            self.next = self.round.began + self.rules.lease / 3;
        }
    }

    /// Turns renewal off: the last claim that needs it has ended.
    pub fn let_expire(&mut self) {
        self.rules.renewed = false;
        self.next = Moment::NEVER;
    }

    /// Begins a round for a claim that needs a longer lease, or renewal.
    pub(crate) fn lengthen(
        &mut self,
        lease: Duration,
        renewed: bool,
        now: Moment,
        actions: &mut Actions,
    ) {
        if !self.is_living() {
            return;
        }
        if renewed {
            self.rules.lease = lease;
            self.rules.renewed = true;
        }
        let mut wanted = lease;
        if self.rules.renewed {
            // Renewal only comes after a part of the renewed lease, so do not ask for less.
            wanted = wanted.max(self.rules.lease);
        }
        if self.round.is_open() {
            // This round replaces the open one, which another call waits for. Do not ask for less.
            wanted = wanted.max(self.round.lease);
        }
        self.begin_extension(wanted, now, actions);
    }

    /// Asks every instance once more: for an extension where it holds the lock, for the lock where it
    /// does not.
    ///
    /// The new lease never ends before the current one: an instance that is re-acquired now must keep
    /// the lock as long as the others.
    pub(crate) fn begin_extension(&mut self, lease: Duration, now: Moment, actions: &mut Actions) {
        self.next = Moment::NEVER;
        if self.is_as_long_as_allowed() {
            return;
        }
        let left = lease::whole_up(self.leased_until.since(now));
        self.round = self
            .round
            .following(RoundKind::Extend, now, lease.max(left));
        let round = self.round.number;
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.state == MemberState::Held {
                member.asked_in = round;
                actions.push(Action::Extend {
                    member: index,
                    round,
                });
            }
        }
        self.take_missing(actions);
    }
}
