//! A randomized test of the whole engine: virtual time, a network with faults, the real scripts.
//!
//! Everything above the connection is the product code: locks, guards, sessions, holds, waiters, the
//! watchdog. Every command is delivered once or twice, late and out of order over several connections.
//! Replies and connections are lost, callers are cancelled, and clocks run at different rates. An
//! observer that sees both sides at once checks invariants 1 to 7 of the design after every event.
//!
//! `LOCKDOG_SEEDS=n` runs n seeds, `LOCKDOG_SEED=n` replays one and prints what happened.

mod chance;
mod clock;
mod command;
mod findings;
mod keys;
mod network;
mod observer;
mod permits;
mod plan;
mod redis;
mod run;
mod seeds;
mod task;
mod world;

use parking_lot::Mutex;

pub(crate) use clock::VirtualClock;
pub(crate) use network::{SimulatedWire, Wiring};
use observer::Observed;
use plan::Plan;
use redis::Redis;
use run::run;

const SEEDS: u64 = 5000;

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
         test simulation",
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
    let total = Mutex::new(Observed::default());
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
        seen.overtaken,
        seen.grants,
        seen.inner * 10,
        seen.renewals,
        seen.losses * 10,
        seen.forced * 100,
        seen.killed * 10,
        seen.transfers * 2,
        seen.local,
    ];
    assert!(rates.iter().all(|rate| *rate >= seeds / 10), "{seen:?}");
}

#[test]
fn a_seed_replays_event_by_event() {
    let mut redis = Redis::new();
    for seed in 0..20 {
        let mut traces = Vec::new();
        for _ in 0..2 {
            let (outcome, back) = run(&Plan::draw(seed), redis, true);
            redis = back;
            traces.push(outcome.trace);
        }
        assert!(traces[0].len() > 10, "{traces:?}");
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
}
