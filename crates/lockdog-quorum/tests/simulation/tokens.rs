//! The fencing tokens that were shown, and a resource that refuses late writes.

use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Tokens {
    shown: BTreeSet<u64>,
    /// The largest token that the resource has seen.
    taken: u64,
    /// When the newest acquisition that wrote to the resource began.
    writer_began: u64,
}

/// A write to the resource, by a holder that may have lost the lock without knowing it.
pub(super) struct Write {
    pub(super) token: u64,
    /// When its acquisition began, and when its token was shown.
    pub(super) began: u64,
    pub(super) shown: u64,
    pub(super) is_valid: bool,
}

impl Tokens {
    /// The largest token that any client was shown.
    pub(super) fn largest(&self) -> u64 {
        self.shown.last().copied().unwrap_or(0)
    }

    /// Records a token shown to an acquisition that began when `floor` was the largest. Returns the
    /// violation, if any.
    pub(super) fn show(&mut self, token: u64, floor: u64) -> Option<String> {
        if token <= floor {
            return Some(format!("token {token} is shown after {floor}"));
        }
        (!self.shown.insert(token)).then(|| format!("token {token} is shown twice"))
    }

    /// The resource accepts a write unless it has seen a larger token; true if it did. An error is a
    /// violation.
    pub(super) fn write(&mut self, write: &Write) -> Result<bool, String> {
        let token = write.token;
        if token < self.taken {
            if write.is_valid {
                return Err(format!("a valid holder's token {token} is refused"));
            }
            return Ok(false);
        }
        if self.writer_began > write.shown {
            return Err(format!(
                "the resource takes token {token} after a later holder's"
            ));
        }
        self.taken = token;
        self.writer_began = self.writer_began.max(write.began);
        Ok(true)
    }
}
