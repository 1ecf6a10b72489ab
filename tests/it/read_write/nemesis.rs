//! Lost, late and repeated commands, cut connections and cancelled calls, all at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;

use super::*;
use crate::nemesis::Nemesis;
use crate::support::{Cell, Dice, named};

/// RW2, and RW4 after the faults.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_exclude_each_other_under_a_nemesis_and_nothing_is_left_after_it() {
    let test = Fixture::new().await;
    let run = Arc::new(Run::default());
    let mut nemesis = Nemesis::start(&test.server, |it| it.watchdog_lease(LEASE)).await;
    let mut tasks = JoinSet::new();
    for client in &nemesis.clients {
        for _ in 0..4 {
            let rw = client.read_write_lock(NAME);
            tasks.spawn(contend(rw, run.clone(), nemesis.dice.roll(u64::MAX)));
        }
    }
    nemesis
        .inject_faults(LASTS, named("evalsha"), || run.is_enough())
        .await;
    run.is_over.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.expect("no task panics");
    }
    let [reads, written, upgrades] = run.counts();
    println!("{reads} reads, {written} writes, {upgrades} upgrades");
    assert_eq!(run.cell.value(), written as i64, "two wrote at a time");
    // A permit or lock of a late acquire expires with its lease.
    let writer = test.rw.write().try_lock().wait(SOON).await.unwrap();
    writer.expect("it is free soon").unlock().await.unwrap();
    test.redis.eventually_empty().await;
}

#[derive(Default)]
struct Run {
    is_over: AtomicBool,
    reads: AtomicU64,
    written: AtomicU64,
    upgrades: AtomicU64,
    cell: Cell,
}

impl Run {
    /// Reads, writes and upgrades.
    fn counts(&self) -> [u64; 3] {
        [&self.reads, &self.written, &self.upgrades].map(|it| it.load(Ordering::Relaxed))
    }

    fn is_enough(&self) -> bool {
        let [reads, written, upgrades] = self.counts();
        reads >= 20 && written >= 20 && upgrades >= 1
    }

    async fn read(&self, guard: &ReadGuard, stay: Duration) {
        let has_read = self.cell.read_while(stay, || guard.is_valid()).await;
        self.reads.fetch_add(u64::from(has_read), Ordering::Relaxed);
    }

    async fn write(&self, guard: &WriteGuard, stay: Duration) {
        let has_written = self.cell.bump_while(stay, || guard.is_valid()).await;
        self.written
            .fetch_add(u64::from(has_written), Ordering::Relaxed);
    }
}

async fn contend(rw: ReadWriteLock, run: Arc<Run>, seed: u64) {
    let mut dice = Dice::of(seed);
    let mut roll = |faces| dice.roll(faces);
    while !run.is_over.load(Ordering::Relaxed) {
        let (wait, owner) = (ms(100 + roll(2_000)), Owner::new());
        // The caller gives up at any point.
        let limit = match roll(4) {
            0 => ms(roll(60)),
            _ => LONG,
        };
        let stay = ms(roll(20));
        if roll(3) > 0 {
            let request = rw.read().try_lock().owner(&owner).wait(wait);
            let request = match roll(2) {
                0 => request,
                _ => request.lease(LEASE),
            };
            let acquired = tokio::time::timeout(limit, request.into_future()).await;
            let Ok(Ok(Some(guard))) = acquired else {
                tokio::time::sleep(ms(5)).await;
                continue;
            };
            run.read(&guard, stay).await;
            match roll(5) {
                0 => drop(guard),
                1 => drop(tokio::time::timeout(ms(roll(20)), guard.unlock()).await),
                2 | 3 => {
                    let upgrading = guard.upgrade().wait(ms(roll(200))).into_future();
                    match tokio::time::timeout(limit, upgrading).await {
                        Ok(Ok(writer)) => {
                            run.upgrades.fetch_add(1, Ordering::Relaxed);
                            run.write(&writer, stay).await;
                            drop(writer.unlock().await);
                        }
                        // The drop also releases the remaining read hold, if any.
                        outcome => drop(outcome),
                    }
                }
                // The outcome may be unknown.
                _ => drop(guard.unlock().await),
            }
        } else {
            let request = rw.write().try_lock().owner(&owner).wait(wait);
            let acquired = tokio::time::timeout(limit, request.into_future()).await;
            let Ok(Ok(Some(guard))) = acquired else {
                tokio::time::sleep(ms(5)).await;
                continue;
            };
            run.write(&guard, stay).await;
            match roll(4) {
                0 => drop(guard),
                1 => {
                    if let Ok(reader) = guard.downgrade().await {
                        run.read(&reader, stay).await;
                        drop(reader.unlock().await);
                    }
                }
                _ => drop(guard.unlock().await),
            }
        }
    }
}

const LASTS: Duration = Duration::from_secs(6);
/// The holder is notified when the lock is lost.
const LEASE: Duration = Duration::from_millis(1_500);
