//! Extending what is held, in rounds.

use std::time::Duration;

use super::member::MemberState;
use super::round::RoundKind;
use super::{Action, Actions, Quorum};
use crate::Moment;
use crate::lease;

impl Quorum {
    /// A claim wants it renewed.
    pub fn let_renew(&mut self) {
        self.rules.renewed = true;
        if self.next == Moment::NEVER && !self.round.is_open() {
            self.next = self.round.began + self.rules.lease / 3;
        }
    }

    /// The last claim that wants it renewed has ended.
    pub fn let_expire(&mut self) {
        self.rules.renewed = false;
        self.next = Moment::NEVER;
    }

    /// A call of its owner wants it for longer than it is held, or renewed.
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
            // The next round comes when a part of that lease has passed.
            wanted = wanted.max(self.rules.lease);
        }
        if self.round.is_open() {
            // Another call that wants more counts on the round that this one begins over.
            wanted = wanted.max(self.round.lease);
        }
        self.begin_extension(wanted, now, actions);
    }

    /// Asks every instance once more: for a lease more where it is ours, for the lock where not.
    ///
    /// Never for a lease that ends before what it is held for already: who takes it again now has to keep
    /// it for as long as the others do.
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
            if member.stand == MemberState::Held {
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
