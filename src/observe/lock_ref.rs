//! How an event names a lock.

use crate::key::LockKey;
use crate::owner::Owner;

/// The lock, semaphore, latch or election of a [`ClientEvent`](super::ClientEvent), and its owner.
#[derive(Clone, Copy, Debug)]
pub struct LockRef<'a> {
    name: &'a str,
    group: &'a str,
    kind: &'static str,
    owner: Owner,
}

impl<'a> LockRef<'a> {
    pub(crate) fn of(key: &'a LockKey, owner: Owner) -> Self {
        Self {
            name: key.name(),
            group: key.group(),
            kind: key.kind().name,
            owner,
        }
    }

    /// A lock made of the locks with these keys.
    pub(crate) fn of_several(
        name: &'a str,
        kind: &'static str,
        mut keys: impl Iterator<Item = &'a LockKey>,
        owner: Owner,
    ) -> Self {
        let group = keys.next().map_or("", LockKey::group);
        let is_common = keys.all(|key| key.group() == group);
        Self {
            name,
            group: if is_common { group } else { "" },
            kind,
            owner,
        }
    }

    /// The name that the caller gave it. Names may be personal data, and there may be any number of them: use
    /// [`LockRef::group`] for labels.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// What [`ClientBuilder::lock_group`](crate::ClientBuilder::lock_group) made of the name; empty if it is not
    /// set. A [`MultiLock`](crate::MultiLock) and a [`RedLock`](crate::RedLock) have the group of their locks if
    /// these have the same one, and none otherwise.
    pub fn group(&self) -> &'a str {
        self.group
    }

    /// What it is, in words: for example `lock`, `fair lock`, `read lock`, `semaphore`, `permit`, `latch`,
    /// `election`, `multi lock` or `red lock`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Its owner. Permits have a new one for each call. That of a latch is the task that waits.
    pub fn owner(&self) -> Owner {
        self.owner
    }
}
