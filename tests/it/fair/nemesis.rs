//! Lost, late and repeated commands, cut connections and cancelled calls, all at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;

use super::*;
use crate::nemesis::Nemesis;
use crate::support::{Cell, Dice, named};

/// FA1, and FA7 and FA8 after the faults.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_lock_has_one_holder_under_a_nemesis_and_is_free_after_it() {
    let test = Fixture::start().await;
    let run = Arc::new(Run::default());
    let mut nemesis = Nemesis::start(&test.server, |it| {
        it.watchdog_lease(LEASE).fair_absence(ms(800))
    })
    .await;
    let mut tasks = JoinSet::new();
    for client in &nemesis.clients {
        for _ in 0..4 {
            let lock = client.fair_lock(NAME);
            tasks.spawn(contend(lock, run.clone(), nemesis.dice.roll(u64::MAX) | 1));
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
    let written = run.written.load(Ordering::Relaxed);
    assert_eq!(run.cell.value(), written as i64, "two wrote at a time");
    // A late acquire ends with its lease, and a late place with its absence.
    let free = test.lock.try_lock().wait(SOON).await.unwrap();
    free.expect("it is free soon").unlock().await.unwrap();
    test.eventually_empty().await;
}

#[derive(Default)]
struct Run {
    is_over: AtomicBool,
    visits: AtomicU64,
    written: AtomicU64,
    cell: Cell,
}

async fn contend(lock: Lock, run: Arc<Run>, seed: u64) {
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
            // The caller drops the wait at a random time.
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
        let has_written = run.cell.bump_while(ms(roll(30)), || guard.is_valid()).await;
        run.written
            .fetch_add(u64::from(has_written), Ordering::Relaxed);
        match roll(4) {
            0 => drop(guard),
            1 => drop(tokio::time::timeout(ms(roll(20)), guard.unlock()).await),
            // The outcome may be unknown.
            _ => drop(guard.unlock().await),
        }
    }
}

const LASTS: Duration = Duration::from_secs(8);
/// A holder that loses the lock is notified.
const LEASE: Duration = Duration::from_millis(1_500);
