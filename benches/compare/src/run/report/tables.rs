//! The figures as Markdown tables, and the targets among them.

use crate::run::cell::Cell;
use crate::run::figures::{Row, Spread, Summary};
use crate::run::plan::{BESIDE_LOCKDOG, LIBRARIES};
use crate::run::report::page::Page;
use crate::run::report::words::{number, show, title};
use crate::run::targets::{self, Bound, Than};

/// Target by target: reached, or how far off. One that was not measured keeps the row that it had before.
pub(super) fn targets(summary: &Summary, before: &Page) -> String {
    let mut table = Table::new(&["workload", "target", "lockdog", "against", "ratio", ""]);
    for target in targets::all() {
        let found = target.found(summary);
        let (workload, wanted) = (target.cell.to_string(), wanted(&target));
        if let (None, Some(row)) = (&found, before.target(&workload, &wanted)) {
            table.text += row;
            continue;
        }
        let cells = match &found {
            None => ["-", "-", "-", "not measured"].map(str::to_owned),
            Some(found) => {
                let ratio = found.ours / found.theirs;
                // Redisson's writers may get nothing.
                let ratio_text = if ratio.is_finite() {
                    number(ratio)
                } else {
                    "-".to_owned()
                };
                let against = match target.than {
                    Than::One => "-".to_owned(),
                    _ => show(target.figure, found.theirs),
                };
                [
                    show(target.figure, found.ours),
                    against,
                    ratio_text,
                    verdict(target.bound, ratio),
                ]
            }
        };
        let mut row = vec![workload, wanted];
        row.extend(cells);
        table.row(row);
    }
    table.text
}

/// All figures of a workload; nothing if it was not measured.
pub(crate) fn figures(summary: &Summary, workload: &str, figures: &[&str]) -> String {
    let cells: Vec<Cell> = summary.cells();
    let cells = cells.iter().filter(|cell| cell.title() == workload);
    let mut heads = vec!["size", "library"];
    heads.extend(figures.iter().map(|figure| title(figure)));
    let mut table = Table::new(&heads);
    let mut rows = 0;
    for cell in cells {
        for library in LIBRARIES {
            let Some(row) = summary.row(*cell, library) else {
                continue;
            };
            rows += 1;
            table.row(line(cell, library, row, figures));
        }
    }
    if rows == 0 { String::new() } else { table.text }
}

fn line(cell: &Cell, library: &str, row: &Row, figures: &[&str]) -> Vec<String> {
    let library = match row.measured {
        "serial" => "raw: serial EVALSHA",
        "idle" => "raw: PING when idle",
        "rtt" => "raw: PING",
        _ => library,
    };
    let mut line = vec![cell.size(), library.to_owned()];
    match &row.why_not {
        Some(why) if row.figures.is_empty() => line.push(why.clone()),
        _ => {
            let shown = figures.iter().map(|figure| {
                let spread = row.figures.get(*figure);
                spread.map_or_else(|| "-".to_owned(), |spread| with_spread(figure, spread))
            });
            line.extend(shown);
        }
    }
    line.resize(figures.len() + 2, String::new());
    line
}

/// The rate comes with its ends, so that one sees what the rest is worth.
fn with_spread(figure: &str, spread: &Spread) -> String {
    let median = show(figure, spread.median);
    if figure == "pairs_per_s" && spread.least < spread.most {
        let (least, most) = (show(figure, spread.least), show(figure, spread.most));
        return format!("{median} ({least} to {most})");
    }
    median
}

fn wanted(target: &targets::Target) -> String {
    let (sign, factor) = match target.bound {
        Bound::AtMost(factor) => ("<=", factor),
        Bound::AtLeast(factor) => (">=", factor),
    };
    let figure = title(target.figure);
    match target.than {
        Than::One => format!("{figure} {sign} {}", show(target.figure, factor)),
        Than::Library(library) => format!("{figure} {sign} {} x {library}", number(factor)),
        Than::Scale(what) => format!("{figure} {sign} {} x {what}", number(factor)),
        Than::Plain(kind) => format!("{kind}: {figure} {sign} {} x plain", number(factor)),
        Than::Alone => format!(
            "{BESIDE_LOCKDOG}: {figure} {sign} {} x alone",
            number(factor)
        ),
        Than::Itself(_, what) => format!("{figure} {sign} {} x {what}", number(factor)),
        Than::RoundTrip => format!("{figure} {sign} {} round trips", number(factor)),
    }
}

fn verdict(bound: Bound, ratio: f64) -> String {
    if bound.holds(ratio) {
        return "reached".to_owned();
    }
    let factor = bound.factor();
    if factor == 0.0 {
        return "missed".to_owned();
    }
    let off = 100.0 * (ratio - factor).abs() / factor;
    format!("missed by {} %", number(off))
}

struct Table {
    text: String,
}

impl Table {
    fn new(heads: &[&str]) -> Self {
        let mut table = Self {
            text: String::new(),
        };
        table.row(heads.iter().map(|head| (*head).to_owned()).collect());
        table.row(heads.iter().map(|_| "---".to_owned()).collect());
        table
    }

    fn row(&mut self, cells: Vec<String>) {
        self.text += &format!("| {} |\n", cells.join(" | "));
    }
}
