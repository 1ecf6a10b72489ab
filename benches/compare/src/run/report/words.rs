//! How figures are called and written.

/// As it is in a heading.
pub(crate) fn title(figure: &str) -> &str {
    let known = FIGURES.iter().find(|(name, _, _)| *name == figure);
    known.map_or(figure, |(_, title, _)| title)
}

pub(crate) fn show(figure: &str, value: f64) -> String {
    let known = FIGURES.iter().find(|(name, _, _)| *name == figure);
    match known.map_or(Form::Number, |(_, _, form)| *form) {
        Form::Rate => rate(value),
        Form::Micros => micros(value),
        Form::Number => number(value),
    }
}

/// What follows a value on the terminal; most say it themselves.
pub(crate) fn unit(figure: &str) -> &str {
    match figure {
        "pairs_per_s" => "pairs/s",
        "writes_per_s" => "writes/s",
        "locks_lost" => "lost",
        "bytes_per_lock" => "bytes a lock",
        _ => "",
    }
}

/// Three digits that matter.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn rate(value: f64) -> String {
    match value {
        10_000.0.. => format!("{:.1} k", value / 1e3),
        1_000.0.. => format!("{:.2} k", value / 1e3),
        _ => number(value),
    }
}

fn micros(value: f64) -> String {
    match value {
        1e6.. => format!("{} s", number(value / 1e6)),
        1e3.. => format!("{} ms", number(value / 1e3)),
        _ => format!("{} us", number(value)),
    }
}

#[derive(Clone, Copy)]
enum Form {
    Rate,
    Micros,
    Number,
}

const FIGURES: [(&str, &str, Form); 33] = [
    ("pairs_per_s", "pairs/s", Form::Rate),
    ("us_per_pair", "time per pair", Form::Micros),
    ("p50_us", "p50", Form::Micros),
    ("p99_us", "p99", Form::Micros),
    ("max_us", "max", Form::Micros),
    ("p50_in_round_trips", "p50 in round trips", Form::Number),
    (
        "us_per_pair_in_round_trips",
        "round trips per pair",
        Form::Number,
    ),
    (
        "write_p99_in_round_trips",
        "writers' p99 in round trips",
        Form::Number,
    ),
    ("commands_per_pair", "commands per pair", Form::Number),
    ("inside_per_pair", "calls in scripts", Form::Number),
    ("script_us", "time of a script", Form::Micros),
    (
        "client_cpu_us_per_pair",
        "client CPU, s per million pairs",
        Form::Number,
    ),
    (
        "server_cpu_us_per_pair",
        "server CPU, s per million pairs",
        Form::Number,
    ),
    ("p99_in_turns", "p99 in turns of all owners", Form::Number),
    ("min_share", "smallest share", Form::Number),
    ("max_share", "largest share", Form::Number),
    ("min_client_share", "smallest client's share", Form::Number),
    ("max_client_share", "largest client's share", Form::Number),
    ("share_ratio", "smallest / largest share", Form::Number),
    ("commands_per_client", "commands per client", Form::Number),
    ("writes_per_s", "writes/s", Form::Rate),
    ("write_p50_us", "writers' p50", Form::Micros),
    ("write_p99_us", "writers' p99", Form::Micros),
    ("write_max_us", "writers' max", Form::Micros),
    ("failures", "failures", Form::Number),
    ("locks_lost", "locks lost", Form::Number),
    ("smallest_ttl_s", "smallest TTL seen, s", Form::Number),
    ("commands_per_s", "commands/s", Form::Number),
    (
        "commands_per_100_and_period",
        "commands per 100 locks and period",
        Form::Number,
    ),
    (
        "client_cpu_percent",
        "client CPU, % of a core",
        Form::Number,
    ),
    (
        "server_cpu_percent",
        "server CPU, % of a core",
        Form::Number,
    ),
    ("bytes_per_lock", "bytes per lock", Form::Number),
    ("shutdown_s", "shutdown, s", Form::Number),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_a_suitable_unit() {
        assert_eq!(show("pairs_per_s", 18_640.0), "18.6 k");
        assert_eq!(show("pairs_per_s", 2_564.0), "2.56 k");
        assert_eq!(show("p50_us", 68.94), "68.9 us");
        assert_eq!(show("p50_us", 1_234.0), "1.23 ms");
        assert_eq!(show("max_us", 10_040_000.0), "10.0 s");
        assert_eq!(show("commands_per_pair", 2.0), "2.00");
    }
}
