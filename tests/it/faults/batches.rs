//! Acquires and unlocks of many callers in one command, on a server that is out of memory.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use lockdog::error::Result;
use lockdog::{Error, Guard, Unlocked};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::faults::SOON;
use crate::faults::fixture::Fixture;
use crate::faults::scripts::batch;
use crate::support::{Action, Gate, eventually};

#[tokio::test]
async fn without_memory_each_caller_of_a_batch_is_refused_and_nothing_is_held() {
    let fixture = Fixture::start().await;
    set_memory(&fixture, "1").await;
    let outcomes = answers(acquire_all(&fixture, "l")).await;
    for outcome in outcomes {
        assert_out_of_memory(&outcome.expect_err("the server has no memory"));
    }
    assert!(!batches(&fixture).is_empty(), "each caller was alone");
    assert!(fixture.redis.keys().await.is_empty());
    assert!(fixture.client.holds().is_empty());
    all_can_be_held_again(&fixture).await;
}

/// Callers before the batch may have their locks.
#[tokio::test]
async fn without_memory_from_its_sending_on_each_caller_of_a_batch_is_refused() {
    let fixture = Fixture::start().await;
    let gate = Gate::new();
    let action = Action::HoldRequest(gate.clone());
    fixture.proxy.on(batch(), action);
    let callers = acquire_all(&fixture, "l");
    gate.wait_reached().await;
    set_memory(&fixture, "1").await;
    gate.open();
    let outcomes = answers(callers).await;
    let parts = batches(&fixture).into_iter().flatten();
    let batched: BTreeSet<String> = parts.map(|(name, _)| name).collect();
    let mut guards = Vec::new();
    for (name, outcome) in names("l").zip(outcomes) {
        match outcome {
            Ok(guard) => {
                assert!(!batched.contains(&name), "{name} has no memory");
                guards.push(guard);
            }
            Err(error) => assert_refused_whole(&fixture, &name, &error).await,
        }
    }
    assert_eq!(fixture.client.holds().len(), guards.len());
    unlock_all(guards).await;
    all_can_be_held_again(&fixture).await;
}

/// A server out of memory refuses the first write of a script only. So an acquire behind an unlock may be granted.
#[tokio::test]
async fn without_memory_a_batch_releases_its_locks_and_grants_whole_locks_or_none() {
    let fixture = Fixture::start().await;
    let held = answers(acquire_all(&fixture, "held")).await;
    set_memory(&fixture, "1").await;
    let (mut unlocks, mut acquires) = (Vec::new(), Vec::new());
    for (guard, name) in held.into_iter().zip(names("free")) {
        let guard = guard.expect("there is memory");
        unlocks.push(tokio::spawn(guard.unlock()));
        acquires.push(acquire(&fixture, name));
    }
    for unlocked in answers(unlocks).await {
        assert_eq!(unlocked.unwrap(), Unlocked::Released);
    }
    let outcomes = answers(acquires).await;
    let has = |parts: &[(String, String)], script: &str| parts.iter().any(|(_, it)| it == script);
    let sent = batches(&fixture);
    let is_mixed = |parts: &Vec<(String, String)>| has(parts, "a") && has(parts, "u");
    assert!(sent.iter().any(is_mixed), "no batch has both");
    let mut guards = Vec::new();
    for (name, outcome) in names("free").zip(outcomes) {
        match outcome {
            Ok(guard) => {
                assert!(guard.is_valid());
                assert!(fixture.redis.pttl(&name).await > 0, "{name} has no lease");
                guards.push(guard);
            }
            Err(error) => assert_refused_whole(&fixture, &name, &error).await,
        }
    }
    assert_eq!(fixture.redis.keys().await.len(), guards.len());
    unlock_all(guards).await;
    all_can_be_held_again(&fixture).await;
}

fn names(prefix: &str) -> impl Iterator<Item = String> {
    (0..CALLERS).map(move |number| format!("{prefix}:{number}"))
}

fn acquire(fixture: &Fixture, name: String) -> JoinHandle<Result<Guard>> {
    tokio::spawn(fixture.client.lock(name).lock().into_future())
}

/// A task for each lock. They begin together, at the next await.
fn acquire_all(fixture: &Fixture, prefix: &str) -> Vec<JoinHandle<Result<Guard>>> {
    let tasks = names(prefix).map(|name| acquire(fixture, name));
    tasks.collect()
}

async fn unlock_all(guards: Vec<Guard>) {
    let tasks = guards.into_iter().map(|guard| tokio::spawn(guard.unlock()));
    for unlocked in answers(tasks.collect()).await {
        assert_eq!(unlocked.unwrap(), Unlocked::Released);
    }
}

/// No caller hangs.
async fn answers<T>(callers: Vec<JoinHandle<T>>) -> Vec<T> {
    let ended = timeout(SOON, join_all(callers)).await;
    let ended = ended.expect("every caller has an answer").into_iter();
    ended.map(|it| it.expect("no caller panics")).collect()
}

/// The parts of each batch that was sent: the name of the lock, and `a` for an acquire or `u` for an unlock.
fn batches(fixture: &Fixture) -> Vec<Vec<(String, String)>> {
    let is_batch = batch();
    let commands = fixture.proxy.commands();
    let sent = commands.iter().filter(|seen| is_batch(&seen.args));
    let parts = sent.map(|seen| {
        let keys: usize = seen.args[2].parse().expect("the number of keys");
        let (names, args) = seen.args[3..].split_at(keys);
        let scripts = args.chunks(6).map(|part| part[0].clone());
        names.iter().cloned().zip(scripts).collect::<Vec<_>>()
    });
    parts.collect()
}

async fn set_memory(fixture: &Fixture, limit: &str) {
    let set = ["CONFIG", "SET", "maxmemory", limit];
    fixture.redis.cmd(&set).await;
}

fn assert_out_of_memory(error: &Error) {
    let is_refusal = matches!(error, Error::Refused { code, .. } if code == "OOM");
    assert!(is_refusal && !error.may_be_held(), "{error}");
}

/// No half of the lock is left.
async fn assert_refused_whole(fixture: &Fixture, name: &str, error: &Error) {
    assert_out_of_memory(error);
    assert!(!fixture.redis.exists(name).await, "half of {name} is left");
}

/// With memory again, each lock is free, and batches acquire and release all of them.
async fn all_can_be_held_again(fixture: &Fixture) {
    set_memory(fixture, "0").await;
    let nothing_is_held = async || fixture.client.holds().is_empty();
    eventually(SOON, "nothing is held", nothing_is_held).await;
    let before = batches(fixture).len();
    let outcomes = answers(acquire_all(fixture, "l")).await;
    let guards: Vec<Guard> = outcomes.into_iter().map(|it| it.unwrap()).collect();
    assert!(batches(fixture).len() > before, "there are no batches now");
    unlock_all(guards).await;
    fixture.assert_recovered().await;
}

/// More than two batches, and those who are alone because they come first.
const CALLERS: usize = 200;
