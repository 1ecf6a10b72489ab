//! A queue whose client is listed on the server: a release wakes one of the listed clients, and the next one is to
//! ask soon if that one does not.

use std::mem;
use std::time::Duration;

use super::listed::ListedClient;
use super::queue::WaitQueue;
use super::retreat::Retreat;
use super::waiter::Waiter;
use super::wake_ups::WakeUps;
use crate::clock::Moment;

impl WaitQueue {
    /// The client's channels. `subscribe` is called if it has none.
    pub(super) fn listed(&mut self, subscribe: impl FnOnce() -> ListedClient) -> ListedClient {
        let listed = self.listed.get_or_insert_with(subscribe).clone();
        self.unlisted = None;
        listed
    }

    /// A release is to wake this client together with all others, because it waits in another way. One that woke
    /// this client alone just before still reaches it.
    pub(super) fn unlist(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.unlisted = listed.leave();
        }
    }

    pub(super) fn is_listed(&self) -> bool {
        self.listed.as_ref().is_some_and(ListedClient::is_listening)
    }

    /// Whether a release wakes this waiter, if it is the contender and has been answered that the lock is busy.
    pub(super) fn is_woken_by_a_release(&self, waiter: &Waiter) -> bool {
        let is_in_list = self.is_listed() && waiter.may_be_listed();
        self.is_listening() && (self.listed.is_none() || is_in_list)
    }

    /// A release woke this client, and no other.
    pub(super) fn be_called(&mut self, wake_ups: &mut WakeUps) {
        self.is_called = true;
        self.retreat = None;
        self.second_until = None;
        self.wake_by_message(wake_ups);
    }

    /// A release woke another client, and this one is the next: it asks after `until`.
    pub(super) fn be_second(&mut self, until: Moment, wake_ups: &mut WakeUps) {
        self.second_until = Some(until);
        // It sleeps longer than that.
        if let Some(contender) = &self.contender {
            contender.woken.note_message();
            wake_ups.add(contender);
        }
    }

    /// Until when the client leaves a release to the one that was woken before it.
    pub(super) fn second_until(&mut self, now: Moment) -> Option<Moment> {
        self.second_until = self.second_until.filter(|until| now < *until);
        self.second_until
    }

    /// This client released the lock, which woke one client.
    pub(super) fn leave_to_others(&mut self, until: Moment) {
        // The message may come before the answer of the unlock: then it was this client that the unlock woke. An
        // earlier message, whose waiter gave up, counts for one unlock at most.
        if mem::take(&mut self.is_called) {
            return;
        }
        self.retreat = Some(Retreat {
            until,
            releases: 0,
            own: false,
        });
    }

    /// The last waiter left with the lock, so the next one may come soon: the subscriptions stay for a while.
    pub(super) fn linger(&mut self, now: Moment) {
        self.idle_since = Some(now);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.idle_since.is_some()
    }

    pub(super) fn has_lingered(&self, now: Moment) -> bool {
        self.idle_since
            .is_some_and(|since| now.since(since) >= LINGER)
    }
}

/// How long the subscriptions of a listed client stay without a waiter.
pub(super) const LINGER: Duration = Duration::from_secs(1);
