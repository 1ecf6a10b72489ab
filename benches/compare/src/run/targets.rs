//! What lockdog is to reach: every bound in one place, as ratios of medians of one run.

use crate::run::cell::{Cell, Condition};
use crate::run::figures::Summary;
use crate::run::plan::{BESIDE_LOCKDOG, FENCED, NON_REENTRANT, PLAIN, SPIN};

pub(crate) struct Target {
    pub(crate) cell: Cell,
    pub(crate) figure: &'static str,
    pub(crate) bound: Bound,
    pub(crate) than: Than,
}

#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// What a bound is a multiple of.
#[derive(Clone, Copy)]
pub(crate) enum Than {
    /// The figure itself is bounded.
    One,
    /// Another library in the same cell.
    Library(&'static str),
    /// What `raw` measures beside it: serial commands in W2, idle round trips in W4.
    Scale(&'static str),
    /// The plain lock in the same cell. The bounded figure is that of this kind of lock.
    Plain(&'static str),
    /// Redisson alone in the same cell. The bounded figure is Redisson's, too, where lockdog has the
    /// other half of the clients.
    Alone,
    /// lockdog itself in another cell, and what that cell is called here.
    Itself(Cell, &'static str),
    /// Round trips through the proxy.
    RoundTrip,
}

/// lockdog's figure and what it is compared with.
pub(crate) struct Found {
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
}

pub(crate) fn all() -> Vec<Target> {
    use Bound::{AtLeast, AtMost};
    use Than::{Alone, Itself, Library, One, Plain, RoundTrip, Scale};
    let mut targets = Vec::new();
    let mut add = |cell, figure, bound, than| {
        targets.push(Target {
            cell,
            figure,
            bound,
            than,
        });
    };

    let alone = Cell::new("W1", 1);
    add(alone, "p50_us", AtMost(1.15), Library("raw"));
    add(alone, "pairs_per_s", AtLeast(0.9), Library("rslock"));
    for (owners, times) in [(16, 4.0), (64, 5.0), (256, 8.0)] {
        let cell = Cell::new("W1", owners);
        add(cell, "pairs_per_s", AtLeast(0.85), Library("raw"));
        add(cell, "pairs_per_s", AtLeast(times), Library("redisson"));
        add(cell, "server_cpu_us_per_pair", AtMost(1.0), Library("raw"));
    }
    // What commands of many callers in one script are for.
    for owners in [64, 256] {
        let cell = Cell::new("W1", owners);
        add(cell, "pairs_per_s", AtLeast(1.0), Library("rslock"));
        add(cell, "pairs_per_s", AtLeast(1.25), Library("raw"));
        add(cell, "server_cpu_us_per_pair", AtMost(0.7), Library("raw"));
    }

    for owners in [16, 64] {
        let cell = Cell::new("W2", owners);
        add(cell, "pairs_per_s", AtLeast(0.85), Scale("serial EVALSHA"));
        add(cell, "commands_per_pair", AtMost(1.2), One);
        add(cell, "min_share", AtLeast(0.9), One);
        add(cell, "max_share", AtMost(1.1), One);
        add(cell, "p99_in_turns", AtMost(2.0), One);
    }

    let crowd = Cell::new("W3", 4).clients(4);
    add(crowd, "pairs_per_s", AtLeast(4.0), Library("redisson"));
    add(crowd, "commands_per_pair", AtMost(3.0), One);
    add(crowd, "min_client_share", AtLeast(0.5), One);
    let crowd = Cell::new("W3", 8).clients(8);
    add(crowd, "min_client_share", AtLeast(0.8), One);

    let two = Cell::new("W16", 1).clients(2);
    for clients in [2, 8, 32, 64] {
        let many = Cell::new("W16", 1).clients(clients);
        add(many, "commands_per_pair", AtMost(4.0), One);
        add(many, "min_share", AtLeast(0.8), One);
        add(many, "p99_in_turns", AtMost(2.0), One);
        add(many, "max_us", AtMost(1.0), Alone);
    }
    let many = Cell::new("W16", 1).clients(64);
    add(many, "pairs_per_s", AtLeast(0.7), Itself(two, "2 clients"));

    let woken = Cell::new("W4", 1).clients(2);
    add(woken, "p50_us", AtMost(2.5), Scale("an idle round trip"));
    add(woken, "p50_us", AtMost(0.5), Library("redisson"));
    add(woken, "p99_us", AtMost(0.5), Library("redisson"));

    let held = Cell::new("W5", 1).holding(100_000);
    add(held, "locks_lost", AtMost(0.0), One);
    add(held, "commands_per_100_and_period", AtMost(1.1), One);
    add(held, "bytes_per_lock", AtMost(600.0), One);
    add(held, "client_cpu_percent", AtMost(3.0), One);
    let held = Cell::new("W5", 1).holding(1_000_000);
    add(held, "locks_lost", AtMost(0.0), One);
    add(held, "commands_per_100_and_period", AtMost(1.0), One);
    add(held, "bytes_per_lock", AtMost(500.0), One);
    add(held, "client_cpu_percent", AtMost(25.0), One);
    add(
        Cell::new("W5", 1).holding(10_000),
        "shutdown_s",
        AtMost(2.0),
        One,
    );

    let cluster = Cell::new("W18", 64);
    add(cluster, "pairs_per_s", AtLeast(5.0), Library("redisson"));

    let crowd = Cell::new("W17", 100).holding(1_000);
    add(crowd, "max_us", AtMost(200_000.0), One);

    let permits = Cell::new("W12", 1).holding(100_000);
    add(permits, "locks_lost", AtMost(0.0), One);
    add(permits, "commands_per_100_and_period", AtMost(1.1), One);
    add(permits, "client_cpu_percent", AtMost(3.0), One);

    let quorum = Cell::new("W6", 1);
    add(quorum, "p50_us", AtMost(1.5), Library("raw"));
    let many = Cell::new("W6", 16);
    add(many, "pairs_per_s", AtLeast(0.95), Library("raw"));
    add(many, "pairs_per_s", AtLeast(1.0), Library("rslock"));
    for fault in [Condition::Killed, Condition::Frozen] {
        let undisturbed = Itself(quorum, "undisturbed");
        add(quorum.under(fault), "p50_us", AtMost(1.05), undisturbed);
        add(quorum.under(fault), "max_us", AtMost(2_000_000.0), One);
    }

    add(
        Cell::new("W7", 1),
        "pairs_per_s",
        AtLeast(0.9),
        Library("raw"),
    );
    add(Cell::new("W7-local", 1), "p50_us", AtMost(1.0), One);

    let inside = Cell::new("W8a", 16);
    add(inside, "pairs_per_s", AtLeast(0.5), Library(PLAIN));
    add(inside, "pairs_per_s", AtLeast(4.0), Library("redisson"));
    // Two. The count of script calls is exact to two percent.
    add(inside, "commands_per_pair", AtMost(2.04), One);
    let across = Cell::new("W8b", 4).clients(4);
    add(across, "pairs_per_s", AtLeast(2.0), Library("redisson"));
    add(across, "commands_per_pair", AtMost(6.0), One);
    add(across, "share_ratio", AtLeast(0.95), One);
    let woken = Cell::new("W8w", 1).clients(2);
    add(woken, "p50_us", AtMost(0.5), Library("redisson"));
    for owners in [1, 64] {
        let own = Cell::new("W8c", owners);
        add(own, "pairs_per_s", AtLeast(0.95), Library(PLAIN));
    }
    // How long a waiter may be silent, and a second.
    let dying = Cell::new("W8d", 10).clients(50);
    add(dying, "max_us", AtMost(11_000_000.0), One);

    let readers = Cell::new("W9a", 16);
    add(readers, "pairs_per_s", AtLeast(0.85), Library("raw"));
    add(readers, "pairs_per_s", AtLeast(4.0), Library("redisson"));
    let mixed = Cell::new("W9b", 16);
    let without = Itself(readers, "without a writer");
    add(mixed, "pairs_per_s", AtLeast(0.5), without);
    add(mixed, "writes_per_s", AtLeast(1.0), One);
    let mixed = Cell::new("W9c", 8).clients(4);
    add(mixed, "pairs_per_s", AtLeast(3.0), Library("redisson"));
    add(mixed, "writes_per_s", AtLeast(3.0), Library("redisson"));

    let inside = Cell::new("W11a", 64);
    let across = Cell::new("W11b", 16).clients(4);
    for (cell, commands) in [(inside, 1.3), (across, 4.0)] {
        add(cell, "commands_per_pair", AtMost(commands), One);
        add(cell, "pairs_per_s", AtLeast(3.0), Library("redisson"));
    }
    let own = Cell::new("W11c", 16);
    add(own, "pairs_per_s", AtLeast(0.85), Library("raw"));

    let latch = Cell::new("W13", 100).clients(10);
    add(latch, "max_us", AtMost(20_000.0), One);
    add(latch, "commands_per_client", AtMost(3.0), One);

    // The lease, how long a waiter may be silent, and a second.
    let killed = Cell::new("W15k", 1).clients(10);
    add(killed, "max_us", AtMost(14_000_000.0), One);

    for owners in [1, 16] {
        let cell = Cell::new("W14", owners);
        add(cell, "pairs_per_s", AtLeast(0.95), Plain(FENCED));
        add(cell, "pairs_per_s", AtLeast(1.0), Plain(SPIN));
        add(cell, "pairs_per_s", AtLeast(1.0), Plain(NON_REENTRANT));
    }

    // Whole round trips, and a twentieth for what is not the network.
    let pair = Cell::new("W1", 1).under(Condition::Delayed);
    add(pair, "p50_us", AtMost(2.0 * 1.05), RoundTrip);
    let inside = Cell::new("W2", 2).under(Condition::Delayed);
    add(inside, "us_per_pair", AtMost(1.05), RoundTrip);
    let across = Cell::new("W4", 1).clients(2).under(Condition::Delayed);
    add(across, "p50_us", AtMost(2.0 * 1.05), RoundTrip);
    let mixed = Cell::new("W9b", 16).under(Condition::Delayed);
    // A read is held for the round trip of its answer and of its unlock: five holds, and three.
    add(mixed, "write_p99_us", AtMost(8.0), RoundTrip);
    let resigned = Cell::new("W15r", 1).clients(10).under(Condition::Delayed);
    add(resigned, "p50_us", AtMost(3.0 * 1.05), RoundTrip);
    targets
}

impl Target {
    /// None if one of the two was not measured.
    pub(crate) fn found(&self, summary: &Summary) -> Option<Found> {
        let who = match self.than {
            Than::Plain(kind) => kind,
            Than::Alone => BESIDE_LOCKDOG,
            _ => "lockdog",
        };
        let ours = summary.value(self.cell, who, self.figure)?;
        let theirs = match self.than {
            Than::One => Some(1.0),
            Than::Library(library) => summary.value(self.cell, library, self.figure),
            Than::Plain(_) => summary.value(self.cell, "lockdog", self.figure),
            Than::Alone => summary.value(self.cell, "redisson", self.figure),
            Than::Scale(_) => summary.value(self.cell, "raw", self.figure),
            Than::Itself(cell, _) => summary.value(cell, "lockdog", self.figure),
            Than::RoundTrip => summary.round_trip(),
        }?;
        Some(Found { ours, theirs })
    }
}

impl Bound {
    pub(crate) const fn factor(self) -> f64 {
        match self {
            Self::AtMost(factor) | Self::AtLeast(factor) => factor,
        }
    }

    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::options::Options;
    use crate::run::plan::{PROCESSES, cells};

    #[test]
    fn each_target_is_about_a_planned_cell() {
        let planned = cells(&Options::default(), &PROCESSES);
        for target in all() {
            let found = planned.iter().any(|planned| planned.cell == target.cell);
            assert!(found, "{}", target.cell);
        }
    }
}
