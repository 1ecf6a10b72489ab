//! The same simulation with a read/write lock: invariants RW1 to RW8 of the design.

pub(super) mod command;
mod crowd;
mod observer;
mod plan;
mod run;
mod task;
mod together;

use super::suite::Simulation;
use observer::Seen;
use plan::Plan;
use run::run;

const SEEDS: u64 = 400;

const SIMULATION: Simulation<Plan, Seen> = Simulation {
    module: "simulation::read_write",
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
        seen.copied_upgrades * 5,
        seen.copied_inner * 5,
        seen.reads,
        seen.writes,
        seen.shared,
        seen.both_modes,
        seen.announced,
        seen.upgrades * 5,
        seen.outlived * 20,
        seen.renewals,
        seen.losses * 10,
        seen.crowds * 20,
        seen.together * 20,
        seen.trimmed * 5,
        seen.redissons,
        seen.redissons_beside * 5,
    ];
    assert!(rates.iter().all(|rate| *rate >= seeds / 10), "{seen:?}");
}
