//! Lost, late and repeated commands, cut connections and cancelled calls, all at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockdog::{LeasedPermit, PermitSemaphore};
use tokio::task::JoinSet;

use super::{Fixture, NAME, SOON, ms};
use crate::nemesis::Nemesis;
use crate::support::{Dice, eventually, named};

/// PE1 to PE3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permit_is_lost_or_made_under_a_nemesis() {
    let test = Fixture::with_permits(TOTAL).await;
    let run = Arc::new(Run::default());
    let mut nemesis = Nemesis::start(&test.server, |it| it.watchdog_lease(LEASE)).await;
    let mut tasks = JoinSet::new();
    for client in &nemesis.clients {
        for _ in 0..4 {
            let seats = client.permit_semaphore(NAME);
            tasks.spawn(contend(seats, run.clone(), nemesis.dice.roll(u64::MAX) | 1));
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
    run.assert_never_too_many();
    // A permit or lock of a late acquire expires with its lease.
    let all = async || {
        let all = test.seats.try_acquire_many(TOTAL).await.unwrap();
        test.assert_total().await;
        all
    };
    eventually(SOON, "all permits come back", async || {
        all().await.is_some()
    })
    .await;
    test.eventually_free().await;
}

#[derive(Default)]
struct Run {
    is_over: AtomicBool,
    visits: AtomicU64,
    /// The times between which permits were valid, and how many.
    used: Mutex<Vec<(Instant, Instant, i64)>>,
}

impl Run {
    /// PE2: at no moment were more permits valid than there are.
    fn assert_never_too_many(&self) {
        let used = self.used.lock().unwrap();
        let mut changes: Vec<(Instant, i64)> = used
            .iter()
            .flat_map(|(from, to, permits)| [(*from, *permits), (*to, -permits)])
            .collect();
        changes.sort();
        let mut now = 0;
        for (_, change) in changes {
            now += change;
            assert!(now <= i64::from(TOTAL), "{now} permits were valid at once");
        }
    }
}

async fn contend(seats: PermitSemaphore, run: Arc<Run>, seed: u64) {
    let mut dice = Dice::of(seed);
    let mut roll = |faces| dice.roll(faces);
    while !run.is_over.load(Ordering::Relaxed) {
        let permits = 1 + roll(3) as u32;
        let request = seats.try_acquire_many(permits).wait(ms(100 + roll(900)));
        let request = match roll(2) {
            0 => request,
            _ => request.lease(LEASE),
        };
        let acquired = match roll(4) {
            // The caller gives up at any point.
            0 => {
                let limit = ms(roll(60));
                tokio::time::timeout(limit, request.into_future()).await
            }
            _ => Ok(request.await),
        };
        let Ok(Ok(Some(mut held))) = acquired else {
            tokio::time::sleep(ms(5)).await;
            continue;
        };
        run.visits.fetch_add(1, Ordering::Relaxed);
        visit(&held, &run, ms(roll(30))).await;
        if roll(3) == 0
            && let Some(part) = held.split(1)
        {
            drop(part);
            visit(&held, &run, ms(roll(20))).await;
        }
        match roll(4) {
            0 => drop(held),
            1 => drop(tokio::time::timeout(ms(roll(20)), held.release()).await),
            // The outcome may be unknown.
            _ => drop(held.release().await),
        }
    }
}

/// Records from when to when the holder considered the permits valid.
async fn visit(held: &LeasedPermit, run: &Run, stay: Duration) {
    let (from, until) = (Instant::now(), Instant::now() + stay);
    let mut to = None;
    loop {
        // The time is read before the check, so the permit was valid then.
        let now = Instant::now();
        if !held.is_valid() {
            break;
        }
        to = Some(now);
        if now >= until {
            break;
        }
        tokio::time::sleep(ms(1)).await;
    }
    if let Some(to) = to {
        let permits = i64::from(held.count());
        run.used.lock().unwrap().push((from, to, permits));
    }
}

const TOTAL: u32 = 5;
const LASTS: Duration = Duration::from_secs(8);
/// As in the nemesis of locks: an owner that loses a permit is notified.
const LEASE: Duration = Duration::from_millis(1_500);
