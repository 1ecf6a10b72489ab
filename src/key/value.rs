//! A value of a group, as the bytes that Redisson's codec makes of it.

use super::highway::hash128;
use crate::error::{Error, Result};

/// A value of a group, for [`Client::group_lock`](crate::Client::group_lock).
///
/// Redisson hashes the bytes that its codec makes of a value. Both sides have the same value only if they have the
/// same bytes, so choose the constructor of the codec that the Java service uses.
///
/// # Examples
///
/// ```
/// use lockdog::Value;
///
/// let value = Value::kryo5("Jack")?; // Redisson's default codec
/// assert_ne!(value, Value::utf8("Jack")); // StringCodec
/// assert_eq!(Value::utf8("Jack"), Value::encoded(b"Jack".to_vec()));
/// # Ok::<(), lockdog::Error>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Value(Vec<u8>);

impl Value {
    /// A Java `String`, encoded as Redisson's default codec `Kryo5Codec` encodes it.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a text that is not 2 to 32 ASCII characters: Kryo writes other texts in another form.
    /// Pass their bytes to [`Value::encoded`].
    pub fn kryo5(text: &str) -> Result<Self> {
        let is_short = (2..=32).contains(&text.len());
        if !text.is_ascii() || !is_short {
            let why = "it must have 2 to 32 ASCII characters; use Value::encoded for other texts"
                .to_owned();
            return Err(Error::invalid("value of a group", why));
        }
        let mut bytes = vec![STRING];
        bytes.extend(text.bytes());
        if let Some(last) = bytes.last_mut() {
            *last |= END;
        }
        Ok(Self(bytes))
    }

    /// A text, encoded as Redisson's `StringCodec` encodes it.
    pub fn utf8(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// A value as the codec of the Java service writes it.
    pub fn encoded(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Its name in the group's hash: Base64 without padding.
    pub(crate) fn name(&self) -> String {
        let mut name = String::with_capacity(22);
        let bytes: Vec<u8> = hash128(&self.0)
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect();
        for chunk in bytes.chunks(3) {
            let bits = chunk
                .iter()
                .fold(0, |bits, byte| bits << 8 | usize::from(*byte));
            let bits = bits << (8 * (3 - chunk.len()));
            for place in 0..=chunk.len() {
                name.push(char::from(ALPHABET[bits >> (18 - 6 * place) & 63]));
            }
        }
        name
    }
}

/// Kryo's class of a string.
const STRING: u8 = 3;
/// Marks the last character of a short string.
const END: u8 = 0x80;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `tests/golden/faster_multi_lock.json`.
    #[test]
    fn values_are_named_as_redisson_names_them() {
        let kryo5 = |text| Value::kryo5(text).unwrap().name();
        assert_eq!(kryo5("Jack"), "xOfNUjB5nFaIIn+SD7r/3Q");
        assert_eq!(kryo5("Mary"), "230jWNvarrOid4cfBqB4JQ");
        assert_eq!(kryo5("Tom"), "1eDMpk3vLr44H30DkVKRJA");
        assert_eq!(Value::utf8("Jack").name(), "r4Izj6gYWbW5+IXpDzUSZA");
        assert_eq!(Value::utf8("Mary").name(), "sjTXY8l/3Co3g7TNLma+qg");
    }

    #[test]
    fn texts_whose_form_in_kryo_is_not_known_are_refused() {
        for text in ["", "x", "\u{e4}\u{e4}", &"x".repeat(33)] {
            assert!(
                matches!(Value::kryo5(text), Err(Error::Invalid { .. })),
                "{text}"
            );
        }
        assert!(Value::kryo5("xy").is_ok() && Value::kryo5(&"x".repeat(32)).is_ok());
    }
}
