//! Redisson's recorded calls, made through our API on real servers of the recorded deployment. After every
//! step the answers, messages, keys and TTLs are those of the recording, or those of `docs/protocol.md`.

mod calls;
mod cast;
mod deployment;
mod differences;
mod facts;
mod left_out;
mod monitor;
mod observer;
mod ours;
mod recorded_commands;
mod recorded_step;
mod recording;
mod tokens;

use std::time::Duration;

use differences::{DIFFERENCES, Difference, expected, of_scenario};
use facts::ASPECTS;
use left_out::LEFT_OUT;
use ours::Ours;
use recording::Scenario;
use tokio::runtime::Handle;

use crate::support::heartbeat;

/// One test for each recorded scenario, so that they run side by side.
macro_rules! replayed {
    ($($scenario:ident)*) => {
        $(
            #[tokio::test]
            async fn $scenario() {
                replay(stringify!($scenario)).await;
            }
        )*

        const REPLAYED: &[&str] = &[$(stringify!($scenario)),*];
    };
}

replayed! {
    lock_unlock lease reentry try_lock_busy waiter_woken many_waiters waiter_times_out holder_expires
    interrupted_waiter unlock_by_others expired_hold force_unlock

    reentry_with_leases lease_under_watchdog lease_kept_by_the_object watchdog_timers_pile_up
    watchdog_one_lock watchdog_three_locks watchdog_batches queries no_ttl expire names name_mapper
    async_ unlock_latch wrong_type shutdown

    spin_lock_lock_unlock spin_lock_exponential_back_off spin_lock_constant_back_off
    spin_lock_force_unlock spin_lock_watchdog spin_lock_lease_of_failed_attempt

    non_reentrant_lock_reentry_refused non_reentrant_lock_waiter_woken
    non_reentrant_lock_watchdog non_reentrant_lock_mixed_with_rlock
    non_reentrant_lock_fair_variant

    fair_lock_uncontended fair_lock_three_waiters fair_lock_middle_times_out fair_lock_mixed_with_rlock fair_lock_force_unlock fair_lock_watchdog fair_lock_reentry_with_waiter fair_lock_try_lock_never_queues fair_lock_dead_head fair_lock_lost_holder fair_lock_unlock_by_others fair_lock_delete_expire fair_lock_wait_without_lease fair_lock_giving_up_without_lease

    multi_lock_lock_unlock multi_lock_leases multi_lock_one_held_by_other multi_lock_one_hold_lost
    multi_lock_watchdog multi_lock_three_names_one_server

    cluster_first_use cluster_waiter_woken cluster_waiter_woken_without_sharding
    cluster_watchdog cluster_watchdog_read_locks cluster_odd_names cluster_other_objects

    replication_master_slave_mode replication_waiter_woken replication_watchdog
    replication_single_server_mode replication_replica_asleep replication_replica_gone
    replication_replica_gone_unlock replication_replica_gone_unchecked
    replication_other_objects

    fenced_lock_tokens_from_one fenced_lock_try_without_wait_waits_from_one
    fenced_lock_leases_from_one fenced_lock_waiters_from_one fenced_lock_expired_holder_from_one
    fenced_lock_force_delete_expire_from_one fenced_lock_watchdog_from_one fenced_lock_names_from_one

    fenced_lock_tokens_by_clock fenced_lock_try_without_wait_waits_by_clock
    fenced_lock_leases_by_clock fenced_lock_waiters_by_clock fenced_lock_expired_holder_by_clock
    fenced_lock_force_delete_expire_by_clock fenced_lock_watchdog_by_clock fenced_lock_names_by_clock
}

#[test]
fn every_recorded_scenario_is_replayed() {
    let mut recorded: Vec<String> = recording::contents()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let mut replayed: Vec<&str> = REPLAYED.iter().map(|name| recorded_name(name)).collect();
    recorded.sort();
    replayed.sort_unstable();
    assert_eq!(replayed, recorded);
}

