//! The hash of a lock in logs.

use std::fmt;

use sha1_smol::Sha1;

use super::LockKey;

/// The hash by which logs name the lock with this key in Redis: the first 16 hexadecimal digits of the key's
/// SHA-1. It is the same in each process and version. See [`Lock::hash`](crate::Lock::hash).
///
/// # Examples
///
/// ```
/// // printf %s orders:42 | sha1sum | cut -c -16
/// assert_eq!(lockdog::report::lock_hash("orders:42"), "0fa4753944a29a4c");
/// ```
pub fn lock_hash(key: &str) -> String {
    Fingerprint::of(key).to_string()
}

/// Identifies a lock by its hash, in logs at `info` and above, because names may be personal data.
pub(crate) struct Fingerprint([u8; 8]);

impl Fingerprint {
    fn of(key: &str) -> Self {
        let digest = Sha1::from(key).digest().bytes();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Self(first)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl LockKey {
    /// Replaces the name in logs.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key())
    }

    /// The name, if the client logs names at all levels.
    pub(crate) fn logged_name(&self) -> Option<&str> {
        let is_named = self
            .extras
            .as_ref()
            .is_some_and(|extras| extras.is_named_in_logs);
        is_named.then_some(&*self.name)
    }

    /// Sets whether logs at all levels have the name beside the hash.
    pub(crate) fn named_in_logs(self, is_named_in_logs: bool) -> Self {
        match is_named_in_logs {
            true => self.with(|extras| extras.is_named_in_logs = true),
            false => self,
        }
    }
}
