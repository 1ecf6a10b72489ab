//! Random faults for some seconds.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lockdog::{Client, Guard, Owner};

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME, take};
use crate::support::logs::{self, Recent};
use crate::support::{Cell, Dice, Direction, Redis, eventually, until_ok};

#[test]
fn exclusion_holds_and_all_clients_recover_under_a_nemesis() {
    logs::alone(
        "faults::nemesis::exclusion_holds_and_all_clients_recover_under_a_nemesis",
        async {
            let recent = Recent::of_this_process();
            let seen = Seen::default();
            let Err(failure) = AssertUnwindSafe(story(&seen)).catch_unwind().await else {
                return;
            };
            println!("failed {:?} after the recording began", recent.elapsed());
            let redis = seen.redis.lock().unwrap().clone();
            if let Some(redis) = redis {
                for key in redis.keys().await {
                    let ttl = redis.pttl(&key).await;
                    println!("key {key}: {:?} for {ttl} ms", redis.hash(&key).await);
                }
            }
            let clients = seen.clients.lock().unwrap().clone();
            for (number, client) in clients.iter().enumerate() {
                println!("client {number}: {client:#?}");
                println!("client {number} holds {:#?}", client.holds());
            }
            println!("{}", recent.lines().join("\n"));
            resume_unwind(failure);
        },
    );
}

/// What a failed test prints.
#[derive(Default)]
struct Seen {
    clients: Mutex<Vec<Client>>,
    redis: Mutex<Option<Redis>>,
}

async fn story(seen: &Seen) {
    let lease = Duration::from_millis(1000);
    let set = move |client: lockdog::ClientBuilder| {
        client
            .watchdog_lease(lease)
            .command_timeout(Duration::from_millis(300))
            .poll_cap(Duration::from_millis(100))
    };
    let fixture = Arc::new(Fixture::with(set).await);
    let mut clients = vec![fixture.client.clone()];
    for _ in 0..2 {
        let builder = set(Client::builder()).url(fixture.proxy.url());
        clients.push(until_ok(SOON, async || builder.clone().build().await).await);
    }
    *seen.clients.lock().unwrap() = clients.clone();
    *seen.redis.lock().unwrap() = Some(fixture.redis.clone());
    let run = Arc::new(Run::default());
    let mut tasks = tokio::task::JoinSet::new();
    for client in &clients {
        for _ in 0..3 {
            tasks.spawn(contend(client.clone(), run.clone()));
        }
    }
    let dice = Dice::from_environment();
    let done = inject_faults(&fixture, dice, &run).await;
    run.over.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.expect("no task panics");
    }
    assert!(done.len() >= KINDS, "{done:?}");
    let visits = run.visits.load(Ordering::Relaxed);
    assert!(visits >= VISITS, "{visits} got in while {done:?}");
    assert_eq!(run.cell.value(), visits as i64, "an update was lost");
    for client in &clients {
        drop(take(&client.lock(NAME)).await);
        eventually(SOON, "nothing is held", async || client.holds().is_empty()).await;
    }
    fixture.assert_recovered().await;
}

#[derive(Default)]
struct Run {
    cell: Cell,
    over: AtomicBool,
    visits: AtomicU64,
}

async fn contend(client: Client, run: Arc<Run>) {
    let lock = client.lock(NAME);
    let mut round = 0;
    while !run.over.load(Ordering::Relaxed) {
        round += 1;
        let request = lock.try_lock().owner(&Owner::new()).wait(SOON / 40);
        let request = if round % 2 == 0 {
            request.lease(Duration::from_millis(800))
        } else {
            request
        };
        let Ok(Some(guard)) = request.await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        visit(&guard, &run).await;
        if round % 3 == 0 {
            drop(guard);
        } else {
            // The outcome may be unknown.
            let _ = guard.unlock().await;
        }
    }
}

/// Reads, sleeps, and writes one more while the guard is valid.
async fn visit(guard: &Guard, run: &Run) {
    if !guard.is_valid() {
        return;
    }
    // On a busy machine the lease may end meanwhile. Then it writes nothing.
    if run.cell.bump_while(STAY, || guard.is_valid()).await {
        run.visits.fetch_add(1, Ordering::Relaxed);
    }
}

/// Causes random faults for a time, ends them all, and counts them by kind. On a busy machine it takes
/// longer, until there were enough kinds of faults and enough visits.
async fn inject_faults(
    fixture: &Fixture,
    mut dice: Dice,
    run: &Run,
) -> BTreeMap<&'static str, u32> {
    let mut next = |faces: u64| dice.roll(faces);
    let mut done = BTreeMap::new();
    let began = Instant::now();
    let lasts_longer = |done: &BTreeMap<&'static str, u32>| {
        let is_enough = done.len() >= KINDS && run.visits.load(Ordering::Relaxed) >= VISITS;
        began.elapsed() < if is_enough { LASTS } else { LASTS * 6 }
    };
    while lasts_longer(&done) {
        let direction = if next(2) == 0 {
            Direction::ToClient
        } else {
            Direction::ToServer
        };
        let lasts = Duration::from_millis(20 + next(200));
        let what = match next(7) {
            0 => {
                "cut".to_owned()
                    + if fixture.proxy.cut_all() > 0 {
                        ""
                    } else {
                        " nothing"
                    }
            }
            1 => {
                "reset".to_owned()
                    + if fixture.proxy.reset_all() > 0 {
                        ""
                    } else {
                        " nothing"
                    }
            }
            2 => {
                fixture.proxy.delay(direction, lasts);
                tokio::time::sleep(lasts).await;
                "delay".to_owned()
            }
            3 => {
                fixture.proxy.blackhole(direction);
                tokio::time::sleep(lasts * 2).await;
                "blackhole".to_owned()
            }
            4 => {
                let kill = ["CLIENT", "KILL", "TYPE", "pubsub"];
                let _ = fixture.redis.try_cmd(&kill).await;
                "kill pubsub".to_owned()
            }
            5 => {
                fixture.server.pause();
                tokio::time::sleep(lasts).await;
                fixture.server.resume();
                "pause".to_owned()
            }
            _ => {
                fixture.proxy.refuse();
                fixture.proxy.cut_all();
                tokio::time::sleep(lasts).await;
                "refuse".to_owned()
            }
        };
        fixture.proxy.heal();
        let known = [
            "cut",
            "reset",
            "delay",
            "blackhole",
            "kill pubsub",
            "pause",
            "refuse",
        ];
        if let Some(known) = known.into_iter().find(|known| *known == what) {
            *done.entry(known).or_default() += 1;
        }
        tokio::time::sleep(Duration::from_millis(next(120))).await;
    }
    done
}

const STAY: Duration = Duration::from_millis(4);
const LASTS: Duration = Duration::from_secs(8);
/// The smallest number of kinds of faults.
const KINDS: usize = 4;
/// The smallest number of visits.
const VISITS: u64 = 10;
