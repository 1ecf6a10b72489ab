//! The group in which observers count a lock.

use std::borrow::Cow;
use std::sync::Arc;

use super::LockKey;

/// Maps a lock's name to its group.
pub(crate) type LockGroup = Arc<dyn Fn(&str) -> Cow<'_, str> + Send + Sync>;

impl LockKey {
    /// The same lock, in the group that the user's function makes of its name.
    pub(crate) fn in_group(self, group: &LockGroup) -> Self {
        let found = group(&self.name);
        let mut end = found.len().min(LONGEST);
        while !found.is_char_boundary(end) {
            end -= 1;
        }
        if end == 0 {
            return self;
        }
        let found: Box<str> = found[..end].into();
        self.with(|extras| extras.group = Some(found))
    }

    /// The group in which observers count it; empty if it is in none.
    pub(crate) fn group(&self) -> &str {
        self.extra(|extras| extras.group.as_deref())
            .unwrap_or_default()
    }
}

/// The maximum length of a group in bytes.
const LONGEST: usize = 64;
