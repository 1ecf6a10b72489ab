//! The same simulation with locks of values of a group: invariants GL1 to GL4 of the design, after
//! every event.

pub(super) mod command;
mod observer;
mod on_server;
mod plan;
mod run;
mod task;

use super::suite::Simulation;
use observer::Seen;
use plan::Plan;
use run::run;

const SEEDS: u64 = 300;

const SIMULATION: Simulation<Plan, Seen> = Simulation {
    module: "simulation::group",
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
        seen.grants,
        seen.beside,
        seen.busy,
        seen.inner * 10,
        seen.taken_over * 10,
        seen.renewals,
        seen.losses * 10,
        seen.forced * 10,
        seen.redissons * 2,
        seen.redisson_took * 20,
    ];
    assert!(rates.iter().all(|rate| *rate >= seeds / 10), "{seen:?}");
}
