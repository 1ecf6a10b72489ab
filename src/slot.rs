//! The slot of a cluster that a key is in.

use crc::{CRC_16_XMODEM, Crc};

/// So many slots has every cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: of what stands in its first pair of braces, if there is something, or else of
/// all of it.
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

    /// What `CLUSTER KEYSLOT` says.
    #[test]
    fn slots_are_those_of_the_server() {
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
