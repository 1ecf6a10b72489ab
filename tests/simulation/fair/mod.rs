//! The same world with a fair lock in it: invariants FA1 to FA8 of the design, after every event. No message
//! arrives, so the waiters find out by their timers.

pub(super) mod command;
mod observer;
mod patience;
mod plan;
mod run;
mod task;

use super::suite::Simulation;
use observer::Seen;
use plan::Plan;
use run::run;

const SEEDS: u64 = 250;

const SIMULATION: Simulation<Plan, Seen> = Simulation {
    module: "simulation::fair",
    draw: Plan::draw,
    smaller: Plan::smaller,
    run,
    add: Seen::add,
};

#[test]
fn no_seed_violates_an_invariant() {
    let Some((seeds, seen)) = SIMULATION.no_seed_fails(SEEDS) else {
        return;
    };
    // A run that never meets a fault would prove nothing.
    let rates = [
        seen.executed / 10,
        seen.copies,
        seen.entered,
        seen.grants,
        seen.transfers * 4,
        seen.left,
        seen.dropped * 10,
        seen.losses * 10,
        seen.forced,
        seen.redissons,
        seen.redissons_turns * 5,
        seen.before_redisson * 5,
    ];
    assert!(rates.iter().all(|rate| *rate >= seeds / 10), "{seen:?}");
}
