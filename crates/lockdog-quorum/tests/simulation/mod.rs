//! A randomized test of the quorum core: instances in memory, a network with faults, virtual time.
//!
//! Several clients drive the real core as the driver in `red_lock` does. Requests and replies are
//! delivered late, twice, out of order or not at all. Instances crash with their data, with some of it,
//! or without. Clocks run at different rates and step. Clients freeze, die and give up. All this stays
//! within what a quorum needs (A1 to A3 of docs/quorum.md). An observer that sees all sides checks
//! after every event:
//!
//! - M: no two clients rely on the lock at the same time;
//! - F: fencing tokens are unique and grow, and a resource that checks them accepts no late write;
//! - L: a holder learns of a loss by the deadline, which moves only with a quorum of one round;
//! - P: after the faults every client gets the lock;
//! - O: what no client wants is released, at once without faults, and never stays longer than a lease;
//! - Q: no instance is asked for longer than its time limit, even if the caller of the request has
//!   stopped;
//! - V: a holder knows of enough instances that have it, and learns at once when there are too few;
//! - if the core counts on an instance, that instance has the lock and keeps it for long enough.
//!
//! `LOCKDOG_SEEDS=n` runs n seeds, `LOCKDOG_SEED=n` replays one and shows what happened.

mod asking;
mod attempt;
/// Seeded chance, the same as in the simulator of plain locks.
#[path = "../../../../tests/simulation/chance.rs"]
mod chance;
mod client;
mod clock;
mod draw;
mod instance;
mod lane;
mod observer;
mod plan;
mod rounds;
mod run;
mod script;
/// Runs seeds on all cores, the same as in the simulator of plain locks.
#[path = "../../../../tests/simulation/seeds.rs"]
mod seeds;
mod seen;
mod tokens;
mod world;

use parking_lot::Mutex;

use plan::Plan;
use run::run;
use seen::Seen;

const SEEDS: u64 = 10_000;

/// Reports a failing seed in full and fails the test.
fn fail(seed: u64) -> ! {
    let plan = seeds::shrink(Plan::draw(seed), Plan::smaller, |plan| {
        run(plan, false).violation.is_some()
    });
    let outcome = run(&plan, true);
    let what = outcome.violation.unwrap_or_default();
    panic!(
        "{what}\n{}\nthe shortest plan found: {plan:#?}\nreplay with LOCKDOG_SEED={seed} cargo \
         test -p lockdog-quorum simulation",
        outcome.trace.join("\n")
    );
}

#[test]
fn no_seed_violates_a_guarantee_of_the_quorum() {
    if let Some(seed) = seeds::number("LOCKDOG_SEED") {
        if run(&Plan::draw(seed), false).violation.is_some() {
            fail(seed);
        }
        return;
    }
    let seeds = seeds::number("LOCKDOG_SEEDS").unwrap_or(SEEDS);
    let total = Mutex::new(Seen::default());
    let failed = seeds::first_failure(
        seeds,
        || (),
        |seed, ()| {
            let outcome = run(&Plan::draw(seed), false);
            total.lock().add(&outcome.seen);
            (outcome.violation.is_some(), ())
        },
    );
    if let Some(seed) = failed {
        fail(seed);
    }
    let seen = total.into_inner();
    println!("{seeds} seeds, {} events\n{}", seen.events, seen.table());
    // A run that never meets a fault would prove nothing.
    let rare = seen.rarer_than(seeds / 5000);
    assert!(rare.is_empty(), "seen too rarely: {rare:?}");
}

#[test]
fn a_seed_replays_event_by_event() {
    for seed in 0..20 {
        let traces = [(); 2].map(|()| run(&Plan::draw(seed), true).trace);
        assert!(traces[0].len() > 10, "{traces:?}");
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
}
