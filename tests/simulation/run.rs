//! One run: the real engine in virtual time, the tasks of a plan, and the observer between the clients
//! and the server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::chance::Chance;
use super::command;
use super::network::Network;
use super::observer::{KEY, Observed, Observer};
use super::plan::Plan;
use super::redis::Redis;
use super::redisson::{self, RedissonPlan};
use super::suite::RunOutcome;
use super::task::{self, Left, Nature, Report};
use super::world::{self, SimulatedClient, rest};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::owner::Owner;

/// Runs a plan on a server that is reset first. Returns the server for the next run.
pub(super) fn run(plan: &Plan, redis: Redis, traced: bool) -> (RunOutcome<Observed>, Redis) {
    world::in_virtual_time(redis, async |redis| simulate(plan, redis, traced).await)
}

async fn simulate(plan: &Plan, redis: Redis, traced: bool) -> (RunOutcome<Observed>, Redis) {
    let chance = Chance::new(plan.seed, 2);
    let network = Arc::new(Network::new(chance, plan.faults, command::counted));
    let (clients, found) = world::clients(plan, &network, traced);
    let observer = RefCell::new(Observer::new(redis, network.clone(), found, plan));
    world::play(
        &network,
        &observer,
        story(plan, &network, &observer, clients),
    )
    .await;
    let mut observer = observer.into_inner();
    observer.seen.batches = network.batches();
    let outcome = RunOutcome {
        violation: observer.found.violation.take(),
        seen: observer.seen,
        trace: observer.found.trace(),
    };
    (outcome, observer.redis)
}

/// The tasks' steps with faults, then a calm network and the checks of its result.
async fn story(
    plan: &Plan,
    network: &Arc<Network>,
    observer: &RefCell<Observer>,
    clients: Vec<SimulatedClient>,
) {
    let (reports, mut received) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    let lock = |client: &SimulatedClient| Lock::new(client.session.clone(), plan.lock.kind(), KEY);
    let without_faults = plan.is_without_faults();
    for (number, task) in plan.tasks.iter().enumerate() {
        let lock = lock(&clients[task.client]);
        let alone = plan.tasks.iter().filter(|other| other.owner == task.owner);
        let nature = Nature {
            alone: alone.count() == 1,
            calm: without_faults,
            lock: plan.lock,
        };
        let work = task::run(
            number,
            task.clone(),
            nature,
            lock,
            network.clone(),
            reports.clone(),
        );
        tasks.push(tokio::spawn(work));
    }
    let mut redisson = RedissonPlan::begin(plan.redisson, |redisson, number| {
        redisson::plain::run(network.clone(), redisson, plan.lock, number)
    });
    drop(reports);
    while let Some(report) = received.recv().await {
        let mut observer = observer.borrow_mut();
        match report {
            Report::Says(line) => observer.found.note(|| line),
            Report::Wrong(what) => observer.found.claim(false, || what),
            Report::Waits(number) => observer.wait(number, plan.tasks[number].client, true),
            Report::Ended(number) => observer.wait(number, plan.tasks[number].client, false),
            Report::MayAsk(number, asks) => {
                observer.polls(number, plan.tasks[number].client, asks);
            }
            Report::Refused => observer.seen.refused += 1,
            Report::Keeps(field, least) => observer.keep(&field, least),
            Report::Kept(field, rest) => observer.look_at_kept(&field, rest),
            Report::Released(field) => {
                let deleted = observer.was_deleted(&field);
                observer
                    .found
                    .claim(deleted, || format!("{field} is said to be released"));
            }
        }
    }
    let mut guards: Vec<Guard> = Vec::new();
    let mut calls = Vec::new();
    for task in tasks {
        match task.await {
            Ok((held, left)) => {
                guards.extend(held);
                calls.extend(left);
            }
            Err(error) => observer
                .borrow_mut()
                .found
                .claim(false, || error.to_string()),
        }
    }
    while let Some(ended) = redisson.join_next().await {
        ended.expect("a Redisson thread does not panic");
    }
    network.calm();
    observer.borrow_mut().found.note(|| "calm".to_owned());
    // A pending release is completed when another caller waits for it; here no caller does.
    calls.retain(|call| matches!(call, Left::Acquire(..)));
    if !calls.is_empty() {
        let pauses = plan.pauses_end_ms() + LEFT_MS;
        // A force-unlocked hold of an abandoned call stays listed until the call is resumed.
        tokio::time::sleep(Duration::from_millis(pauses)).await;
        observer.borrow_mut().look_at_left();
    }
    drop(calls);
    let watched = if without_faults {
        observer.borrow().watched()
    } else {
        Vec::new()
    };
    rest(plan, network, observer).await;
    observer.borrow_mut().look_at_rest();
    if !watched.is_empty() {
        let leases = 2 * plan.longest_lease_ms();
        tokio::time::sleep(Duration::from_millis(leases)).await;
    }
    for hold in watched {
        observer.borrow_mut().look_whether_kept(&hold);
    }

    drop(guards);
    for task in &plan.tasks {
        let owner = Owner::from_id(task.owner);
        let lock = lock(&clients[task.client]);
        // As often as the task could have forgotten a guard.
        for _ in 0..task.steps.len() {
            let _ = lock.unlock().owner(&owner).await;
        }
    }
    rest(plan, network, observer).await;
    observer.borrow_mut().look_at_rest();
    let lease = plan.longest_lease_ms();
    // A client with a slower clock notices an expiry on the server a little later.
    tokio::time::sleep(Duration::from_millis(lease + lease / 50 + 10)).await;
    observer.borrow_mut().look_at_the_end();

    for client in clients {
        let guard = lock(&client).try_lock().wait(Duration::from_secs(5)).await;
        let free = matches!(guard, Ok(Some(_)));
        observer.borrow_mut().found.claim(free, || {
            format!("a free lock cannot be had on a calm network: {guard:?}")
        });
        drop(guard);
        drop(client.session);
        let ended = client.watchdog.await;
        observer.borrow_mut().found.claim(ended.is_ok(), || {
            format!("the watchdog panicked: {ended:?}")
        });
    }
}

/// A call that is not polled counts as abandoned this long after the end of its own time.
const LEFT_MS: u64 = 5000;
