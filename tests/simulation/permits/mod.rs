//! The same world with a semaphore in it: invariants PE1 to PE3 of the design, after every event.

mod command;
mod observer;
mod plan;
mod run;
mod task;

use parking_lot::Mutex;

use super::redis::Redis;
use super::seeds;
use observer::Seen;
use plan::Plan;
use run::run;

const SEEDS: u64 = 2000;

/// Prints everything about a failing seed and ends the test.
fn fail(seed: u64) -> ! {
    let mut redis = Some(Redis::new());
    let mut outcome_of = |plan: &Plan, traced| {
        let (outcome, back) = run(plan, redis.take().unwrap_or_else(Redis::new), traced);
        redis = Some(back);
        outcome
    };
    let plan = seeds::shrink(Plan::draw(seed), Plan::smaller, |plan| {
        outcome_of(plan, false).violation.is_some()
    });
    let outcome = outcome_of(&plan, true);
    let what = outcome.violation.unwrap_or_default();
    panic!(
        "{what}\n{}\nthe shortest plan found: {plan:#?}\nreplay with LOCKDOG_SEED={seed} cargo \
         test simulation::permits",
        outcome.trace.join("\n")
    );
}

#[test]
fn no_seed_violates_an_invariant() {
    if let Some(seed) = seeds::number("LOCKDOG_SEED") {
        let (outcome, _) = run(&Plan::draw(seed), Redis::new(), false);
        if outcome.violation.is_some() {
            fail(seed);
        }
        return;
    }
    let seeds = seeds::number("LOCKDOG_SEEDS").unwrap_or(SEEDS);
    let total = Mutex::new(Seen::default());
    let failed = seeds::first_failure(seeds, Redis::new, |seed, redis| {
        let (outcome, redis) = run(&Plan::draw(seed), redis, false);
        total.lock().add(&outcome.seen);
        (outcome.violation.is_some(), redis)
    });
    if let Some(seed) = failed {
        fail(seed);
    }
    let seen = total.into_inner();
    println!("{seeds} seeds: {seen:?}");
    // A run that never meets a fault would prove nothing.
    let rates = [
        seen.executed / 10,
        seen.copies,
        seen.grants,
        seen.full,
        seen.swept * 10,
        seen.renewals,
        seen.losses * 10,
        seen.given_back * 10,
    ];
    assert!(rates.iter().all(|rate| *rate >= seeds / 10), "{seen:?}");
}
