//! What was measured, and its medians over the rounds.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::run::cell::{Cell, Condition};

/// One library in one cell, once.
pub(crate) struct Line {
    pub(crate) cell: Cell,
    pub(crate) library: &'static str,
    /// What the library was asked for: `raw` measures the scale where it has no such workload.
    pub(crate) measured: &'static str,
    pub(crate) round: usize,
    pub(crate) outcome: Outcome,
}

pub(crate) enum Outcome {
    Figures(Figures),
    /// Unsupported or failed, with the reason.
    Nothing(String),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) values: BTreeMap<String, f64>,
    /// W4: the latencies themselves.
    pub(crate) samples_us: Vec<f64>,
}

/// A figure over the rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// One library in one cell, over the rounds.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) figures: BTreeMap<String, Spread>,
    pub(crate) samples_us: Vec<f64>,
    pub(crate) rounds: usize,
    /// Why a round, or all of them, has no figures.
    pub(crate) why_not: Option<String>,
    pub(crate) measured: &'static str,
}

#[derive(Default)]
pub(crate) struct Summary {
    rows: BTreeMap<(Cell, &'static str), Row>,
}

impl Line {
    pub(crate) fn why_not(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Figures(_) => None,
            Outcome::Nothing(why) => Some(why),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let mut line = describe(self.cell, self.library, self.measured);
        line.insert("round".to_owned(), json!(self.round));
        match &self.outcome {
            Outcome::Figures(figures) => {
                for (name, value) in &figures.values {
                    line.insert(name.clone(), json!(value));
                }
            }
            Outcome::Nothing(why) => {
                line.insert("why_not".to_owned(), json!(why));
            }
        }
        Value::Object(line)
    }
}

impl Figures {
    pub(crate) fn set(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.values.insert(name.to_owned(), value);
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }
}

impl Summary {
    pub(crate) fn of(lines: Vec<Line>) -> Self {
        let mut values: BTreeMap<(Cell, &'static str), BTreeMap<String, Vec<f64>>> =
            BTreeMap::new();
        let mut summary = Self::default();
        for line in lines {
            let key = (line.cell, line.library);
            let row = summary.rows.entry(key).or_default();
            row.measured = line.measured;
            match line.outcome {
                Outcome::Figures(figures) => {
                    row.rounds += 1;
                    row.samples_us.extend(figures.samples_us);
                    let values = values.entry(key).or_default();
                    for (name, value) in figures.values {
                        values.entry(name).or_default().push(value);
                    }
                }
                Outcome::Nothing(why) => row.why_not = Some(why),
            }
        }
        for (key, values) in values {
            let spread = |(name, values)| (name, Spread::of(values));
            let row = summary.rows.entry(key).or_default();
            row.figures = values.into_iter().map(spread).collect();
        }
        summary.count_round_trips();
        summary
    }

    /// Where a delay hides all else, times are numbers of round trips.
    fn count_round_trips(&mut self) {
        let Some(round_trip) = self.round_trip() else {
            return;
        };
        let delayed = |cell: &Cell| cell.condition == Condition::Delayed;
        for (_, row) in self.rows.iter_mut().filter(|((cell, _), _)| delayed(cell)) {
            for (figure, counted) in ROUND_TRIPS {
                if let Some(spread) = row.figures.get(figure) {
                    let spread = spread.over(round_trip);
                    row.figures.insert(counted.to_owned(), spread);
                }
            }
        }
    }

    pub(crate) fn row(&self, cell: Cell, library: &str) -> Option<&Row> {
        let found = self
            .rows
            .iter()
            .find(|((c, l), _)| *c == cell && *l == library);
        found.map(|(_, row)| row)
    }

    /// The median of a figure.
    pub(crate) fn value(&self, cell: Cell, library: &str, figure: &str) -> Option<f64> {
        self.row(cell, library)?
            .figures
            .get(figure)
            .map(|spread| spread.median)
    }

    /// Microseconds of a round trip through the proxy.
    pub(crate) fn round_trip(&self) -> Option<f64> {
        let cell = Cell::new("rtt", 1).under(Condition::Delayed);
        self.value(cell, "raw", "p50_us")
    }

    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = self.rows.keys().map(|(cell, _)| *cell).collect();
        cells.dedup();
        cells
    }

