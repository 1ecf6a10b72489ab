//! One run: the real engine in virtual time, the tasks of a plan, and the observer between the clients
//! and the server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::command;
use super::observer::{Observer, Seen};
use super::plan::{Plan, Scene};
use super::task::{self, Report};
use crate::read_write_lock::ReadWriteLock;
use crate::simulation::chance::Chance;
use crate::simulation::network::Network;
use crate::simulation::redis::Redis;
use crate::simulation::redisson::{self, RedissonPlan};
use crate::simulation::suite::RunOutcome;
use crate::simulation::world::{self, SimulatedClient, rest};

/// Runs a plan on a server that is reset first. Returns the server for the next run.
pub(super) fn run(plan: &Plan, redis: Redis, traced: bool) -> (RunOutcome<Seen>, Redis) {
    world::in_virtual_time(redis, async |redis| simulate(plan, redis, traced).await)
}

async fn simulate(plan: &Plan, redis: Redis, traced: bool) -> (RunOutcome<Seen>, Redis) {
    let chance = Chance::new(plan.world.seed, 31);
    let network = Arc::new(Network::new(chance, plan.world.faults, command::counted));
    let (clients, found) = world::clients(&plan.world, &network, traced);
    let observer = RefCell::new(Observer::new(redis, network.clone(), found));
    world::play(
        &network,
        &observer,
        story(plan, &network, &observer, clients),
    )
    .await;
    let mut observer = observer.into_inner();
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
    let lock = |client: &SimulatedClient| ReadWriteLock::new(client.session.clone(), command::KEY);
    let (reports, mut received) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for task in &plan.tasks {
        let lock = lock(&clients[task.client]);
        let work = task::run(task.clone(), lock, reports.clone());
        tasks.push(tokio::spawn(work));
    }
    let mut redisson = RedissonPlan::begin(plan.redisson, |plan, number| {
        redisson::read_write::run(network.clone(), plan, number)
    });
    drop(reports);
    let mut has_left = false;
    while let Some(report) = received.recv().await {
        let mut observer = observer.borrow_mut();
        match report {
            Report::Says(line) => observer.found.note(|| line),
            Report::Left(field) => {
                has_left = true;
                observer.left(field);
            }
        }
    }
    if let Some(scene) = plan.scene {
        let locks = [lock(&clients[0]), lock(&clients[1])];
        let wrong = match scene {
            Scene::Crowd(crowd) => crowd.come(locks, plan.world.poll_cap_ms).await,
            Scene::Together(together) => together.wait(locks).await,
        };
        let mut observer = observer.borrow_mut();
        match scene {
            Scene::Crowd(_) => observer.seen.crowds += 1,
            Scene::Together(_) => observer.seen.together += 1,
        }
        observer
            .found
            .claim(wrong.is_none(), || wrong.unwrap_or_default());
    }
    let mut remaining = Vec::new();
    for task in tasks {
        match task.await {
            Ok(held) => remaining.push(held),
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
    // The abandoned calls stay abandoned until the client has no work left, and are dropped then.
    rest(&plan.world, network, observer).await;
    observer.borrow_mut().look_at_rest();
    drop(remaining);
    rest(&plan.world, network, observer).await;
    observer.borrow_mut().look_at_rest();
    if plan.is_without_faults() && !has_left {
        observer.borrow_mut().look_whether_empty();
    }
    let lease = plan.longest_lease_ms();
    // A client with a slower clock notices an expiry on the server a little later.
    tokio::time::sleep(Duration::from_millis(lease + lease / 50 + 1_500)).await;
    observer.borrow_mut().look_whether_empty();
    observer.borrow_mut().look_at_the_end();

    for client in clients {
        let guard = lock(&client).write().try_lock();
        let guard = guard.wait(Duration::from_secs(5)).await;
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
