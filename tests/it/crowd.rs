//! Many tasks that contend for the same locks during a fault of the servers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockdog::{Client, Guard, LeasedPermit, Lock, PermitSemaphore, Result};
use tokio::task::JoinSet;

use crate::fixture::connected;
use crate::support::prelude::WITHIN_A_LEASE;
use crate::support::{Cell, Redis, eventually, until_ok};

/// What a crowd contends for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrowdKind {
    Plain,
    Fair,
    /// Every second task reads, and the others write.
    ReadWrite,
    /// A semaphore with one permit.
    Permit,
}

impl CrowdKind {
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Fair, Self::ReadWrite, Self::Permit];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fair => "fair",
            Self::ReadWrite => "read_write",
            Self::Permit => "permit",
        }
    }

    fn object(self, client: &Client, name: &str, task: usize) -> Object {
        match self {
            Self::Plain => Object::Lock(client.lock(name)),
            Self::Fair => Object::Lock(client.fair_lock(name)),
            Self::ReadWrite if task.is_multiple_of(2) => {
                Object::Reader(client.read_write_lock(name).read().into())
            }
            Self::ReadWrite => Object::Lock(client.read_write_lock(name).write().into()),
            Self::Permit => Object::Permit(client.permit_semaphore(name)),
        }
    }

    /// Whether no task holds it or waits for it, by the keys of its server.
    async fn is_free(self, redis: &Redis, name: &str) -> bool {
        let queue = format!("redisson_lock_queue:{{{name}}}");
        match self {
            Self::Plain | Self::ReadWrite => !redis.exists(name).await,
            Self::Fair => !redis.exists(name).await && !redis.exists(&queue).await,
            Self::Permit => redis.ask::<i64>(&["GET", name]).await == 1,
        }
    }
}

/// What one task acquires.
enum Object {
    Lock(Lock),
    Reader(Lock),
    Permit(PermitSemaphore),
}

impl Object {
    async fn acquire(&self) -> Result<Held> {
        match self {
            Self::Lock(lock) | Self::Reader(lock) => lock.lock().await.map(Held::Lock),
            Self::Permit(permit) => permit.acquire().await.map(Held::Permit),
        }
    }

    fn reads(&self) -> bool {
        matches!(self, Self::Reader(_))
    }
}

enum Held {
    Lock(Guard),
    Permit(LeasedPermit),
}

impl Held {
    fn is_valid(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_valid(),
            Self::Permit(permit) => permit.is_valid(),
        }
    }

    async fn release(self) -> Result<()> {
        match self {
            Self::Lock(guard) => guard.unlock().await.map(drop),
            Self::Permit(permit) => permit.release().await.map(drop),
        }
    }
}

/// Fifty tasks of five clients, each with one of some objects.
pub(crate) struct Crowd {
    clients: Vec<Client>,
    turns: Vec<Arc<Turns>>,
    over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    task_states: TaskStates,
    /// How long it takes on this machine, while nothing is wrong.
    usual: Duration,
}

/// What each task does, and since when.
#[derive(Clone, Debug)]
pub(crate) struct TaskStates(Arc<Vec<Mutex<(String, Instant)>>>);

/// How often one object was acquired.
#[derive(Default)]
struct Turns {
    cell: Cell,
    taken: AtomicU64,
    /// The turns of readers, which leave the cell as it is.
    read: AtomicU64,
    lost: AtomicU64,
}

impl Turns {
    /// The turns that changed the cell, and those of readers.
    fn counts(&self) -> [u64; 2] {
        [&self.taken, &self.read].map(|count| count.load(Ordering::SeqCst))
    }

    async fn visit(&self, held: &Held, reads: bool) {
        let is_valid = || held.is_valid();
        let (count, is_done) = match reads {
            true => (&self.read, self.cell.read_while(PAUSE, is_valid).await),
            false => (&self.taken, self.cell.bump_while(PAUSE, is_valid).await),
        };
        count.fetch_add(u64::from(is_done), Ordering::SeqCst);
    }
}

impl Crowd {
    pub(crate) async fn start(url: &str, locks: &[&str]) -> Self {
        let plain: Vec<_> = locks.iter().map(|name| (CrowdKind::Plain, *name)).collect();
        Self::of_kinds(url, &plain).await
    }

