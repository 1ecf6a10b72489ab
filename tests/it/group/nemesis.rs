//! Lost, late and repeated commands, cut connections and cancelled calls, all at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::*;
use crate::nemesis::Nemesis;
use crate::support::{Cell, Dice, named};

/// GL1 and GL2, and GL4 after the faults.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_value_has_one_holder_under_a_nemesis_and_is_free_after_it() {
    let test = Fixture::start().await;
    let run = Arc::new(Run::default());
    let mut nemesis = Nemesis::start(&test.server, |it| it.watchdog_lease(LEASE)).await;
    let mut tasks = JoinSet::new();
    for client in &nemesis.clients {
        for task in 0..4 {
            // Any two of these pairs have a value in common.
            let pair = [task % 3, (task + 1) % 3];
            let lock = of(client, &pair.map(|value| VALUES[value]));
            tasks.spawn(contend(
                lock,
                pair,
                run.clone(),
                nemesis.dice.roll(u64::MAX) | 1,
            ));
        }
    }
    nemesis
        .inject_faults(LASTS, named("evalsha"), || {
            run.visits.load(Ordering::Relaxed) >= 20
        })
        .await;
    run.is_over.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.expect("no task panics");
    }
    let visits = run.visits.load(Ordering::Relaxed);
    println!("{visits} acquires succeeded");
    for (cell, written) in run.cells.iter().zip(&run.written) {
        let written = written.load(Ordering::Relaxed);
        assert_eq!(cell.value(), written as i64, "two wrote at a time");
    }
    // A late acquire ends with its lease.
    let all = test.lock(&VALUES).try_lock().wait(SOON).await.unwrap();
    all.expect("they are free soon").unlock().await.unwrap();
    test.redis.eventually_empty().await;
}

#[derive(Default)]
struct Run {
    is_over: AtomicBool,
    visits: AtomicU64,
    /// One entry for each value.
    written: [AtomicU64; 3],
    cells: [Cell; 3],
}

async fn contend(lock: Lock, pair: [usize; 2], run: Arc<Run>, seed: u64) {
    let mut dice = Dice::of(seed);
    let mut roll = |faces| dice.roll(faces);
    while !run.is_over.load(Ordering::Relaxed) {
        let request = lock
            .try_lock()
            .owner(&Owner::new())
            .wait(ms(100 + roll(2_000)));
        let request = match roll(2) {
            0 => request,
            _ => request.lease(LEASE),
        };
        let acquired = match roll(4) {
            // The caller drops the call at a random time.
            0 => {
                let limit = ms(roll(60));
                tokio::time::timeout(limit, request.into_future()).await
            }
            _ => Ok(request.await),
        };
        let Ok(Ok(Some(guard))) = acquired else {
            tokio::time::sleep(ms(5)).await;
            continue;
        };
        run.visits.fetch_add(1, Ordering::Relaxed);
        // It writes only while it holds the lock.
        let stay = ms(roll(30));
        let writes = pair.map(async |value| {
            let has_written = run.cells[value].bump_while(stay, || guard.is_valid()).await;
            run.written[value].fetch_add(u64::from(has_written), Ordering::Relaxed);
        });
        futures_util::future::join_all(writes).await;
        match roll(4) {
            0 => drop(guard),
            1 => drop(tokio::time::timeout(ms(roll(20)), guard.unlock()).await),
            // The outcome may be unknown.
            _ => drop(guard.unlock().await),
        }
    }
}

const VALUES: [&str; 3] = ["Jack", "Mary", "Tom"];
const LASTS: Duration = Duration::from_secs(8);
/// The holder is notified when it is over.
const LEASE: Duration = Duration::from_millis(1_500);
