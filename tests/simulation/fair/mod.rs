//! The same simulation with a fair lock: invariants FA1 to FA8 of the design, after every event.
//! Messages arrive only in some of the elections, so the waiters depend on their timers. A third of the
//! locks are those of elections: they have invariants LE1 to LE4 too, and observers. In some runs a
//! client dies.

pub(super) mod command;
mod contest;
mod election;
mod observer;
mod patience;
mod plan;
mod run;
mod task;
mod vacancy;
mod watches;

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
    // Runs in which no fault occurs would prove nothing.
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
        seen.deaths,
        seen.terms,
        seen.counters_lost * 5,
        seen.proclaimed,
        seen.shown * 2,
        seen.asked * 2,
        seen.erased * 5,
        seen.dead_leaders * 20,
        seen.vacancies,
        seen.after_deaths * 20,
        seen.observed,
        seen.changes * 2,
        seen.resumed * 10,
        seen.in_time * 5,
        seen.least.kept * 10,
        seen.least.shortened * 2,
        seen.least.lingered_twice * 10,
        seen.least.lost_before * 10,
    ];
    assert!(rates.iter().all(|rate| *rate >= seeds / 10), "{seen:?}");
}
