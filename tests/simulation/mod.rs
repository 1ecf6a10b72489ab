//! A randomized test of the whole engine, with virtual time, a network with faults, and the real
//! scripts.
//!
//! All code above the connection is the product's: locks, guards, sessions, holds, waiters, the
//! watchdog. Every command is delivered once or twice, late and out of order over several connections.
//! In half of the runs with faults, a connection collects some acquires and unlocks and delivers them as one.
//! Replies and connections are lost, callers are cancelled, and clocks run at different rates. An
//! observer that compares the clients with the server checks invariants 1 to 7 of the design after
//! every event. A sixth of the locks are spin locks (SP1, SP2), a sixth non-reentrant (NR1, NR2), and a
//! third issue tokens (FE1 to FE3). In two of five runs some acquires have a least time. In two of five
//! runs a Redisson client uses the lock too; in those without faults the observer checks that each side
//! wakes the other.
//!
//! `LOCKDOG_SEEDS=n` runs n seeds, `LOCKDOG_SEED=n` replays one and prints what happened.

mod awaited;
mod chance;
mod clock;
mod command;
mod fair;
mod findings;
mod group;
mod kept;
mod keys;
mod latch;
mod lists;
mod messages;
mod network;
mod observer;
mod order;
mod permits;
mod plan;
mod polls;
mod read_write;
mod redis;
mod redisson;
mod run;
mod seeds;
mod semaphore;
mod shorter;
mod suite;
mod task;
mod tokens;
mod world;

pub(crate) use messages::SimulatedSubscriber;
pub(crate) use network::{SimulatedWire, Wiring};
use observer::Observed;
use plan::Plan;
use redis::Redis;
use run::run;
use suite::Simulation;

const SEEDS: u64 = 1250;

const SIMULATION: Simulation<Plan, Observed> = Simulation {
    module: "simulation",
    draw: Plan::draw_lock,
    smaller: Plan::smaller,
    run,
    add: Observed::add,
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
        seen.overtaken,
        seen.grants,
        seen.inner * 10,
        seen.renewals,
        seen.losses * 10,
        seen.forced * 100,
        seen.killed * 10,
        seen.transfers * 2,
        seen.woken_alone * 20,
        seen.local,
        seen.tokens,
        seen.counters_lost * 5,
        seen.refused * 5,
        seen.redissons / 2,
        seen.redissons_holds * 2,
        seen.from_redisson * 5,
        seen.to_redisson * 5,
        seen.received,
        seen.called * 4,
        seen.awaited * 2,
        seen.listened * 5,
        seen.least.kept * 2,
        seen.least.shortened * 2,
        seen.least.lingered_twice * 5,
        seen.least.lost_before * 10,
        seen.polls,
        seen.batches.sent * 2,
        seen.batches.alone * 5,
        seen.batches.left * 5,
    ];
    assert!(rates.iter().all(|rate| *rate >= seeds / 10), "{seen:?}");
}

#[test]
fn a_seed_replays_event_by_event() {
    let mut redis = Redis::new();
    for seed in 0..20 {
        let mut traces = Vec::new();
        for _ in 0..2 {
            let (outcome, back) = run(&Plan::draw_lock(seed), redis, true);
            redis = back;
            traces.push(outcome.trace);
        }
        assert!(traces[0].len() > 10, "{traces:?}");
        assert_eq!(traces[0], traces[1], "seed {seed}");
    }
}