    pub(crate) async fn of_kinds(url: &str, objects: &[(CrowdKind, &str)]) -> Self {
        let mut crowd = Self {
            clients: Vec::new(),
            turns: objects.iter().map(|_| Arc::default()).collect(),
            over: Arc::default(),
            tasks: JoinSet::new(),
            task_states: TaskStates::none(TASKS),
            usual: Duration::ZERO,
        };
        for _ in 0..CLIENTS {
            let client = Client::builder().url(url).watchdog_lease(LEASE);
            crowd.clients.push(connected(client).await);
        }
        for (_, name) in objects
            .iter()
            .filter(|(kind, _)| *kind == CrowdKind::Permit)
        {
            let permit = crowd.clients[0].permit_semaphore(name);
            // An answer may be late, and then the number is there already.
            until_ok(WITHIN_A_LEASE, async || permit.set_permits(1).await).await;
        }
        for task in 0..TASKS {
            let number = task / CLIENTS % objects.len();
            let turns = crowd.turns[number].clone();
            let (kind, name) = objects[number];
            let object = kind.object(&crowd.clients[task % CLIENTS], name, task);
            let of = format!("of {name} ({kind:?}), client {}", task % CLIENTS);
            let over = crowd.over.clone();
            let task_states = crowd.task_states.clone();
            crowd.tasks.spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    task_states.set(task, format!("a waiter {of}"));
                    let held = match object.acquire().await {
                        Ok(held) => held,
                        // The only error that a caller may get while there is no master.
                        Err(error) if error.is_retriable() => {
                            task_states.set(task, format!("got the error {error}"));
                            continue;
                        }
                        Err(error) => panic!("{error:?}"),
                    };
                    task_states.set(task, format!("a holder {of}"));
                    turns.visit(&held, object.reads()).await;
                    task_states.set(task, format!("a holder that releases, {of}"));
                    if held.release().await.is_err() {
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
        let counts = || self.turns.iter().map(|turns| turns.counts());
        let before: Vec<_> = counts().collect();
        let each = (TASKS / self.turns.len()) as u64;
        eventually(A_MINUTE, "the crowd continues", async || {
            // Readers must not be all that continue.
            counts().zip(&before).all(|([taken, read], before)| {
                let taken = taken - before[0];
                taken >= each / 2 && taken + read - before[1] >= each
            })
        })
        .await;
        println!("goes on after {:?}", began.elapsed());
        began.elapsed()
    }

    /// Its clients, and what its tasks do: to be shown where a test fails.
    pub(crate) fn shown(&self) -> (Vec<Client>, TaskStates) {
        (self.clients.clone(), self.task_states.clone())
    }

    /// No task hangs, and no owner lost an update.
    pub(crate) async fn end(mut self) {
        self.over.store(true, Ordering::SeqCst);
        let ended = async { while self.tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(A_MINUTE, ended)
            .await
            .expect("no task hangs");
        for turns in &self.turns {
            let [taken, read] = turns.counts();
            assert_eq!(turns.cell.value(), taken as i64, "an update was lost");
            let lost = turns.lost.load(Ordering::SeqCst);
            println!("{taken} turns and {read} of readers, {lost} of them not unlocked in order");
        }
        for client in &self.clients {
            client.shutdown().await;
        }
    }
}

/// Waits until no task holds any of these objects or waits for it. `server_of` connects to the server of a name.
pub(crate) async fn await_released(
    objects: &[(CrowdKind, &str)],
    server_of: impl AsyncFn(&str) -> Redis,
) {
    for &(kind, name) in objects {
        eventually(WITHIN_A_LEASE, "all is released", async || {
            kind.is_free(&server_of(name).await, name).await
        })
        .await;
    }
}

impl TaskStates {
    fn none(tasks: usize) -> Self {
        let nothing = || Mutex::new(("has not begun".to_owned(), Instant::now()));
        Self(Arc::new((0..tasks).map(|_| nothing()).collect()))
    }

    fn set(&self, task: usize, what: String) {
        *self.0[task].lock().unwrap() = (what, Instant::now());
    }

    /// A line for each task.
    pub(crate) fn lines(&self) -> Vec<String> {
        let tasks = self.0.iter().enumerate().map(|(task, activity)| {
            let (what, since) = activity.lock().unwrap().clone();
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
