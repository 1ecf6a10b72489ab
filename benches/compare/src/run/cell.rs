//! A cell: one workload of one size.

use std::fmt;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Cell {
    /// W1 to W7, W7-local, W8a to W8d, W8w, W9a to W9c, W11a to W11c, W12, W13, W14, W15r, W15k, W16,
    /// W17, W18, or rtt; under a delay they are parts of W10.
    pub(crate) workload: &'static str,
    pub(crate) condition: Condition,
    pub(crate) clients: usize,
    /// Of each client.
    pub(crate) owners: usize,
    /// W5: how many are held; W12: how many permits; W17: how many locks the owners wait for.
    pub(crate) locks: usize,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Condition {
    Plain,
    /// One of five servers is killed.
    Killed,
    /// One of five servers is stopped, and keeps its connections.
    Frozen,
    /// A proxy adds a millisecond each way.
    Delayed,
}

impl Cell {
    pub(crate) const fn new(workload: &'static str, owners: usize) -> Self {
        Self {
            workload,
            condition: Condition::Plain,
            clients: 1,
            owners,
            locks: 0,
        }
    }

    pub(crate) const fn clients(mut self, clients: usize) -> Self {
        self.clients = clients;
        self
    }

    pub(crate) const fn holding(mut self, locks: usize) -> Self {
        self.locks = locks;
        self
    }

    pub(crate) const fn under(mut self, condition: Condition) -> Self {
        self.condition = condition;
        self
    }

    /// As `benchmarks.md` names it.
    pub(crate) fn title(&self) -> &'static str {
        match (self.condition, self.workload) {
            (Condition::Delayed, _) => "W10",
            (_, "W7-local") => "W7",
            (_, "W8a" | "W8b" | "W8c" | "W8d" | "W8w") => "W8",
            (_, "W9a" | "W9b" | "W9c") => "W9",
            (_, "W11a" | "W11b" | "W11c") => "W11",
            (_, "W15r" | "W15k") => "W15",
            (_, workload) => workload,
        }
    }

    /// Whether its locks or permits are held under the watchdog for its whole length.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.workload, "W5" | "W12")
    }

    /// Whether the owners of several clients repeat pairs from the warm-up on. These clients connect
    /// one after the other.
    pub(crate) fn is_crowded(&self) -> bool {
        matches!(self.workload, "W3" | "W8b" | "W8d" | "W9c" | "W11b" | "W16")
    }

    /// How many owners want the same lock.
    pub(crate) const fn contenders(&self) -> usize {
        self.clients * self.owners
    }

    pub(crate) fn size(&self) -> String {
        match (self.title(), self.workload) {
            ("W10", "rtt") => "PING".to_owned(),
            ("W10", "W9b" | "W15r") => {
                let inner = self.under(Condition::Plain);
                format!("{}, {}", inner.title(), inner.size())
            }
            ("W10", inner) => format!("{inner}, {}", owners(self.owners)),
            ("W3", _) => format!("{} clients x {}", self.clients, self.owners),
            ("W7", "W7-local") => "counted locally".to_owned(),
            (_, "W8c" | "W11c") => format!("{}, own keys", owners(self.owners)),
            (_, "W8b" | "W11b") => format!("{} clients x {}", self.clients, self.owners),
            (_, "W13") => format!(
                "{} waiters of {} clients",
                self.clients * self.owners,
                self.clients
            ),
            (_, "W8d") => format!(
                "{} waiters of {} clients, one dies each second while turns go on",
                self.contenders(),
                self.clients
            ),
            (_, "W15r") => format!("{} candidates, the leader resigns", self.clients),
            (_, "W15k") => format!("{} candidates, the leader is killed", self.clients),
            (_, "W8w") => "wake-up".to_owned(),
            (_, "W9a") => format!("{} readers", self.owners),
            (_, "W9b") => format!("{} readers and a writer", self.owners),
            (_, "W9c") => format!(
                "{} clients x {} readers and a writer",
                self.clients, self.owners
            ),
            ("W4" | "W7", _) => "-".to_owned(),
            ("W5", _) => format!("{} locks", self.locks),
            ("W12", _) => format!("{} permits", self.locks),
            ("W16", _) => format!("{} clients", self.clients),
            ("W17", _) => format!("{} waiters", self.locks * self.owners),
            ("W6", _) => match self.condition {
                Condition::Killed => format!("{}, one killed", owners(self.owners)),
                Condition::Frozen => format!("{}, one frozen", owners(self.owners)),
                _ => owners(self.owners),
            },
            _ => owners(self.owners),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size().as_str() {
            "-" => f.write_str(self.title()),
            size => write!(f, "{} {size}", self.title()),
        }
    }
}

fn owners(count: usize) -> String {
    match count {
        1 => "1 owner".to_owned(),
        _ => format!("{count} owners"),
    }
}
