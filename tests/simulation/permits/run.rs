//! One run: the real engine in virtual time, the tasks of a plan, and the observer between the clients
//! and the server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::command;
use super::observer::{Observer, Seen};
use super::plan::Plan;
use super::task::{self, Report};
use crate::permit_semaphore::PermitSemaphore;
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
    let chance = Chance::new(plan.world.seed, 11);
    let network = Arc::new(Network::new(chance, plan.world.faults, command::counted));
    let (clients, found) = world::clients(&plan.world, &network, traced);
    let observer = Observer::new(redis, network.clone(), found, plan.total);
    let observer = RefCell::new(observer);
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
    let (reports, mut received) = tokio::sync::mpsc::unbounded_channel();
    let seats =
        |client: &SimulatedClient| PermitSemaphore::new(client.session.clone(), command::KEY);
    let mut tasks = Vec::new();
    for (number, task) in plan.tasks.iter().enumerate() {
        let seats = seats(&clients[task.client]);
        let work = task::run(number, task.clone(), seats, reports.clone());
        tasks.push(tokio::spawn(work));
    }
    let mut redisson = RedissonPlan::begin(plan.redisson, |plan, number| {
        redisson::permits::run(network.clone(), plan, number)
    });
    drop(reports);
    while let Some(report) = received.recv().await {
        let mut observer = observer.borrow_mut();
        match report {
            Report::Says(line) => observer.found.note(|| line),
            Report::Released(ids) => observer.released(ids),
            Report::GivenBack(ids) => observer.given_back(ids),
            Report::HandedOut(ids) => observer.handed_out(ids),
        }
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
    let lease = plan.longest_lease_ms();
    // A client with a slower clock notices an expiry on the server a little later.
    tokio::time::sleep(Duration::from_millis(lease + lease / 50 + 10)).await;
    observer.borrow_mut().look_at_the_end();

    for client in clients {
        let all = seats(&client).try_acquire_many(plan.total);
        let all = all.wait(Duration::from_secs(5)).await;
        let free = matches!(all, Ok(Some(_)));
        observer.borrow_mut().found.claim(free, || {
            format!("not all permits can be had on a calm network: {all:?}")
        });
        drop(all);
        drop(client.session);
        let ended = client.watchdog.await;
        observer.borrow_mut().found.claim(ended.is_ok(), || {
            format!("the watchdog panicked: {ended:?}")
        });
    }
}
