//! The hasher of maps from locks: a lock stores its hash.

use std::hash::Hasher;

/// Returns the hash that a [`LockKey`](super::LockKey) stores.
#[derive(Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        // Never called: a `LockKey` hashes itself as one `u64`.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
