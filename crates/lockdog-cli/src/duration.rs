//! Durations as users write them: `250ms`, `10s`, `1h30m`.

use std::time::Duration;

/// Reads a duration. A number without a unit is an error, because nobody can see whether it counts seconds
/// or milliseconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("it is empty; write 10s or 250ms".to_owned());
    }
    if rest != "0" && rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("it has no unit; write {rest}s or {rest}ms"));
    }
    let mut sum = Duration::ZERO;
    if rest == "0" {
        return Ok(sum);
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let number: u64 = number.parse().map_err(|_| WRONG.to_owned())?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(WRONG.to_owned()),
        };
        let part = number.checked_mul(millis).map(Duration::from_millis);
        sum = part
            .and_then(|part| sum.checked_add(part))
            .filter(|sum| *sum <= LONGEST)
            .ok_or_else(|| "it is longer than 100 years".to_owned())?;
        rest = tail.trim_start();
    }
    Ok(sum)
}

/// A duration for people: `28 s`, `3 min 20 s`, `1 h 5 min`, `250 ms`.
pub(crate) fn shown(duration: Duration) -> String {
    let (millis, seconds) = (duration.as_millis(), duration.as_secs());
    match seconds {
        0 => format!("{millis} ms"),
        1..60 => format!("{seconds} s"),
        60..3_600 => with_rest(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => with_rest(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => with_rest(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

fn with_rest(whole: u64, unit: &str, rest: u64, smaller: &str) -> String {
    match rest {
        0 => format!("{whole} {unit}"),
        _ => format!("{whole} {unit} {rest} {smaller}"),
    }
}

const WRONG: &str = "it must be numbers with units, as in 250ms, 10s or 1h30m";
/// Far below what the timers can count.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("2d", 172_800_000),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_refused_with_both_readings() {
        let refusal = parse("10").unwrap_err();
        assert!(refusal.contains("10s or 10ms"), "{refusal}");
    }

    #[test]
    fn bad_durations_are_refused() {
        for text in [
            "",
            " ",
            "s",
            "10x",
            "1.5s",
            "-1s",
            "10s5",
            "ms10",
            "10 s",
            "ä",
            "99999999999999999999s",
            "18446744073709551615d",
            "1000000d",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_with_two_units_at_most() {
        for (millis, text) in [
            (250, "250 ms"),
            (28_400, "28 s"),
            (200_000, "3 min 20 s"),
            (3_900_000, "1 h 5 min"),
            (86_400_000, "1 d"),
        ] {
            assert_eq!(shown(Duration::from_millis(millis)), text);
        }
    }
}
