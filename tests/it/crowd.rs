//! Many tasks that contend for the same locks during a fault of the servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockdog::Client;
use tokio::task::JoinSet;

use crate::support::{Cell, eventually};

/// Fifty tasks of five clients, each with one of some locks.
pub(crate) struct Crowd {
    clients: Vec<Client>,
    turns: Vec<Arc<Turns>>,
    over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    doings: Doings,
    /// How long it takes on this machine, while nothing is wrong.
    usual: Duration,
}

/// What each task does, and since when.
#[derive(Clone, Debug)]
pub(crate) struct Doings(Arc<Vec<Mutex<(String, Instant)>>>);

/// How often one lock was acquired.
#[derive(Default)]
struct Turns {
    cell: Cell,
    taken: AtomicU64,
    lost: AtomicU64,
}

impl Crowd {
    pub(crate) async fn start(url: &str, locks: &[&str]) -> Self {
        let mut crowd = Self {
            clients: Vec::new(),
            turns: locks.iter().map(|_| Arc::default()).collect(),
            over: Arc::default(),
            tasks: JoinSet::new(),
            doings: Doings::none(TASKS),
            usual: Duration::ZERO,
        };
        for _ in 0..CLIENTS {
            let client = Client::builder().url(url).watchdog_lease(LEASE);
            crowd.clients.push(client.build().await.unwrap());
        }
        for task in 0..TASKS {
            let lock = task / CLIENTS % locks.len();
            let turns = crowd.turns[lock].clone();
            let lock = crowd.clients[task % CLIENTS].lock(locks[lock]);
            let over = crowd.over.clone();
            let doings = crowd.doings.clone();
            crowd.tasks.spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    doings.set(
                        task,
                        format!("client {} waits for {}", task % CLIENTS, lock.name()),
                    );
                    let guard = match lock.lock().await {
                        Ok(guard) => guard,
                        // The only error that a caller may get while there is no master.
                        Err(error) if error.is_retriable() => {
                            doings.set(task, format!("was told {error}"));
                            continue;
                        }
                        Err(error) => panic!("{error:?}"),
                    };
                    doings.set(
                        task,
                        format!("client {} has {}", task % CLIENTS, lock.name()),
                    );
                    if turns.cell.bump_while(PAUSE, || guard.is_valid()).await {
                        turns.taken.fetch_add(1, Ordering::SeqCst);
                    }
                    doings.set(
                        task,
                        format!("client {} unlocks {}", task % CLIENTS, lock.name()),
                    );
                    if guard.unlock().await.is_err() {
                        turns.lost.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        crowd.goes_on().await;
        crowd.usual = crowd.goes_on().await;
        crowd
    }

    /// As [`Crowd::goes_on`], within this time, or on a busy machine within what it usually takes and that
    /// time.
    pub(crate) async fn goes_on_within(&self, limit: Duration) {
        let took = self.goes_on().await;
        let most = limit + self.usual * 10;
        assert!(took <= most, "{took:?}, {most:?} are enough");
    }

    /// Waits until each lock was acquired many times again, long before the end of a lease. Returns how
    /// long that took.
    pub(crate) async fn goes_on(&self) -> Duration {
        let began = Instant::now();
        let taken = |turns: &Arc<Turns>| turns.taken.load(Ordering::SeqCst);
        let before: Vec<_> = self.turns.iter().map(taken).collect();
        let each = TASKS / self.turns.len();
        eventually(A_MINUTE, "the crowd continues", async || {
            let mut now = self.turns.iter().map(taken).zip(&before);
            now.all(|(now, before)| now >= before + each as u64)
        })
        .await;
        println!("goes on after {:?}", began.elapsed());
        began.elapsed()
    }

    /// Its clients, and what its tasks do: to be shown where a test fails.
    pub(crate) fn shown(&self) -> (Vec<Client>, Doings) {
        (self.clients.clone(), self.doings.clone())
    }

    /// No task hangs, and no owner lost an update.
    pub(crate) async fn end(mut self) {
        self.over.store(true, Ordering::SeqCst);
        let ended = async { while self.tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(A_MINUTE, ended)
            .await
            .expect("no task hangs");
        for turns in &self.turns {
            let taken = turns.taken.load(Ordering::SeqCst);
            assert_eq!(turns.cell.value(), taken as i64, "an update was lost");
            let lost = turns.lost.load(Ordering::SeqCst);
            println!("{taken} turns, {lost} of them not unlocked in order");
        }
        for client in &self.clients {
            client.shutdown().await;
        }
    }
}

impl Doings {
    fn none(tasks: usize) -> Self {
        let nothing = || Mutex::new(("has not begun".to_owned(), Instant::now()));
        Self(Arc::new((0..tasks).map(|_| nothing()).collect()))
    }

    fn set(&self, task: usize, what: String) {
        *self.0[task].lock().unwrap() = (what, Instant::now());
    }

    /// A line for each task.
    pub(crate) fn lines(&self) -> Vec<String> {
        let tasks = self.0.iter().enumerate().map(|(task, doing)| {
            let (what, since) = doing.lock().unwrap().clone();
            format!("task {task} for {:?}: {what}", since.elapsed())
        });
        tasks.collect()
    }
}

const CLIENTS: usize = 5;
const TASKS: usize = 50;
const PAUSE: Duration = Duration::from_millis(1);
/// Longer than a test waits for anything.
const LEASE: Duration = Duration::from_secs(180);
const A_MINUTE: Duration = Duration::from_secs(60);
