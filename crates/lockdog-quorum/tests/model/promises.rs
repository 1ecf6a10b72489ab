//! What must hold in every state.

use std::time::Duration;

use super::instance::{Body, Holder};
use super::reached::Sight;
use super::setting::{LEASE, Setting};
use super::world::World;
use crate::Moment;
use crate::lease;
use crate::member::{Member, MemberState};
use crate::{Event, Quorum};

impl World {
    /// The promise that this state breaks, if any.
    pub(super) fn broken(&self, setting: &Setting) -> Option<&'static str> {
        let now = setting.moment(self.ticks);
        if self.clients[0].is_valid(now) && self.clients[1].is_valid(now) {
            Some("two clients believe in it")
        } else if !self.has_enough_instances(setting) {
            Some("too few instances keep it")
        } else if !self.notifies_of_losses(setting) {
            Some("no holder is notified that it is lost")
        } else if self.asks_for_too_long(setting) {
            Some("an instance is asked for longer than its time")
        } else if self.hides_what_it_knows() {
            Some("too few instances have it, and no holder is notified")
        } else if self.revived {
            Some("what was over is not")
        } else if self.out_of_order {
            Some("a token is not larger than one before")
        } else if self.left_behind() > self.spent.failed + self.spent.doubled {
            Some("no client releases what is over")
        } else {
            None
        }
    }

    /// A valid client has the lock on enough instances, for long enough, not counting those that lost
    /// it, and it does not count more. So no client takes or releases a lock of another.
    fn has_enough_instances(&self, setting: &Setting) -> bool {
        let now = setting.moment(self.ticks);
        for (index, client) in self.clients.iter().enumerate() {
            let Some(quorum) = client.quorum().filter(|it| it.is_valid(now)) else {
                continue;
            };
            let mut kept = usize::from(self.spent.lost + self.spent.restarted);
            let mut long = kept;
            for (at, instance) in self.instances.iter().enumerate() {
                let id = client.id(index, at);
                let holder = instance.holder.filter(|holder| holder.id == id);
                kept += usize::from(holder.is_some());
                long += usize::from(holder.is_some_and(|it| it.until >= quorum.deadline()));
            }
            let need = quorum.rules().need;
            let margin = (kept + need).saturating_sub(setting.instances + 1);
            if long < need || quorum.margin(now) > margin {
                return false;
            }
        }
        true
    }

    /// A holder asks to be woken before its deadline, and learns of the loss then, or whenever it wakes
    /// later.
    fn notifies_of_losses(&self, setting: &Setting) -> bool {
        let now = setting.moment(self.ticks);
        let mut living = self.clients.iter().filter_map(|it| it.quorum());
        living.all(|quorum| {
            if !quorum.is_living() {
                return true;
            }
            let is_due = now >= quorum.notified_at();
            quorum.wake_at() <= quorum.notified_at() && !(is_due && quorum.survives(now))
        })
    }

    /// At the time when every answer is late, a holder has no pending request of an earlier round; and
    /// it asks for a tick at that time.
    fn asks_for_too_long(&self, setting: &Setting) -> bool {
        let late = setting.moment(self.ticks) + LONGEST_ANSWER;
        let mut living = self.clients.iter().filter_map(|it| it.quorum());
        living.any(|quorum| {
            let is_asked = |member: &Member| member.state == MemberState::Asked;
            if !quorum.is_living() || !quorum.members.iter().any(is_asked) {
                return false;
            }
            let mut ticked = quorum.clone();
            ticked.step(Event::Tick, late);
            let is_old = |it: &Member| is_asked(it) && it.until < lease::deadline(late, LEASE);
            quorum.wake_at() > late || (ticked.is_living() && ticked.members.iter().any(is_old))
        })
    }

    /// A holder knows of too few instances that have it.
    fn hides_what_it_knows(&self) -> bool {
        let mut living = self.clients.iter().filter_map(|it| it.quorum());
        living.any(|quorum| {
            let held = quorum
                .members
                .iter()
                .filter(|it| it.state == MemberState::Held);
            quorum.is_living() && held.count() < quorum.rules().need
        })
    }

    /// The number of instances on which an acquisition that is over still holds the lock, although it
    /// knows everything and no release is under way. An acquisition that was granted twice, or granted
    /// and reported as failed, may stay until its lease is over.
    fn left_behind(&self) -> u8 {
        let mut count = 0;
        for (index, instance) in self.instances.iter().enumerate() {
            let Some(Holder { id, .. }) = instance.holder else {
                continue;
            };
            let client = usize::from(id.client);
            let is_last = self.clients[client].id(client, index) == id;
            if !is_last || self.clients[client].core.is_some() {
                continue;
            }
            let mut messages = instance.messages.all().iter();
            if !messages.any(|it| it.body == Body::Release && it.id == id) {
                count += 1;
            }
        }
        count
    }

    /// Checks the token that a client is shown.
    pub(super) fn check_token(&mut self, setting: &Setting, index: usize) {
        let client = &mut self.clients[index];
        let token = client.quorum().and_then(Quorum::token);
        let token = token.map_or(0, |token| token as u8);
        if token == client.token {
            return;
        }
        setting.reached.note(Sight::Token);
        let shown = 1 << token;
        // One acquisition has one token.
        self.out_of_order |= client.token != 0 || token <= client.floor || self.shown & shown != 0;
        client.token = token;
        self.shown |= shown;
    }
}

/// Three times the answer limit of an instance: the limit itself, and as much again for the background
/// to notice that no caller is left.
const LONGEST_ANSWER: Duration = Duration::from_millis(1500);

impl Quorum {
    /// Whether it still lives after a tick at this time.
    fn survives(&self, now: Moment) -> bool {
        let mut ticked = self.clone();
        ticked.step(Event::Tick, now);
        ticked.is_living()
    }
}
