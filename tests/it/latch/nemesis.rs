//! Lost, late and repeated commands, cut connections and cancelled calls, all at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::*;
use crate::nemesis::Nemesis;
use crate::support::{Dice, named};

/// CL1, and CL2 after the faults.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_counts_once_under_a_nemesis_and_all_waiters_end_after_it() {
    let test = Fixture::with_count(Some(COUNT)).await;
    let run = Arc::new(Run::default());
    let mut nemesis = Nemesis::start(&test.server, |it| it).await;
    let (mut tasks, mut waiters) = (JoinSet::new(), JoinSet::new());
    for client in &nemesis.clients {
        for _ in 0..3 {
            let latch = client.count_down_latch(NAME);
            tasks.spawn(count(latch, run.clone(), nemesis.dice.roll(u64::MAX)));
        }
        let latch = client.count_down_latch(NAME);
        waiters.spawn(async move {
            while latch.wait_zero().await.is_err() {
                tokio::time::sleep(ms(5)).await;
            }
        });
    }
    nemesis
        .inject_faults(LASTS, named("evalsha"), || run.is_enough())
        .await;
    run.is_over.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.expect("no task panics");
    }
    let [counted, unknown] = [&run.counted, &run.unknown].map(|it| it.load(Ordering::Relaxed));
    println!("{counted} counted, {unknown} without an answer");
    // An unanswered call counts later or never: its client repeats the command.
    let mut left = test.start.count().await.unwrap();
    loop {
        tokio::time::sleep(ms(1_000)).await;
        let now = test.start.count().await.unwrap();
        if now == left {
            break;
        }
        left = now;
    }
    let all = COUNT - left;
    let possible = counted..=counted + unknown;
    assert!(possible.contains(&all), "{all} counted, not {possible:?}");
    assert!(waiters.try_join_next().is_none(), "no waiter ended early");
    test.redis.cmd(&["SET", NAME, "1"]).await;
    test.start.count_down().await.unwrap();
    let ended = tokio::time::timeout(SOON, waiters.join_all()).await;
    ended.expect("the zero ends all waits");
    for client in nemesis.clients {
        client.shutdown().await;
    }
}

#[derive(Default)]
struct Run {
    is_over: AtomicBool,
    counted: AtomicI64,
    /// Calls that may have counted.
    unknown: AtomicI64,
}

impl Run {
    fn is_enough(&self) -> bool {
        self.counted.load(Ordering::Relaxed) >= 20 && self.unknown.load(Ordering::Relaxed) >= 1
    }
}

async fn count(latch: CountDownLatch, run: Arc<Run>, seed: u64) {
    let mut dice = Dice::of(seed);
    while !run.is_over.load(Ordering::Relaxed) {
        let limit = match dice.roll(4) {
            // The caller drops the call at a random time.
            0 => ms(dice.roll(60)),
            _ => LONG,
        };
        match tokio::time::timeout(limit, latch.count_down()).await {
            Ok(Ok(())) => run.counted.fetch_add(1, Ordering::Relaxed),
            _ => run.unknown.fetch_add(1, Ordering::Relaxed),
        };
        tokio::time::sleep(ms(dice.roll(10))).await;
    }
}

const COUNT: i64 = 1_000_000;
const LASTS: Duration = Duration::from_secs(6);