#[test]
fn what_is_left_out_is_recorded_and_has_a_reason() {
    let recorded = recording::contents();
    for left_out in LEFT_OUT {
        let (name, step) = (left_out.scenario, left_out.step);
        println!("not replayed: {name} {step}: {}", left_out.reason);
        assert!(!left_out.reason.is_empty(), "{name}");
        let scenario = recorded.iter().find(|(recorded, _)| recorded == name);
        let (_, steps) = scenario.unwrap_or_else(|| panic!("{name} is not recorded"));
        assert!(steps.contains(&step), "{name}");
    }
}

/// A replay fails for a difference that is not in `DIFFERENCES` and for one that does not occur. This test
/// compares that list with the document.
#[test]
fn exactly_the_differences_are_listed_in_the_protocol_document() {
    let known = DIFFERENCES.iter().map(|it| it.id);
    crate::recorded::assert_documented("differences seen in the replay", known);
    let steps: Vec<_> = DIFFERENCES
        .iter()
        .map(
            |Difference {
                 scenario,
                 step,
                 aspect,
                 ..
             }| (scenario, step, aspect),
        )
        .collect();
    for (i, step) in steps.iter().enumerate() {
        assert!(!steps[i + 1..].contains(step), "{step:?} is there twice");
        assert!(ASPECTS.contains(step.2), "{step:?}");
    }
}

async fn replay(test: &str) {
    let scenario = recording::scenario(recorded_name(test));
    for attempt in 1.. {
        let beats = heartbeat(&Handle::current());
        let wrong = replay_once(&scenario).await;
        // If the machine stops, a waiter's timer ends before the step that waits for it. The ticker does
        // not show whether only the server or Java stopped.
        let stood_still = beats.largest_gap();
        let is_excused = attempt == 1 || stood_still >= STALL;
        if !wrong.is_empty() && is_excused && attempt < ATTEMPTS {
            println!(
                "again, because the machine may have been frozen ({stood_still:?}): {wrong:?}"
            );
            continue;
        }
        assert!(
            wrong.is_empty(),
            "{} of {}:\n{}",
            wrong.len(),
            scenario.name,
            wrong.join("\n")
        );
        return;
    }
}

/// Returns what differs from the recording, and from the listed differences.
async fn replay_once(scenario: &Scenario) -> Vec<String> {
    let mut ours = Ours::start(scenario).await;
    let mut wrong = Vec::new();
    let mut used = 0;
    for step in &scenario.steps {
        ours.perform(step).await;
        let theirs = step.facts();
        let listed = expected(scenario, step.number);
        used += listed.len();
        let mut wanted = theirs.clone();
        for difference in &listed {
            wanted.set(difference.aspect, difference.ours);
        }
        let seen = ours.settle_on(step, &wanted).await;
        for aspect in ASPECTS {
            let is_listed = listed.iter().any(|listed| listed.aspect == *aspect);
            let (theirs, wanted, seen) = (theirs.get(aspect), wanted.get(aspect), seen.get(aspect));
            if is_listed && wanted == theirs {
                wrong.push(format!(
                    "step {} {aspect}: listed, but no difference",
                    step.number
                ));
            }
            if seen != wanted {
                wrong.push(format!(
                    "step {} {} {aspect}:\n  recorded {theirs:?}\n  expected {wanted:?}\n  seen     \
                     {seen:?}",
                    step.number, step.call
                ));
            }
        }
    }
    assert_eq!(
        used,
        of_scenario(scenario).len(),
        "a listed difference names a step that is not recorded"
    );
    wrong
}

/// Part of the time for which a waiter of a scenario waits.
const STALL: Duration = Duration::from_millis(100);
const ATTEMPTS: u32 = 4;

/// `async` is a keyword.
fn recorded_name(test: &str) -> &str {
    test.trim_end_matches('_')
}

/// The recording's quiet time.
const QUIET: Duration = Duration::from_millis(60);
