//! One run: the real engine in virtual time, the tasks of a plan, and the observer between the clients
//! and the server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::command;
use super::contest::Contest;
use super::observer::{Observer, Seen};
use super::patience::Patience;
use super::plan::Plan;
use super::task;
use crate::owner::Owner;
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
    let chance = Chance::new(plan.world.seed, 21);
    let network = Arc::new(Network::new(chance, plan.world.faults, command::counted));
    let (clients, found) = world::clients(&plan.world, &network, traced);
    let patience = Patience::default();
    let observer = Observer::new(redis, network.clone(), found, patience.clone(), plan);
    let observer = RefCell::new(observer);
    world::play(
        &network,
        &observer,
        story(plan, &network, &observer, clients, patience),
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
    patience: Patience,
) {
    let (reports, mut received) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for (number, task) in plan.tasks.iter().enumerate() {
        let contest = Contest::new(&clients[task.client], plan.is_election);
        let work = task::run(
            number,
            task.clone(),
            contest,
            patience.clone(),
            network.clone(),
            reports.clone(),
        );
        tasks.push(tokio::spawn(work));
    }
    let mut redisson = RedissonPlan::begin(plan.redisson, |plan, number| {
        redisson::fair::run(network.clone(), plan, number)
    });
    drop(reports);
    let mut death = plan.death;
    let start = Instant::now();
    loop {
        let dies = async {
            match death {
                Some(death) => {
                    tokio::time::sleep_until(start + Duration::from_millis(death.at_ms)).await;
                    death.client
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            report = received.recv() => match report {
                Some(report) => observer.borrow_mut().process(report),
                None => break,
            },
            client = dies => {
                death = None;
                observer.borrow_mut().die(client);
                network.die(client);
                clients[client].watchdog.abort();
                let of_client = plan.tasks.iter().zip(&tasks);
                let of_client = of_client.filter(|(task, _)| task.client == client);
                of_client.for_each(|(_, handle)| handle.abort());
            }
        }
    }
    let mut remaining = Vec::new();
    for task in tasks {
        match task.await {
            Ok(held) => remaining.push(held),
            Err(error) if error.is_cancelled() => {}
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
    drop(remaining);
    rest(&plan.world, network, observer).await;
    observer.borrow_mut().look_at_rest();
    let lease = plan.longest_lease_ms();
    // A client with a slower clock notices an expiry on the server a little later.
    tokio::time::sleep(Duration::from_millis(lease + lease / 50 + 10)).await;
    observer.borrow_mut().look_at_the_end();

    // The place of a Redisson thread that died lasts until its score, which includes the time of those
    // before it.
    let dead = observer.borrow().redissons_last_ms();
    tokio::time::sleep(Duration::from_millis(dead)).await;
    let dead = observer.borrow().found.dead;
    let living = clients.into_iter().enumerate();
    for (_, client) in living.filter(|(number, _)| dead != Some(*number)) {
        // Other waiters pass an entry that a late command left, once its presence has expired.
        let wait = Duration::from_millis(plan.world.silence_ms + 5_000);
        let owner = Owner::from_id(100);
        let contest = Contest::new(&client, plan.is_election);
        let won = contest.acquire(&owner, Some(wait), None, None, "last".to_owned());
        let won = won.await;
        let free = matches!(won, Ok(Some(_)));
        observer.borrow_mut().found.claim(free, || {
            let error = won.as_ref().err();
            format!("a free lock cannot be had on a calm network: {error:?}")
        });
        drop((won, contest));
        rest(&plan.world, network, observer).await;
        drop(client.session);
        let ended = client.watchdog.await;
        observer.borrow_mut().found.claim(ended.is_ok(), || {
            format!("the watchdog panicked: {ended:?}")
        });
    }
    observer.borrow_mut().look_whether_all_left();
}
