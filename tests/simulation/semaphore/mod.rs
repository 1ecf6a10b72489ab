//! The same simulation with a semaphore whose permits have no leases: invariants SE1 to SE3 of the
//! design, after every event, and SE6 in runs without faults. The ledger is deleted, and the number of
//! permits is deleted and set again. In either case a client also reclaims the permits of the other one.

pub(super) mod command;
mod observer;
mod plan;
mod run;
mod task;

use super::suite::Simulation;
use observer::Seen;
use plan::Plan;
use run::run;

const SEEDS: u64 = 500;

const SIMULATION: Simulation<Plan, Seen> = Simulation {
    module: "simulation::semaphore",
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
        seen.few,
        seen.ended * 10,
        seen.partly * 10,
        seen.handed_on * 5,
        seen.ledgers * 5,
        seen.known * 20,
        seen.numbers * 5,
        seen.reclaimed * 10,
        seen.too_late * 10,
        seen.redissons * 2,
        seen.awaited,
    ];
    assert!(rates.iter().all(|rate| *rate >= seeds / 10), "{seen:?}");
}
