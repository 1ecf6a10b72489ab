//! A list of channels that remembers which names changed since its consumer last checked.
//!
//! The watchdog's thread is the consumer, and it renews leases too. So a change of one channel must
//! cost it the work for one channel, however long the list is.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::channel::{Channel, SubscriptionState};
use crate::key::LockKey;

/// Channels by name, for one consumer.
#[derive(Default)]
pub(crate) struct ChannelList {
    listed: Mutex<ListedChannel>,
    changed: Notify,
    /// How many names the consumer has checked so far.
    #[cfg(test)]
    checked: AtomicUsize,
}

/// Names, each with the channel that is listed under it now; `None` if there is none.
pub(crate) type ListedNames = Vec<(String, Option<Arc<Channel>>)>;

#[derive(Default)]
struct ListedChannel {
    channels: HashMap<String, Arc<Channel>>,
    changes: Changes,
}

/// What changed since the consumer last checked.
enum Changes {
    Names(HashSet<String>),
    /// Any name may have changed.
    All,
}

impl ChannelList {
    pub(crate) fn insert(&self, name: String, channel: Arc<Channel>) {
        let mut listed = self.listed.lock();
        if listed.has(&name, &channel) {
            return;
        }
        listed.channels.insert(name.clone(), channel);
        listed.note(name);
        drop(listed);
        self.changed.notify_one();
    }

    /// Adds a subscription of this lock to the channel of this name, and returns the channel.
    pub(super) fn want(&self, name: &str, key: &Arc<LockKey>) -> Arc<Channel> {
        let mut listed = self.listed.lock();
        if let Some(channel) = listed.channels.get(name) {
            channel.want(key);
            return channel.clone();
        }
        let channel = Arc::new(Channel::new(key));
        listed.channels.insert(name.to_owned(), channel.clone());
        listed.note(name.to_owned());
        drop(listed);
        self.changed.notify_one();
        channel
    }

    /// Undoes one [`ChannelList::want`]. The last call for a channel removes it.
    pub(super) fn leave(&self, name: &str, channel: &Arc<Channel>, key: &LockKey) {
        let mut listed = self.listed.lock();
        // Checked while the list is locked, so that no lock subscribes meanwhile.
        if channel.unsubscribe(key) {
            listed.remove_this(name, channel);
            drop(listed);
            self.changed.notify_one();
        }
    }

    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Channel>> {
        let mut listed = self.listed.lock();
        let (name, channel) = listed.channels.remove_entry(name)?;
        listed.note(name);
        drop(listed);
        self.changed.notify_one();
        Some(channel)
    }

    /// Removes every name and returns what was listed.
    pub(crate) fn remove_all(&self) -> HashMap<String, Arc<Channel>> {
        let mut listed = self.listed.lock();
        listed.changes = Changes::All;
        let removed = mem::take(&mut listed.channels);
        drop(listed);
        self.changed.notify_one();
        removed
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Channel>> {
        self.listed.lock().channels.get(name).cloned()
    }

    /// Whether this channel is listed under the name.
    pub(crate) fn has(&self, name: &str, channel: &Arc<Channel>) -> bool {
        self.listed.lock().has(name, channel)
    }

    /// How many channels the client is subscribed to.
    pub(crate) fn listening(&self) -> usize {
        let listed = self.listed.lock();
        let states = listed.channels.values().map(|channel| channel.state());
        states
            .filter(|state| *state == SubscriptionState::Listening)
            .count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listed.lock().channels.is_empty()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.listed.lock().channels.keys().cloned().collect()
    }

    /// What changed since the last check. If any name may have changed: all listed names, and those of
    /// the consumer's `known` names that are not listed any more.
    pub(crate) fn take_changes(&self, known: impl FnOnce() -> Vec<String>) -> ListedNames {
        let mut listed = self.listed.lock();
        let changes = match mem::take(&mut listed.changes) {
            Changes::Names(names) => listed.find(names),
            Changes::All => {
                let mut gone = listed.find(known());
                gone.retain(|(_, channel)| channel.is_none());
                let all = listed.channels.iter();
                let all = all.map(|(name, channel)| (name.clone(), Some(channel.clone())));
                gone.into_iter().chain(all).collect()
            }
        };
        drop(listed);
        self.count(&changes);
        changes
    }

    /// Every listed name, as for a consumer that knows none.
    pub(crate) fn take_all(&self) -> ListedNames {
        self.note_all();
        self.take_changes(Vec::new)
    }

    /// These names, changed or not.
    pub(crate) fn find(&self, names: impl IntoIterator<Item = String>) -> ListedNames {
        let found = self.listed.lock().find(names);
        self.count(&found);
        found
    }

    /// Makes the next check return every name.
    pub(crate) fn note_all(&self) {
        self.listed.lock().changes = Changes::All;
    }

    /// Completes when the list may have changed since the last check.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Sets the state of every channel.
    pub(crate) fn set_all(&self, state: SubscriptionState) {
        let channels: Vec<_> = self.listed.lock().channels.values().cloned().collect();
        // This wakes the tasks that wait for the state, so the list must not be locked.
        for channel in channels {
            channel.set(state);
        }
    }

    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "tests count"))]
    fn count(&self, names: &ListedNames) {
        #[cfg(test)]
        self.checked.fetch_add(names.len(), Ordering::Relaxed);
        let _ = names;
    }

    #[cfg(test)]
    pub(crate) fn checked(&self) -> usize {
        self.checked.load(Ordering::Relaxed)
    }
}

