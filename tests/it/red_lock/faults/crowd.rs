//! Owners of several sets of clients that contend for one lock all the time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use lockdog::{Guard, Owner, RedLock};
use tokio::task::JoinSet;

use super::LEASE;
use crate::red_lock::{SOON, ms};
use crate::support::{Cell, eventually};

/// Each of them reads a cell, sleeps and writes it, whenever it gets the lock.
pub(super) struct Crowd {
    run: Arc<Run>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Run {
    cell: Cell,
    over: AtomicBool,
    visits: AtomicU64,
    /// The number of writes by the holder beside the crowd.
    written_beside: AtomicU64,
    /// When one of them first got the lock.
    first_granted: OnceLock<Instant>,
    /// The largest token that any client got.
    largest_token: AtomicU64,
    tokens: Mutex<BTreeSet<u64>>,
}

impl Crowd {
    /// Two owners for each lock.
    pub(super) fn start(locks: &[RedLock]) -> Self {
        let run = Arc::new(Run::default());
        let mut tasks = JoinSet::new();
        for lock in locks {
            for _ in 0..2 {
                tasks.spawn(contend(lock.clone(), run.clone()));
            }
        }
        Self { run, tasks }
    }

    /// The number of completed visits.
    pub(super) fn visits(&self) -> u64 {
        self.run.visits.load(Ordering::Relaxed)
    }

    /// When one of them first got the lock.
    pub(super) fn first_granted(&self) -> Option<Instant> {
        self.run.first_granted.get().copied()
    }

    /// For a holder outside the crowd that works on the same cell.
    pub(super) fn beside(&self) -> Beside {
        Beside(self.run.clone())
    }

    /// Waits for this number of further visits.
    pub(super) async fn await_visits(&self, more: u64) {
        let enough = self.visits() + more;
        let what = format!("{more} more get the lock");
        eventually(SOON * 2, &what, async || self.visits() >= enough).await;
    }

    /// Ends the crowd. Checks that no task hung or panicked and that no two visits overlapped.
    pub(super) async fn end(mut self) {
        self.stop().await;
        let visits = self.run.visits.load(Ordering::Relaxed);
        let beside = self.run.written_beside.load(Ordering::Relaxed);
        self.run.cell.assert_exclusive((visits + beside) as i64);
    }

    /// Ends a crowd whose visits may overlap. Checks that no task hung or panicked and that each token
    /// was larger than all tokens known when its acquire began.
    pub(super) async fn end_of_tokens(mut self) {
        self.stop().await;
        let tokens = self.run.tokens.lock().unwrap().len();
        assert!(tokens > 0, "they had no tokens");
    }

    async fn stop(&mut self) {
        self.run.over.store(true, Ordering::Relaxed);
        let ended = async {
            while let Some(task) = self.tasks.join_next().await {
                task.expect("no task panics");
            }
        };
        let ended = tokio::time::timeout(SOON * 2, ended).await;
        ended.expect("no task hangs");
    }
}

/// A holder beside a crowd, at work on the crowd's cell.
pub(super) struct Beside(Arc<Run>);

impl Beside {
    /// Reads the cell, sleeps, and writes it if the lock is still valid.
    pub(super) async fn work(&self, is_valid: impl Fn() -> bool) {
        if self.0.cell.bump_while(STAY, is_valid).await {
            self.0.written_beside.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn written(&self) -> u64 {
        self.0.written_beside.load(Ordering::Relaxed)
    }
}

async fn contend(lock: RedLock, run: Arc<Run>) {
    let mut round = 0;
    while !run.over.load(Ordering::Relaxed) {
        round += 1;
        let request = lock.try_lock().owner(&Owner::new()).wait(ms(500));
        let request = if round % 2 == 0 {
            request.lease(LEASE)
        } else {
            request
        };
        let before = run.largest_token.load(Ordering::SeqCst);
        let Ok(Some(guard)) = request.await else {
            tokio::time::sleep(ms(5)).await;
            continue;
        };
        run.first_granted.get_or_init(Instant::now);
        if let Some(token) = guard.token() {
            assert!(token > before, "token {token} after {before}");
            let is_new = run.tokens.lock().unwrap().insert(token);
            assert!(is_new, "token {token} twice");
            run.largest_token.fetch_max(token, Ordering::SeqCst);
        }
        visit(&guard, &run).await;
        if round % 3 == 0 {
            drop(guard);
        } else {
            // The outcome may be unknown.
            let _ = guard.unlock().await;
        }
    }
}

/// Visits only with enough validity left, so that each overlap is a defect.
async fn visit(guard: &Guard, run: &Run) {
    if guard.remaining() < ENOUGH {
        return;
    }
    tokio::select! {
        // Cancelled before its write, the visit changes nothing.
        biased;
        _ = guard.lost() => {}
        () = run.cell.bump(STAY) => {
            run.visits.fetch_add(1, Ordering::Relaxed);
        }
    }
}

const STAY: Duration = Duration::from_millis(3);
const ENOUGH: Duration = Duration::from_millis(500);
