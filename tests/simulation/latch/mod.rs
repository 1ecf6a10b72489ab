//! The same simulation with a count-down latch: invariants CL1 to CL4 of the design, after every event.
//! Clients subscribe to messages or poll, messages are lost, and the server restarts without its data.

pub(super) mod command;
mod observer;
mod plan;
mod run;
mod task;

use super::suite::Simulation;
use observer::Seen;
use plan::Plan;
use run::run;

const SEEDS: u64 = 600;

const SIMULATION: Simulation<Plan, Seen> = Simulation {
    module: "simulation::latch",
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
    // Runs in which no fault occurs would prove nothing.
    let rates = [
        seen.executed / 10,
        seen.copies,
        seen.counted,
        seen.repeated,
        seen.zeros,
        seen.opened,
        seen.by_message * 5,
        seen.passed_over,
        seen.received,
        seen.restarts * 5,
        seen.left * 5,
        seen.redissons,
    ];
    assert!(rates.iter().all(|rate| *rate >= seeds / 10), "{seen:?}");
}