impl ListedChannel {
    fn has(&self, name: &str, channel: &Arc<Channel>) -> bool {
        let found = self.channels.get(name);
        found.is_some_and(|found| Arc::ptr_eq(found, channel))
    }

    fn remove_this(&mut self, name: &str, channel: &Arc<Channel>) -> bool {
        if !self.has(name, channel) {
            return false;
        }
        if let Some((name, _)) = self.channels.remove_entry(name) {
            self.note(name);
        }
        true
    }

    fn find(&self, names: impl IntoIterator<Item = String>) -> ListedNames {
        let found = |name: String| {
            let channel = self.channels.get(&name).cloned();
            (name, channel)
        };
        names.into_iter().map(found).collect()
    }

    /// Without a connection there is no consumer, and changes accumulate. To check all names costs no more
    /// than to check as many changes as there are channels. So the list remembers at most that many changes,
    /// and then only that any name may have changed.
    fn note(&mut self, name: String) {
        if let Changes::Names(names) = &mut self.changes {
            names.insert(name);
            if names.len() > self.channels.len().max(FEW) {
                self.changes = Changes::All;
            }
        }
    }
}

impl Default for Changes {
    fn default() -> Self {
        Self::Names(HashSet::new())
    }
}

/// The list always remembers this many changes.
const FEW: usize = 64;

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::super::Subscriptions;
    use super::*;
    use crate::key::kind;
    use crate::user_code::FreeAtEachCall;

    fn channel() -> Arc<Channel> {
        Arc::new(Channel::new(&Arc::new(
            LockKey::new(&kind::PLAIN, "l", None).unwrap(),
        )))
    }

    #[test]
    fn unread_changes_are_bounded_and_then_all_channels_are_checked() {
        let list = ChannelList::default();
        list.insert("kept".to_owned(), channel());
        list.take_changes(Vec::new);
        for number in 0..FEW * 10 {
            list.insert(number.to_string(), channel());
            list.remove(&number.to_string());
            if let Changes::Names(names) = &list.listed.lock().changes {
                assert!(names.len() <= FEW);
            }
        }
        let known = || vec!["kept".to_owned(), "gone".to_owned()];
        let mut names = list.take_changes(known);
        names.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(names.len() == 2 && names[0].0 == "gone" && names[1].0 == "kept");
        assert!(names[0].1.is_none() && names[1].1.is_some());
        assert!(list.take_changes(known).is_empty());
    }

    #[test]
    fn a_channel_stays_subscribed_until_the_last_of_its_locks_leaves() {
        let subscriptions = Arc::new(Subscriptions::default());
        let key = |kind| Arc::new(LockKey::new(kind, "l", None).unwrap());
        let (plain, other) = (key(&kind::PLAIN), key(&kind::OTHER));
        let name = plain.channel().expect("its releases are published");
        assert_eq!(other.channel().as_ref(), Some(&name));
        let subscribe = |key| subscriptions.subscribe(key, name.clone());
        let wanted = || {
            let locks = subscriptions.locks_on(&name);
            locks.map(|lock| lock.kind().name).collect::<Vec<_>>()
        };
        let (first, second) = (subscribe(&plain), subscribe(&other));
        assert_eq!(wanted(), ["lock", "other"]);
        drop(first);
        assert_eq!(wanted(), ["other"]);
        // A newer queue of the same lock subscribes before the older one is gone.
        let third = subscribe(&other);
        drop(second);
        assert_eq!(wanted(), ["other"]);
        drop(third);
        assert!(subscriptions.list().is_empty());
    }

    /// How long it takes until this many sets of values of one group have subscribed, were checked, and have
    /// left, the last one first.
    #[cfg(target_os = "linux")]
    fn subscribing(locks: usize) -> std::time::Duration {
        let of_value = |number: usize| {
            let key = LockKey::new(&kind::GROUP, "g", None).unwrap();
            let value = crate::key::Value::utf8(&number.to_string());
            Arc::new(key.of_values(&[value]).unwrap())
        };
        let keys: Vec<_> = (0..locks).map(of_value).collect();
        let subscriptions = Arc::new(Subscriptions::default());
        let name = keys[0].channel().expect("its releases are published");
        let began = crate::clock::testing::cpu_time();
        let subscribe = |key| subscriptions.subscribe(key, name.clone());
        let mut shares: Vec<_> = keys.iter().map(subscribe).collect();
        assert_eq!(subscriptions.locks_on(&name).count(), locks);
        while shares.pop().is_some() {}
        assert!(subscriptions.list().is_empty());
        crate::clock::testing::cpu_time() - began
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_cost_of_many_locks_of_one_channel_is_linear() {
        let quickest = |locks| (0..3).map(|_| subscribing(locks)).min().unwrap();
        let [few, many] = [1_000, 10_000].map(quickest);
        println!("1,000 locks took {few:?}, 10,000 took {many:?}");
        // Ten times as many take ten times as long. With a list it was a hundred times.
        assert!(many < few * 35, "{few:?} and {many:?}");
    }

    #[test]
    fn no_waiter_is_woken_while_the_list_is_locked() {
        let subscriptions = Arc::new(Subscriptions::default());
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let subscription = subscriptions.subscribe(&key, "l".to_owned());
        let seen = subscriptions.clone();
        let free = FreeAtEachCall::new(move || seen.list().listed.try_lock().is_some());
        let mut settled = pin!(subscription.settled());
        assert!(free.poll(settled.as_mut()).is_pending());
        subscriptions.list().set_all(SubscriptionState::Failed);
        assert_eq!(free.calls(), [true]);
    }
}
