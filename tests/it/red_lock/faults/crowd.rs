//! Owners of several sets of clients who want one lock all the time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    /// The largest token that anybody got.
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

    /// How many visits there were.
    pub(super) fn visits(&self) -> u64 {
        self.run.visits.load(Ordering::Relaxed)
    }

    /// Waits until so many more got in and out.
    pub(super) async fn await_visits(&self, more: u64) {
        let enough = self.visits() + more;
        let what = format!("{more} more get the lock");
        eventually(SOON * 2, &what, async || self.visits() >= enough).await;
    }

    /// Ends it: nobody hung, nobody panicked, and no two were inside together.
    pub(super) async fn end(mut self) {
        self.stop().await;
        let visits = self.run.visits.load(Ordering::Relaxed);
        self.run.cell.assert_exclusive(visits as i64);
    }

    /// Ends it where two may have been inside: nobody hung or panicked, and each token was larger than
    /// all that anybody had when it was asked for.
    pub(super) async fn end_of_tokens(mut self) {
        self.stop().await;
        let tokens = self.run.tokens.lock().unwrap().len();
        assert!(tokens > 0, "they had no tokens");
    }

    async fn stop(&mut self) {
        self.run.over.store(true, Ordering::Relaxed);
        let ended = async {
            while let Some(task) = self.tasks.join_next().await {
                task.expect("nobody panics");
            }
        };
        let ended = tokio::time::timeout(SOON * 2, ended).await;
        ended.expect("nobody hangs");
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
            // Its outcome may well be unknown.
            let _ = guard.unlock().await;
        }
    }
}

/// Goes in with time enough to come out again, so that whoever overlaps has no excuse.
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
