//! Which slot a name belongs to, and names for a slot.

/// The slot of a key, by the same rule as the server's.
pub(crate) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| {
        let (tag, _) = rest.split_once('}')?;
        (!tag.is_empty()).then_some(tag)
    });
    crc16(tag.unwrap_or(key).as_bytes()) % SLOTS
}

/// The first names of the form `<prefix>:<number>` whose slots match.
pub(crate) fn names(prefix: &str, n: usize, pleases: impl Fn(u16) -> bool) -> Vec<String> {
    let all = (0..).map(|number: u64| format!("{prefix}:{number}"));
    all.filter(|name| pleases(slot(name))).take(n).collect()
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

pub(crate) const SLOTS: u16 = 16_384;
