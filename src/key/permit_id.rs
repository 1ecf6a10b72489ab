//! The id of a permit.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::Error;

/// The id of one permit of a [`PermitSemaphore`](crate::PermitSemaphore). Corresponds to the permit id of
/// Redisson's `RPermitExpirableSemaphore`, which is a `String`.
///
/// It is 16 bytes. As text it has 32 hexadecimal digits, as in Redisson: `to_string()` gives what
/// Redisson takes, and [`FromStr`] takes what Redisson gives. Each acquire has new ids.
///
/// # Examples
///
/// ```
/// let id: lockdog::PermitId = "0123456789abcdef0123456789abcdef".parse()?;
/// assert_eq!(id.to_string(), "0123456789abcdef0123456789abcdef");
/// # Ok::<(), lockdog::Error>(())
/// ```
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PermitId([u8; LENGTH]);

impl PermitId {
    /// The id with these bytes, as they are in Redis. Redisson's `permitId` is their text: see `FromStr`.
    pub const fn from_bytes(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    /// The bytes of the id, as they are in Redis.
    pub const fn as_bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }

    /// The permit that is the hold with this number of this client. Each byte of the id is ASCII, so that
    /// the id is text, as the field of a lock's hold is.
    pub(crate) fn of_hold(client: Uuid, number: u64) -> Self {
        let mut bytes = [0; LENGTH];
        fill(&mut bytes[..CLIENT], client_bits(client));
        fill(&mut bytes[CLIENT..], number);
        Self(bytes)
    }

    /// The number of the hold, if the permit is one of this client.
    pub(crate) fn number(&self, client: Uuid) -> Option<u64> {
        let number = self.0[CLIENT..]
            .iter()
            .fold(0, |bits, byte| bits << BITS | u64::from(*byte));
        (*self == Self::of_hold(client, number)).then_some(number)
    }

    /// The id as the field of a hold of this client: the same bytes as text.
    pub(crate) fn into_field(self) -> String {
        self.0.iter().map(|byte| char::from(byte & MASK)).collect()
    }
}

/// 63 random bits of the client's id, without its version and its variant.
fn client_bits(client: Uuid) -> u64 {
    let (high, low) = client.as_u64_pair();
    (high >> 16) << 15 | (low & 0x7fff)
}

/// Writes the low bits of a number, seven to each byte, the highest first.
fn fill(bytes: &mut [u8], mut bits: u64) {
    for byte in bytes.iter_mut().rev() {
        *byte = bits as u8 & MASK;
        bits >>= BITS;
    }
}

impl FromStr for PermitId {
    type Err = Error;

    /// # Errors
    ///
    /// [`Error::Invalid`] if the text is not 32 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, Error> {
        let is_id = text.len() == 2 * LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u128::from_str_radix(text, 16).ok().filter(|_| is_id);
        bits.map(|bits| Self(bits.to_be_bytes())).ok_or_else(|| {
            let why = format!("it must be 32 hexadecimal digits, got={text:.40?}");
            Error::invalid("permit id", why)
        })
    }
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const LENGTH: usize = 16;
/// How many of its bytes name the client. The others are the number of the hold: 49 bits, which a
/// client that acquires a million permits a second uses up in 17 years.
const CLIENT: usize = 9;
/// How many bits of a byte are used.
const BITS: u32 = 7;
const MASK: u8 = 0x7f;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_a_hold_of_one_client() {
        let [ours, other] = [Uuid::new_v4(), Uuid::new_v4()];
        for number in [0, 1, 127, 128, 1 << 48, (1 << 49) - 1] {
            let id = PermitId::of_hold(ours, number);
            assert_eq!(id.number(ours), Some(number));
            assert_eq!(id.number(other), None);
            assert_eq!(id.into_field().as_bytes(), id.as_bytes());
            assert_eq!(id.to_string().parse::<PermitId>().unwrap(), id);
        }
        let theirs = PermitId::from_bytes([0xff; LENGTH]);
        assert_eq!(theirs.number(ours), None);
    }

    #[test]
    fn only_32_hexadecimal_digits_are_an_id() {
        let digits = "0123456789abcdef0123456789ABCDEF";
        let id: PermitId = digits.parse().unwrap();
        assert_eq!(id.to_string(), digits.to_lowercase());
        assert_eq!(id.as_bytes()[..2], [0x01, 0x23]);
        let plus = format!("+{}", &digits[1..]);
        for other in [
            "",
            &digits[1..],
            &format!("{digits}0"),
            &plus,
            "\u{e4}".repeat(16).as_str(),
        ] {
            assert!(matches!(
                other.parse::<PermitId>(),
                Err(Error::Invalid { .. })
            ));
        }
    }
}
