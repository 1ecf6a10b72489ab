//! One run: the real engine in virtual time, the tasks of a plan, and the observer between the clients
//! and the server.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::command::{self, VALUES};
use super::observer::{Observer, Seen};
use super::on_server::EPOCH_MS;
use super::plan::Plan;
use super::task::{self, Report};
use crate::key::{Value, kind};
use crate::lock::Lock;
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
    let chance = Chance::new(plan.world.seed, 41);
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

/// The values whose bits are set.
fn some_of(values: u8) -> Vec<Value> {
    let all = VALUES.iter().enumerate();
    let some = all.filter(|(i, _)| values & (1 << i) != 0);
    some.map(|(_, value)| Value::utf8(value)).collect()
}

const ALL: u8 = (1 << VALUES.len()) - 1;

/// The tasks' steps with faults, then a calm network and the checks of its result.
async fn story(
    plan: &Plan,
    network: &Arc<Network>,
    observer: &RefCell<Observer>,
    clients: Vec<SimulatedClient>,
) {
    let (reports, mut received) = tokio::sync::mpsc::unbounded_channel();
    let lock_of = |client: &SimulatedClient| {
        let group = Lock::new(client.session.clone(), &kind::GROUP, command::KEY);
        move |values| group.clone().of_values(&some_of(values))
    };
    let mut tasks = Vec::new();
    for (number, task) in plan.tasks.iter().enumerate() {
        let lock_of = lock_of(&clients[task.client]);
        let work = task::run(number, task.clone(), lock_of, reports.clone());
        tasks.push(tokio::spawn(work));
    }
    let mut redisson = RedissonPlan::begin(plan.redisson, |plan, number| {
        let values = some_of(ALL).iter().map(Value::name).collect();
        redisson::group::run(network.clone(), plan, number, EPOCH_MS, values)
    });
    drop(reports);
    while let Some(report) = received.recv().await {
        let mut observer = observer.borrow_mut();
        match report {
            Report::Says(line) => observer.found.note(|| line),
            Report::Released(field) => observer.released(&field),
        }
    }
    let mut guards = Vec::new();
    for task in tasks {
        match task.await {
            // The abandoned calls are dropped here.
            Ok((held, _left)) => guards.extend(held),
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
    rest(&plan.world, network, observer).await;
    observer.borrow_mut().look_at_rest();
    drop(guards);
    rest(&plan.world, network, observer).await;
    observer.borrow_mut().look_at_rest();
    let lease = plan.longest_lease_ms();
    // A client with a slower clock notices an expiry on the server a little later.
    tokio::time::sleep(Duration::from_millis(lease + lease / 50 + 10)).await;
    observer.borrow_mut().look_at_the_end();

    for client in clients {
        let guard = lock_of(&client)(ALL).try_lock();
        let guard = guard.wait(Duration::from_secs(5)).await;
        let free = matches!(guard, Ok(Some(_)));
        observer.borrow_mut().found.claim(free, || {
            format!("free values cannot be had on a calm network: {guard:?}")
        });
        drop(guard);
        drop(client.session);
        let ended = client.watchdog.await;
        observer.borrow_mut().found.claim(ended.is_ok(), || {
            format!("the watchdog panicked: {ended:?}")
        });
    }
}
