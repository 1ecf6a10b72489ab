//! Which cells are measured, by whom, for how long.

use crate::run::cell::{Cell, Condition};
use crate::run::options::Options;

pub(crate) struct Planned {
    pub(crate) cell: Cell,
    pub(crate) libraries: Vec<Part>,
    pub(crate) rounds: usize,
    pub(crate) warmup_s: f64,
    pub(crate) seconds: f64,
    /// W5 only.
    pub(crate) lease_s: f64,
}

/// A library in a cell, and the workload that it is asked for: where there is nothing to compare it
/// with, `raw` measures the scale beside it.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) library: &'static str,
    pub(crate) workload: &'static str,
}

impl Part {
    /// Whose process it is, and which of its interfaces is meant.
    pub(crate) fn driver(&self) -> (&'static str, Option<String>) {
        match self.library {
            ASYNC => ("redisson", Some("async".to_owned())),
            library => (library, None),
        }
    }
}

pub(crate) fn cells(options: &Options, present: &[&'static str]) -> Vec<Planned> {
    let cells = if options.quick { quick() } else { full() };
    let mut plan: Vec<Planned> = Vec::new();
    for cell in cells {
        if !options.wants(cell.title()) {
            continue;
        }
        let sized = matches!(cell.title(), "W1" | "W2" | "W6");
        let owners = match &options.owners[..] {
            owners if sized && !owners.is_empty() => owners.to_vec(),
            _ => vec![cell.owners],
        };
        for owners in owners {
            let cell = Cell { owners, ..cell };
            if plan.iter().all(|planned| planned.cell != cell) {
                plan.push(planned(cell, options, present));
            }
        }
    }
    plan.retain(|planned| !planned.libraries.is_empty());
    plan
}

/// What a JVM needs before its figures settle.
pub(crate) fn warm_up(options: &Options) -> Planned {
    Planned {
        cell: Cell::new("W1", 16),
        libraries: vec![Part {
            library: "redisson",
            workload: "W1",
        }],
        rounds: 1,
        warmup_s: 1.0,
        seconds: if options.quick { 4.0 } else { 24.0 },
        lease_s: 0.0,
    }
}

fn planned(cell: Cell, options: &Options, present: &[&'static str]) -> Planned {
    let (rounds, seconds, warmup_s) = match (options.quick, cell.contenders()) {
        (true, _) => (1, 1.0, 0.5),
        // Where both cores are mostly idle, the scheduler keeps for seconds to waking tasks on their
        // waker's core, or on the other one, which takes thrice as long: many rounds, and short.
        (false, ..=2) => (7, 1.1, 0.5),
        (false, _) => (3, 2.4, 0.6),
    };
    let mut planned = Planned {
        cell,
        libraries: parts(cell, present),
        rounds: options.rounds.unwrap_or(rounds),
        seconds: options.seconds.unwrap_or(seconds),
        warmup_s,
        lease_s: 0.0,
    };
    match (cell.title(), cell.condition) {
        // The figures are counts, which do not vary.
        ("W5", _) => {
            planned.rounds = 1;
            (planned.lease_s, planned.seconds) = if options.quick {
                (3.0, 9.0)
            } else {
                (30.0, 60.0)
            };
        }
        // Some need ten seconds for a pair.
        (_, Condition::Killed | Condition::Frozen) => planned.rounds = 1,
        // The delay hides what varies.
        (_, Condition::Delayed) => planned.rounds = planned.rounds.min(3),
        _ => {}
    }
    planned
}

fn parts(cell: Cell, present: &[&'static str]) -> Vec<Part> {
    let mut parts: Vec<Part> = present
        .iter()
        .filter_map(|library| part(cell, library))
        .collect();
    // Redisson without a thread for each owner is what its users with many of them take.
    if (cell.title(), present.contains(&"redisson")) == ("W1", true) {
        parts.push(Part {
            library: ASYNC,
            workload: "W1",
        });
    }
    parts
}

/// None if the library has no such thing, so that nobody waits for it to say so.
fn part(cell: Cell, library: &'static str) -> Option<Part> {
    let workload = match (library, cell.workload) {
        ("raw", "W2") => "serial",
        ("raw", "W4") if cell.condition == Condition::Plain => "idle",
        ("raw", "rtt") => "rtt",
        (_, "rtt") | ("raw", "W3" | "W4" | "W5") => return None,
        // It awaits all five, so a fault ends it.
        ("raw", "W6") if cell.condition != Condition::Plain => return None,
        ("redisson" | "redsync" | "rslock", "W5") | ("redsync" | "rslock", "W7") => return None,
        ("lockdog", "W7-local") => "W7-local",
        (_, "W7-local") => return None,
        (_, workload) => workload,
    };
    Some(Part { library, workload })
}

fn full() -> Vec<Cell> {
    let mut cells = Vec::new();
    cells.extend([1, 16, 64, 256].map(|owners| Cell::new("W1", owners)));
    cells.extend([2, 16, 64, 256].map(|owners| Cell::new("W2", owners)));
    cells.push(Cell::new("W3", 4).clients(4));
    for clients in [2, 4, 8] {
        cells.extend([1, 8].map(|owners| Cell::new("W3", owners).clients(clients)));
    }
    cells.push(Cell::new("W4", 1).clients(2));
    cells.extend(["W7", "W7-local"].map(|workload| Cell::new(workload, 1)));
    cells.extend([1, 16].map(|owners| Cell::new("W6", owners)));
    cells.extend(delayed());
    // Last, as clients that have met a fault may be busy with it for long.
    cells.extend(faults());
    cells.extend([1_000, 10_000, 100_000].map(|locks| Cell::new("W5", 1).holding(locks)));
    cells
}

fn quick() -> Vec<Cell> {
    let mut cells = Vec::new();
    cells.extend([1, 16, 64].map(|owners| Cell::new("W1", owners)));
    cells.extend([2, 16].map(|owners| Cell::new("W2", owners)));
    cells.push(Cell::new("W3", 4).clients(4));
    cells.push(Cell::new("W4", 1).clients(2));
    cells.extend(["W7", "W7-local"].map(|workload| Cell::new(workload, 1)));
    cells.push(Cell::new("W6", 1));
    cells.extend(delayed());
    cells.extend(faults());
    cells.push(Cell::new("W5", 1).holding(10_000));
    cells
}

fn faults() -> [Cell; 2] {
    [Condition::Killed, Condition::Frozen].map(|fault| Cell::new("W6", 1).under(fault))
}

fn delayed() -> [Cell; 4] {
    let cells = [
        Cell::new("rtt", 1),
        Cell::new("W1", 1),
        Cell::new("W2", 2),
        Cell::new("W4", 1).clients(2),
    ];
    cells.map(|cell| cell.under(Condition::Delayed))
}

/// Redisson's calls that return futures: in W1, beside its calls that block.
pub(crate) const ASYNC: &str = "redisson async";

/// In the order in which they take their turns and stand in tables.
pub(crate) const LIBRARIES: [&str; 6] = ["lockdog", "raw", "redisson", "redsync", "rslock", ASYNC];
