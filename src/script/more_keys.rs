//! What some kinds' scripts get in addition to the lock's own key, the field and the lease.

use smallvec::{SmallVec, smallvec};

use super::{Arg, read_write};
use crate::key::LockKey;

/// The keys that a script for one hold has behind the lock's own: those that the mode of the hold needs, the set
/// of permits, those of the queue on the server, and the one of a leader's value.
pub(super) fn more_keys(key: &LockKey, field: &str) -> SmallVec<[String; 3]> {
    let mut more = SmallVec::new();
    if let Some(mode) = key.mode() {
        let keys = read_write::more_keys(key, mode, field);
        more.extend(keys.into_iter().flatten());
    }
    if let Some(permits) = key.permits() {
        more.push(permits);
    }
    if let Some(queue) = key.server_queue() {
        more.extend(queue);
    }
    if let Some(proclaimed) = key.proclaimed() {
        more.push(proclaimed);
    }
    more
}

/// The lock's key, and these.
pub(super) fn with_more<'a>(key: &'a LockKey, more: &'a [String]) -> SmallVec<[&'a str; 4]> {
    let mut keys = smallvec![key.key()];
    for key in more {
        keys.push(key.as_str());
    }
    keys
}

/// The values of a group that the lock is about.
pub(super) fn values(key: &LockKey) -> impl Iterator<Item = Arg<'_>> {
    key.values().iter().map(|value| Arg::Text(value))
}
