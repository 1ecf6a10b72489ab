//! Numbers in arguments, parsed as strictly as in Redis.

use crate::reply::Refusal;

/// An integer without plus sign, spaces or leading zeros.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = match digits {
        [] => false,
        [b'0'] => text.len() == 1,
        [b'0', ..] => false,
        digits => digits.iter().all(u8::is_ascii_digit),
    };
    if !is_plain {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

/// As [`integer`], for a command's argument.
pub(crate) fn int_arg(text: &[u8]) -> Result<i64, Refusal> {
    integer(text).ok_or_else(Refusal::not_an_integer)
}

/// A floating point number; not NaN.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let text = str::from_utf8(text).ok()?;
    if text.starts_with(char::is_whitespace) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// A score. Redis refuses one whose size a floating point number cannot have.
pub(crate) fn score_number(text: &[u8]) -> Option<f64> {
    let number = float(text)?;
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next();
    let is_zero = mantissa.is_none_or(|digits| !digits.iter().any(|it| matches!(it, b'1'..=b'9')));
    let is_word = !text.iter().any(u8::is_ascii_digit);
    let is_outside = number.is_infinite() && !is_word || number == 0.0 && !is_zero;
    (!is_outside).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_are_integers() {
        for (text, number) in [("0", 0), ("-1", -1), ("30000", 30_000)] {
            assert_eq!(integer(text.as_bytes()), Some(number));
        }
        for text in [
            "",
            "-",
            "+1",
            " 1",
            "01",
            "-0",
            "1.0",
            "1e3",
            "9223372036854775808",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_score_has_a_size_that_a_float_can_have() {
        let is_score = |text: &&str| score_number(text.as_bytes()).is_some();
        let scores = ["inf", "-Infinity", "0", "-0.0e5", "0e400", "1e5", "1e-310"];
        assert!(scores.iter().all(is_score));
        let others = ["1e400", "-1e400", "1e-400", "nan", "", " 1", "e"];
        assert!(!others.iter().any(is_score));
    }
}
