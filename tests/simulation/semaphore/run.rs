//! One run: the real engine in virtual time, the tasks of a plan, and the observer between the clients
//! and the server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::command;
use super::observer::{Observer, Seen};
use super::plan::Plan;
use super::task::{self, Report};
use crate::semaphore::Semaphore;
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
    let chance = Chance::new(plan.world.seed, 13);
    let network = Arc::new(Network::new(chance, plan.world.faults, command::counted));
    let (clients, found) = world::clients(&plan.world, &network, traced);
    let observer = Observer::new(redis, network.clone(), found, plan);
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
    let seats = |client: &SimulatedClient| Semaphore::new(client.session.clone(), command::KEY);
    let ids = [0, 1].map(|client: usize| clients[client].session.core().id);
    let mut tasks = Vec::new();
    for (number, task) in plan.tasks.iter().enumerate() {
        let seats = seats(&clients[task.client]);
        let work = task::run(
            number,
            task.clone(),
            seats,
            plan.total,
            ids[1 - task.client],
            reports.clone(),
        );
        tasks.push(tokio::spawn(work));
    }
    let mut redisson = RedissonPlan::begin(plan.redisson, |plan, number| {
        redisson::semaphore::run(network.clone(), plan, number)
    });
    drop(reports);
    while let Some(report) = received.recv().await {
        let mut observer = observer.borrow_mut();
        match report {
            Report::Says(line) => observer.found.note(|| line),
            Report::LosesLedger => observer.lose_ledger(),
            Report::EndsNumber => observer.end_number(),
            Report::Waits(task, begins) => observer.wait(task, begins),
            Report::GotOthers { wanted, got } => observer
                .found
                .violated(format!("a call for {wanted} permits got {got}")),
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
    // The number may have ended last. A connection may still be silenced.
    let mut is_set = seats(&clients[0]).try_set_permits(plan.total).await;
    while is_set.is_err() {
        is_set = seats(&clients[0]).try_set_permits(plan.total).await;
    }
    // The client completes a slow release itself if the future of the call is not polled.
    tokio::time::sleep(Duration::from_millis(LEFT_MS)).await;
    // The abandoned calls stay abandoned until the client has no work left, and are dropped then.
    rest(&plan.world, network, observer).await;
    observer.borrow_mut().look_at_rest();
    drop(remaining);
    rest(&plan.world, network, observer).await;
    observer.borrow_mut().look_at_rest();
    observer.borrow_mut().look_at_the_end();

    for client in clients {
        if observer.borrow().is_whole() {
            let all = seats(&client).try_acquire_many(plan.total);
            let all = all.wait(Duration::from_secs(5)).await;
            let free = matches!(all, Ok(Some(_)));
            observer.borrow_mut().found.claim(free, || {
                format!("not all permits can be had on a calm network: {all:?}")
            });
            drop(all);
        }
        drop(client.session);
        let ended = client.watchdog.await;
        observer.borrow_mut().found.claim(ended.is_ok(), || {
            format!("the watchdog panicked: {ended:?}")
        });
    }
}

const LEFT_MS: u64 = 5000;
