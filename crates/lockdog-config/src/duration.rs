//! Durations as people write them: `250ms`, `10s`, `1h30m`.

use std::fmt;
use std::time::Duration;

/// Reads a duration in the form of lockdog's own files, and of the command `lockdog`: whole numbers with the
/// units `d`, `h`, `m`, `s` and `ms`, each unit smaller than the one before, and spaces between the parts at
/// most. Zero needs no unit.
///
/// # Errors
///
/// A [`DurationError`] for anything else, and for more than 100 years. A number without a unit is an error,
/// because a reader cannot see whether it counts seconds or milliseconds.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(lockdog_config::parse_duration("1h30m"), Ok(Duration::from_secs(5_400)));
/// assert!(lockdog_config::parse_duration("10").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(DurationError("it is empty: say 10s or 250ms"));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DurationError("a duration needs a unit: say 10s or 10ms"));
    }
    let sum = sum(text).ok_or(DurationError(
        "it must be a duration such as 250ms, 30s or 1h30m",
    ))?;
    match sum {
        Some(sum) if sum <= LONGEST => Ok(sum),
        _ => Err(DurationError("it is longer than 100 years")),
    }
}

/// Why a text is no duration. It does not quote the text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DurationError(&'static str);

impl DurationError {
    pub(crate) fn why(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for DurationError {}

/// The sum of the parts. `None` if one of them is none, `Some(None)` if the sum is too large.
fn sum(text: &str) -> Option<Option<Duration>> {
    let mut rest = text;
    let mut units = &UNITS[..];
    let mut millis = Some(0_u64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let at = units.iter().position(|(name, _)| *name == unit)?;
        if number.is_empty() {
            return None;
        }
        // All of it are digits, so what fails to parse is too large.
        let part = number.parse::<u64>().ok();
        let part = part.and_then(|number| number.checked_mul(units[at].1));
        millis = millis
            .zip(part)
            .and_then(|(sum, part)| sum.checked_add(part));
        units = &units[at + 1..];
        rest = tail.trim_start();
    }
    Some(millis.map(Duration::from_millis))
}

/// The units of a duration, in milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 24 * 60 * 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("m", 60 * 1000),
    ("s", 1000),
    ("ms", 1),
];
/// Far below what the timers can count.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_units_in_their_order() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("2d", 172_800_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0", 0),
            ("0s", 0),
            (" 10s ", 10_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_number_without_a_unit_is_refused_with_both_readings() {
        let refusal = parse_duration("10").unwrap_err();
        assert!(refusal.to_string().contains("10s or 10ms"), "{refusal}");
    }

    #[test]
    fn bad_durations_are_refused() {
        for (text, why) in [
            ("", "empty"),
            (" ", "empty"),
            ("s", "such as"),
            ("1x", "such as"),
            ("1.5s", "such as"),
            ("-1s", "such as"),
            ("1s1h", "such as"),
            ("1s1s", "such as"),
            ("10s5", "such as"),
            ("ms10", "such as"),
            ("10 s", "such as"),
            ("1S", "such as"),
            ("ä", "such as"),
            ("1ä", "such as"),
            ("99999999999999999999s", "100 years"),
            ("9999999999999999999d", "100 years"),
            ("1000000d", "100 years"),
        ] {
            let refusal = parse_duration(text).expect_err(text);
            assert!(refusal.to_string().contains(why), "{text}: {refusal}");
        }
    }
}