    pub(crate) fn json(&self) -> Vec<Value> {
        let line = |((cell, library), row): (&(Cell, &'static str), &Row)| {
            let mut line = describe(*cell, library, row.measured);
            line.insert("rounds".to_owned(), json!(row.rounds));
            for (name, spread) in &row.figures {
                line.insert(name.clone(), json!(spread.median));
                if spread.least < spread.most {
                    let ends = json!([spread.least, spread.most]);
                    line.insert(format!("{name}_spread"), ends);
                }
            }
            if !row.samples_us.is_empty() {
                line.insert("samples_us".to_owned(), json!(row.samples_us));
            }
            if let Some(why) = &row.why_not {
                line.insert("why_not".to_owned(), json!(why));
            }
            Value::Object(line)
        };
        self.rows.iter().map(line).collect()
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let (first, last) = (0, values.len() - 1);
        let middle = [last / 2, last.div_ceil(2)];
        Self {
            median: middle.iter().map(|i| values[*i]).sum::<f64>() / 2.0,
            least: values[first],
            most: values[last],
        }
    }

    fn over(self, unit: f64) -> Self {
        Self {
            median: self.median / unit,
            least: self.least / unit,
            most: self.most / unit,
        }
    }
}

fn describe(cell: Cell, library: &str, measured: &str) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("workload".to_owned(), json!(cell.title()));
    line.insert("library".to_owned(), json!(library));
    if measured != cell.title() {
        line.insert("measured".to_owned(), json!(measured));
    }
    line.insert("owners".to_owned(), json!(cell.owners));
    line.insert("clients".to_owned(), json!(cell.clients));
    if cell.locks > 0 {
        line.insert("locks".to_owned(), json!(cell.locks));
    }
    match cell.condition {
        Condition::Plain | Condition::Delayed => {}
        Condition::Killed => drop(line.insert("fault".to_owned(), json!("killed"))),
        Condition::Frozen => drop(line.insert("fault".to_owned(), json!("frozen"))),
    }
    line
}

/// Times of a pair, and the names of the round trips in them.
const ROUND_TRIPS: [(&str, &str); 3] = [
    ("p50_us", "p50_in_round_trips"),
    ("us_per_pair", "us_per_pair_in_round_trips"),
    ("write_p99_us", "write_p99_in_round_trips"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_and_both_extremes() {
        let odd = Spread::of(vec![3.0, 1.0, 2.5]);
        assert_eq!((odd.median, odd.least, odd.most), (2.5, 1.0, 3.0));
        assert_eq!(Spread::of(vec![4.0, 2.0]).median, 3.0);
        assert_eq!(Spread::of(vec![7.0]).median, 7.0);
    }

    #[test]
    fn a_failed_round_does_not_change_the_figures_of_other_rounds() {
        let cell = Cell::new("W1", 1);
        let line = |round, outcome| Line {
            cell,
            library: "lockdog",
            measured: "W1",
            round,
            outcome,
        };
        let mut figures = Figures::default();
        figures.set("p50_us", 5.0);
        figures.set("p99_us", f64::NAN);
        let failed = Outcome::Nothing("failed".to_owned());
        let summary = Summary::of(vec![line(1, Outcome::Figures(figures)), line(2, failed)]);
        assert_eq!(summary.value(cell, "lockdog", "p50_us"), Some(5.0));
        assert_eq!(summary.value(cell, "lockdog", "p99_us"), None);
        assert_eq!(summary.value(cell, "raw", "p50_us"), None);
    }
}
