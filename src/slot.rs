//! The hash slot of a key in a Redis Cluster.

use crc::{CRC_16_XMODEM, Crc};

/// Number of hash slots in a Redis Cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key. If the key's first pair of braces is not empty, only the text inside it is
/// hashed; otherwise the whole key is.
pub(crate) fn slot(key: &str) -> u16 {
    const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    CRC.checksum(tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

fn tag(key: &str) -> Option<&str> {
    let (_, after) = key.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::slot;

    /// The expected values are those of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_match_cluster_keyslot() {
        for (key, expected) in [
            ("", 0),
            ("foo", 12182),
            ("123456789", 12739),
            ("{foo}bar", 12182),
            ("a{foo}{bar}", 12182),
            ("foo{}", 5542),
            ("{}foo", 9500),
            ("foo{bar", 15278),
        ] {
            assert_eq!(slot(key), expected, "{key}");
        }
    }
}
