//! Which cells are measured, by whom, for how long.

use crate::run::cell::{Cell, Condition};
use crate::run::options::Options;

pub(crate) struct Planned {
    pub(crate) cell: Cell,
    pub(crate) libraries: Vec<Part>,
    pub(crate) rounds: usize,
    pub(crate) warmup_s: f64,
    pub(crate) seconds: f64,
    /// W5, W8d, W12 and W15 only.
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
        let (process, interface) = match self.library {
            ASYNC => ("redisson", "async"),
            FENCED => ("lockdog", "fenced"),
            SPIN => ("lockdog", "spin"),
            NON_REENTRANT => ("lockdog", "non-reentrant"),
            PLAIN => ("lockdog", "plain"),
            RAW_FENCED => ("raw", "fenced"),
            RAW_SPIN => ("raw", "spin"),
            READERS_FIRST => ("lockdog", "readers-first"),
            OTHER_SHAPE => ("lockdog", "other-shape"),
            RAW_OTHER_SHAPE => ("raw", "other-shape"),
            BESIDE_REDISSON => return ("lockdog", None),
            BESIDE_LOCKDOG => return ("redisson", None),
            library => return (library, None),
        };
        (process, Some(interface.to_owned()))
    }

    /// Where two libraries have half of the clients each, both of them; otherwise the part itself.
    pub(crate) fn halves(&self) -> Vec<Self> {
        match self.library {
            // It connects more slowly, so it is asked first.
            BESIDE_LOCKDOG => vec![
                *self,
                Self {
                    library: BESIDE_REDISSON,
                    workload: self.workload,
                },
            ],
            _ => vec![*self],
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
        let sized = matches!(cell.title(), "W1" | "W2" | "W6" | "W14");
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
        (true, _) => (1, 0.8, 0.5),
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
    if options.quick {
        planned
            .libraries
            .retain(|part| takes_little_time(cell, part.library));
    }
    if matches!(cell.workload, "W8d" | "W15r" | "W15k") {
        planned.lease_s = 3.0;
    }
    match (cell.title(), cell.condition) {
        // The figures are counts, which do not vary.
        ("W5" | "W12", _) => {
            planned.rounds = 1;
            (planned.lease_s, planned.seconds) = if options.quick {
                (3.0, 6.0)
            } else {
                (30.0, 60.0)
            };
        }
        // Each of them waits for a lease.
        ("W15", _) if cell.workload == "W15k" => {
            (planned.rounds, planned.seconds) = (1, if options.quick { 6.0 } else { 30.0 });
        }
        // A dead client may keep its place for ten seconds.
        ("W8", _) if cell.workload == "W8d" => (planned.rounds, planned.seconds) = (1, 30.0),
        // Some need ten seconds for a pair.
        (_, Condition::Killed | Condition::Frozen) => planned.rounds = 1,
        // The delay hides what varies.
        (_, Condition::Delayed) => planned.rounds = planned.rounds.min(3),
        _ => {}
    }
    planned
}

/// A short run leaves out peers that say little about lockdog: those that poll, in all but the plainest
/// workloads, and all of them where a fault or the network takes most of the time.
fn takes_little_time(cell: Cell, library: &str) -> bool {
    match (library, cell.condition) {
        ("redsync" | "rslock", Condition::Plain) => matches!(cell.title(), "W1" | "W2"),
        ("redisson" | "redsync" | "rslock", condition) => condition == Condition::Plain,
        (OTHER_SHAPE | RAW_OTHER_SHAPE, _) => false,
        _ => true,
    }
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
    if cell.title() == "W1" {
        // So that the figures are not those of one length of names and one lease.
        let shapes = [("lockdog", OTHER_SHAPE), ("raw", RAW_OTHER_SHAPE)];
        let shapes = shapes.into_iter().filter(|(of, _)| present.contains(of));
        parts.extend(shapes.map(|(_, library)| Part {
            library,
            workload: "W1",
        }));
    }
    if (cell.title(), present.contains(&"lockdog")) == ("W14", true) {
        parts.extend([FENCED, SPIN, NON_REENTRANT].map(|library| Part {
            library,
            workload: "W14",
        }));
    }
    if (cell.title(), present.contains(&"raw")) == ("W14", true) {
        parts.extend([RAW_FENCED, RAW_SPIN].map(|library| Part {
            library,
            workload: "W14",
        }));
    }
    let both = ["lockdog", "redisson"].map(|library| present.contains(&library));
    if (cell.title(), both) == ("W16", [true, true]) {
        parts.push(Part {
            library: BESIDE_LOCKDOG,
            workload: "W16",
        });
    }
    let beside = match cell.workload {
        "W8a" | "W8c" => Some(PLAIN),
        // As Redisson does it.
        "W9b" | "W9c" if cell.condition == Condition::Plain => Some(READERS_FIRST),
        _ => None,
    };
    if let (Some(library), true) = (beside, present.contains(&"lockdog")) {
        let workload = cell.workload;
        parts.push(Part { library, workload });
    }
    parts
}

/// None if the library has no such thing, so that no caller waits for it to say so.
fn part(cell: Cell, library: &'static str) -> Option<Part> {
    let workload = match (library, cell.workload) {
        ("raw", "W2") => "serial",
        ("raw", "W4") if cell.condition == Condition::Plain => "idle",
        ("raw", "rtt") => "rtt",
        (_, "rtt") | ("raw", "W3" | "W4" | "W5" | "W12" | "W16" | "W17" | "W18") => return None,
        // It awaits all five, so a fault ends it.
        ("raw", "W6") if cell.condition != Condition::Plain => return None,
        ("redisson" | "redsync" | "rslock", "W5" | "W12" | "W17")
        | ("redsync" | "rslock", "W7" | "W18") => {
            return None;
        }
        ("redisson" | "redsync" | "rslock", "W14") => return None,
        ("raw", "W15r") if cell.condition == Condition::Plain => "campaign",
        ("raw" | "redisson" | "redsync" | "rslock", "W8d" | "W15r" | "W15k") => return None,
        ("raw", "W13") => "latch",
        // No owner waits.
        ("raw", workload @ ("W8c" | "W9a" | "W11c")) => workload,
        ("raw" | "redsync" | "rslock", workload) if KINDS.contains(&workload) => return None,
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
    cells.extend([2, 8, 32, 64].map(|clients| Cell::new("W16", 1).clients(clients)));
    cells.push(Cell::new("W4", 1).clients(2));
    cells.extend(["W7", "W7-local"].map(|workload| Cell::new(workload, 1)));
    cells.extend(fair());
    cells.push(Cell::new("W8d", 10).clients(50));
    cells.extend(read_write());
    cells.extend(semaphores());
    cells.push(latch());
    cells.extend(election());
    cells.extend([1, 16].map(|owners| Cell::new("W14", owners)));
    cells.extend([1, 16].map(|owners| Cell::new("W6", owners)));
    cells.extend(delayed());
    // Last, as clients that have met a fault may be busy with it for long.
    cells.extend(faults());
    cells.push(Cell::new("W18", 64));
    cells.extend([10, 100, 1_000].map(|locks| Cell::new("W17", 100).holding(locks)));
    cells
        .extend([1_000, 10_000, 100_000, 1_000_000].map(|locks| Cell::new("W5", 1).holding(locks)));
    cells.push(Cell::new("W12", 1).holding(100_000));
    cells
}

fn quick() -> Vec<Cell> {
    let mut cells = Vec::new();
    cells.extend([1, 64].map(|owners| Cell::new("W1", owners)));
    cells.push(Cell::new("W2", 16));
    cells.push(Cell::new("W3", 4).clients(4));
    cells.extend([2, 8].map(|clients| Cell::new("W16", 1).clients(clients)));
    cells.push(Cell::new("W4", 1).clients(2));
    cells.extend(["W7", "W7-local"].map(|workload| Cell::new(workload, 1)));
    let little = Cell::new("W8c", 1);
    cells.extend(fair().into_iter().filter(|cell| *cell != little));
    cells.extend(read_write());
    cells.extend(semaphores());
    cells.push(latch());
    cells.extend(election());
    cells.push(Cell::new("W14", 16));
    cells.push(Cell::new("W6", 1));
    cells.extend(delayed());
    cells.extend(faults());
    cells.extend(["W5", "W12"].map(|workload| Cell::new(workload, 1).holding(10_000)));
    cells
}

fn fair() -> [Cell; 5] {
    [
        Cell::new("W8a", 16),
        Cell::new("W8b", 4).clients(4),
        Cell::new("W8c", 1),
        Cell::new("W8c", 64),
        Cell::new("W8w", 1).clients(2),
    ]
}

fn read_write() -> [Cell; 3] {
    [
        Cell::new("W9a", 16),
        Cell::new("W9b", 16),
        Cell::new("W9c", 8).clients(4),
    ]
}

fn semaphores() -> [Cell; 3] {
    [
        Cell::new("W11a", 64),
        Cell::new("W11b", 16).clients(4),
        Cell::new("W11c", 16),
    ]
}

fn latch() -> Cell {
    Cell::new("W13", 100).clients(10)
}

fn election() -> [Cell; 2] {
    ["W15r", "W15k"].map(|workload| Cell::new(workload, 1).clients(10))
}

fn faults() -> [Cell; 2] {
    [Condition::Killed, Condition::Frozen].map(|fault| Cell::new("W6", 1).under(fault))
}

fn delayed() -> [Cell; 6] {
    let cells = [
        Cell::new("rtt", 1),
        Cell::new("W1", 1),
        Cell::new("W2", 2),
        Cell::new("W4", 1).clients(2),
        Cell::new("W9b", 16),
        Cell::new("W15r", 1).clients(10),
    ];
    cells.map(|cell| cell.under(Condition::Delayed))
}

/// Redisson's calls that return futures: in W1, beside its calls that block.
pub(crate) const ASYNC: &str = "redisson async";

/// lockdog's other kinds of locks: in W14, beside its plain lock.
pub(crate) const FENCED: &str = "lockdog fenced";
pub(crate) const SPIN: &str = "lockdog spin";
pub(crate) const NON_REENTRANT: &str = "lockdog non-reentrant";

/// The scripts of lockdog's other kinds of locks: in W14, beside those of its plain lock, which a non-reentrant lock
/// sends too.
pub(crate) const RAW_FENCED: &str = "raw fenced";
pub(crate) const RAW_SPIN: &str = "raw spin";

/// lockdog's plain lock: in W8, beside its fair lock.
pub(crate) const PLAIN: &str = "lockdog plain";

/// lockdog's read/write lock whose readers do not wait for a writer that waits: in W9, beside the default.
pub(crate) const READERS_FIRST: &str = "lockdog, readers first";

/// Long names and fixed leases: in W1, beside short names under the watchdog.
pub(crate) const OTHER_SHAPE: &str = "lockdog, long names and fixed leases";
/// The bare protocol with the same names.
pub(crate) const RAW_OTHER_SHAPE: &str = "raw, long names";

/// Half of the clients of W16: the other half of them is the other library's.
pub(crate) const BESIDE_REDISSON: &str = "lockdog, beside redisson";
pub(crate) const BESIDE_LOCKDOG: &str = "redisson, beside lockdog";

/// Workloads of kinds that lockdog and Redisson have.
const KINDS: [&str; 11] = [
    "W8a", "W8b", "W8c", "W8w", "W9a", "W9b", "W9c", "W11a", "W11b", "W11c", "W13",
];

/// Each of them is a process. They take their turns in this order.
pub(crate) const PROCESSES: [&str; 5] = ["lockdog", "raw", "redisson", "redsync", "rslock"];

/// In the order of the rows in tables.
pub(crate) const LIBRARIES: [&str; 17] = [
    "lockdog",
    "raw",
    "redisson",
    "redsync",
    "rslock",
    ASYNC,
    FENCED,
    SPIN,
    NON_REENTRANT,
    RAW_FENCED,
    RAW_SPIN,
    PLAIN,
    READERS_FIRST,
    OTHER_SHAPE,
    RAW_OTHER_SHAPE,
    BESIDE_REDISSON,
    BESIDE_LOCKDOG,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn only(workload: &str) -> Options {
        Options {
            only: vec![workload.to_owned()],
            ..Options::default()
        }
    }

    #[test]
    fn w14_asks_only_lockdog_and_its_bare_scripts_and_for_each_kind_of_lock() {
        let options = only("W14");
        for planned in cells(&options, &PROCESSES) {
            let asked: Vec<_> = planned.libraries.iter().map(Part::driver).collect();
            let kind = |process: &'static str| move |kind: &str| (process, Some(kind.to_owned()));
            let kinds = ["fenced", "spin", "non-reentrant"].map(kind("lockdog"));
            assert_eq!(asked[..2], [("lockdog", None), ("raw", None)]);
            assert_eq!(asked[2..5], kinds);
            assert_eq!(asked[5..], ["fenced", "spin"].map(kind("raw")));
            for part in planned.libraries {
                assert_eq!(part.workload, "W14");
                assert!(LIBRARIES.contains(&part.library));
            }
        }
        assert_eq!(cells(&options, &PROCESSES).len(), 2);
        assert!(cells(&options, &["redisson"]).is_empty());
    }

    #[test]
    fn w1_asks_lockdog_and_the_bare_protocol_for_another_shape_except_in_a_short_run() {
        let shapes = |options: &Options| {
            let planned = cells(options, &["lockdog", "raw"]);
            let parts = planned.iter().flat_map(|planned| &planned.libraries);
            let of_shape = parts.map(Part::driver).filter(|(_, api)| api.is_some());
            of_shape.collect::<Vec<_>>()
        };
        let mut options = only("W1");
        let shape = Some("other-shape".to_owned());
        let both = [("lockdog", shape.clone()), ("raw", shape)];
        assert_eq!(shapes(&options), [&both[..]; 4].concat());
        options.quick = true;
        assert!(shapes(&options).is_empty());
    }

    #[test]
    fn w8_compares_the_fair_lock_with_the_plain_one_its_scripts_and_redisson() {
        let asked = |workload: &str| -> Vec<Vec<_>> {
            let mut planned = cells(&only("W8"), &PROCESSES);
            planned.retain(|planned| planned.cell.workload == workload);
            let parts = |planned: Planned| planned.libraries.iter().map(Part::driver).collect();
            planned.into_iter().map(parts).collect()
        };
        let plain = ("lockdog", Some("plain".to_owned()));
        let both = [("lockdog", None), ("redisson", None)];
        let all = [&both[..], &[plain]].concat();
        assert_eq!(asked("W8b"), [both.to_vec()]);
        let mut without_waiting = all.clone();
        without_waiting.insert(1, ("raw", None));
        assert_eq!(asked("W8c"), [without_waiting.clone(), without_waiting]);
        assert_eq!(asked("W8w"), [both.to_vec()]);
        assert_eq!(asked("W8a"), [all]);
    }

    #[test]
    fn w16_gives_half_of_its_clients_to_each_of_two_libraries() {
        let options = only("W16");
        for planned in cells(&options, &PROCESSES) {
            assert_eq!(planned.cell.clients % 2, 0, "{}", planned.cell);
            let halves: Vec<_> = planned.libraries.iter().map(Part::halves).collect();
            let drivers = |halves: &Vec<Part>| halves.iter().map(Part::driver).collect::<Vec<_>>();
            let alone = |halves: &&Vec<Part>| halves.len() == 1;
            let asked: Vec<_> = halves.iter().filter(alone).flat_map(drivers).collect();
            let libraries = ["lockdog", "redisson", "redsync", "rslock"];
            assert_eq!(asked, libraries.map(|library| (library, None::<String>)));
            let last = halves.last().map(drivers);
            assert_eq!(last, Some(vec![("redisson", None), ("lockdog", None)]));
        }
        assert_eq!(cells(&options, &PROCESSES).len(), 4);
        let planned = cells(&options, &["lockdog", "rslock"]);
        let halves = planned.iter().flat_map(|planned| &planned.libraries);
        assert!(halves.map(Part::halves).all(|halves| halves.len() == 1));
    }

    #[test]
    fn each_planned_library_has_a_row_in_the_tables() {
        for planned in cells(&Options::default(), &PROCESSES) {
            for part in planned.libraries.iter().flat_map(Part::halves) {
                assert!(LIBRARIES.contains(&part.library), "{}", part.library);
            }
        }
    }

    /// The rest of four minutes is for what is done between the windows, on a machine that is busy.
    #[test]
    fn the_windows_of_a_short_run_take_about_two_minutes() {
        let options = Options {
            quick: true,
            ..Options::default()
        };
        let window = |planned: &Planned| {
            let parts = planned.libraries.len() * planned.rounds;
            parts as f64 * (planned.warmup_s + planned.seconds)
        };
        let seconds: f64 = cells(&options, &PROCESSES).iter().map(window).sum();
        assert!((60.0..130.0).contains(&seconds), "{seconds} s");
    }
}
