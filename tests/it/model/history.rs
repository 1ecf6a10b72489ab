//! A history of the times in which guards were valid, and a check that no two overlap for one lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockdog::{Client, Guard, Owner};

use crate::hand_over::transfers;
use crate::support::RedisServer;

/// One holder's time: from the return of its acquire up to its unlock or its deadline.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Interval {
    lock: usize,
    who: String,
    from: Duration,
    until: Duration,
}

/// Every two neighbours in time that overlap. O(n log n). A guard whose lease was over when its task looked at it
/// was valid at no moment.
fn overlaps(history: &[Interval]) -> Vec<(Interval, Interval)> {
    let mut by_lock: BTreeMap<usize, Vec<&Interval>> = BTreeMap::new();
    for interval in history.iter().filter(|it| it.from < it.until) {
        by_lock.entry(interval.lock).or_default().push(interval);
    }
    let mut found = Vec::new();
    for intervals in by_lock.values_mut() {
        intervals.sort_by_key(|interval| interval.from);
        let mut longest: Option<&Interval> = None;
        for interval in intervals {
            if let Some(before) = longest
                && interval.from < before.until
            {
                found.push((before.clone(), interval.clone()));
            }
            if longest.is_none_or(|before| before.until < interval.until) {
                longest = Some(interval);
            }
        }
    }
    found
}

#[derive(Clone)]
struct Recorder {
    start: Instant,
    history: Arc<Mutex<Vec<Interval>>>,
}

impl Recorder {
    /// Holds the lock for `hold`, and records until when the guard was valid. `from` is the return of
    /// the acquire. The guard reports how long it is valid.
    async fn hold(&self, lock: usize, who: &str, guard: Guard, hold: Duration) {
        let from = self.start.elapsed();
        // The time is read first, so the deadline may be too early but never too late.
        let deadline = from + guard.remaining();
        tokio::time::sleep(hold).await;
        let now = self.start.elapsed();
        // A renewed guard outlasts its first deadline; a lost one does not.
        let until = if guard.is_valid() {
            now
        } else {
            deadline.min(now)
        };
        self.history.lock().unwrap().push(Interval {
            lock,
            who: who.to_owned(),
            from,
            until,
        });
        // The lock may be lost by now.
        let _ = guard.unlock().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_of_one_lock_never_overlap_in_time() {
    let server = RedisServer::start().await;
    let recorder = Recorder {
        start: Instant::now(),
        history: Arc::default(),
    };
    let mut tasks = Vec::new();
    for c in 0..2 {
        let builder = Client::builder().url(server.url());
        let client = builder
            .watchdog_lease(Duration::from_secs(5))
            .build()
            .await
            .unwrap();
        for t in 0..4 {
            let (client, recorder) = (client.clone(), recorder.clone());
            tasks.push(tokio::spawn(async move {
                let owner = Owner::new();
                for round in 0..ROUNDS {
                    let lock = (t + round) % LOCKS;
                    let request = client.lock(format!("history:{lock}")).lock().owner(&owner);
                    let fixed = Duration::from_millis(40 + 20 * t as u64);
                    // Each third holder overstays its lease, each other one is watched.
                    let (request, hold) = match round % 3 {
                        0 => (request.lease(fixed), fixed * 2),
                        _ => (request, Duration::from_millis(3)),
                    };
                    if let Ok(guard) = request.await {
                        let who = format!("client {c} task {t} round {round}");
                        recorder.hold(lock, &who, guard, hold).await;
                    }
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let history = recorder.history.lock().unwrap().clone();
    // On a busy machine the calls with a short lease end with a timeout.
    let rounds = 8 * ROUNDS;
    assert!(history.len() > rounds / 4, "only {} holds", history.len());
    assert_eq!(overlaps(&history), []);
    let redis = server.redis().await;
    let handed = transfers(&redis).await;
    println!("{} holds, {handed} hand-overs", history.len());
    assert!(handed > rounds as u64 / 80, "only {handed} hand-overs");
    redis.assert_clean().await;
}

#[test]
fn a_forged_history_with_two_concurrent_holders_is_rejected() {
    let interval = |lock, from, until| Interval {
        lock,
        who: format!("{from}"),
        from: Duration::from_millis(from),
        until: Duration::from_millis(until),
    };
    let honest = [
        interval(0, 0, 10),
        interval(0, 10, 20),
        interval(1, 5, 15),
        interval(0, 25, 30),
    ];
    assert_eq!(overlaps(&honest), []);
    // The second holder begins within the long interval, and another interval begins between the two in
    // the list.
    let forged = [
        interval(0, 0, 100),
        interval(0, 200, 210),
        interval(0, 99, 101),
    ];
    assert_eq!(overlaps(&forged), [(forged[0].clone(), forged[2].clone())]);
}

const LOCKS: usize = 3;
const ROUNDS: usize = 24;
