//! Durations for people.

use std::time::Duration;

pub(crate) use lockdog_config::parse_duration as parse;

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

#[cfg(test)]
mod tests {
    use super::*;

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
