//! One run: the real engine in virtual time, the tasks of a plan, and the observer between the clients
//! and the server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::command;
use super::observer::{Observer, Seen};
use super::plan::Plan;
use super::task;
use crate::latch::CountDownLatch;
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
    let chance = Chance::new(plan.world.seed, 15);
    let network = Arc::new(Network::new(chance, plan.world.faults, command::counted));
    let (clients, found) = world::clients(&plan.world, &network, traced);
    let observer = Observer::new(redis, network.clone(), found, &plan.world);
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
    let latch =
        |client: &SimulatedClient| CountDownLatch::new(client.session.clone(), command::KEY);
    let mut tasks = Vec::new();
    for (number, task) in plan.tasks.iter().enumerate() {
        let latch = latch(&clients[task.client]);
        let work = task::run(
            number,
            task.clone(),
            latch,
            network.clone(),
            reports.clone(),
        );
        tasks.push(tokio::spawn(work));
    }
    let mut redisson = RedissonPlan::begin(plan.redisson, |plan, number| {
        redisson::latch::run(network.clone(), plan, number)
    });
    drop(reports);
    let receiving = async {
        while let Some(report) = received.recv().await {
            observer.borrow_mut().process(report);
        }
    };
    let ending = async {
        let mut remaining = Vec::new();
        for task in tasks {
            match task.await {
                Ok(left) => remaining.push(left),
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
        let mut latches = clients.iter().map(latch);
        calm(plan, network, observer, latches.next().as_ref()).await;
        for (mut waits, left) in remaining {
            drop(left);
            while let Some(ended) = waits.join_next().await {
                let mut observer = observer.borrow_mut();
                observer
                    .found
                    .claim(ended.is_ok(), || format!("a wait panicked: {ended:?}"));
            }
        }
    };
    tokio::join!(receiving, ending);
    observer.borrow_mut().look_at_the_end();

    for client in clients {
        drop(client.session);
        let ended = client.watchdog.await;
        observer.borrow_mut().found.claim(ended.is_ok(), || {
            format!("the watchdog panicked: {ended:?}")
        });
    }
}

/// Waits until every count-down has counted, and ends the latch for good.
async fn calm(
    plan: &Plan,
    network: &Network,
    observer: &RefCell<Observer>,
    latch: Option<&CountDownLatch>,
) {
    {
        let mut observer = observer.borrow_mut();
        observer.calm();
        observer.found.note(|| "calm".to_owned());
    }
    rest(&plan.world, network, observer).await;
    let mut patience = 100;
    while !observer.borrow().has_counted_all() && patience > 0 {
        patience -= 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The repeated commands have arrived, too.
    rest(&plan.world, network, observer).await;
    let Some(latch) = latch else { return };
    while latch.delete().await.is_err() {}
}
