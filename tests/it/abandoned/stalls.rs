//! The times at which this machine was too busy for time limits to be meaningful.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::support::Redis;

/// Records each time at which a task of the runtime ran late, or a server answered late.
pub(super) struct Stalls {
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    /// The start of the current round.
    began: Instant,
    /// When each round ended, and how late.
    late: Vec<(Instant, Duration)>,
}

impl Stalls {
    /// Records until the value is dropped.
    pub(super) fn start(views: Vec<Redis>) -> Self {
        let seen = Arc::new(Mutex::new(Seen {
            began: Instant::now(),
            late: Vec::new(),
        }));
        let record = Arc::downgrade(&seen);
        tokio::spawn(async move {
            while let Some(seen) = record.upgrade() {
                let before = Instant::now();
                locked(&seen).began = before;
                drop(seen);
                join_all(views.iter().map(|view| view.cmd(&["PING"]))).await;
                sleep(PAUSE).await;
                let late = before.elapsed().saturating_sub(PAUSE);
                let Some(seen) = record.upgrade() else { return };
                locked(&seen).late.push((Instant::now(), late));
            }
        });
        Self { seen }
    }

    /// The longest stall since then, including one that still lasts.
    pub(super) fn longest(&self, since: Instant) -> Duration {
        let seen = locked(&self.seen);
        let ended = seen.late.iter().filter(|(at, _)| *at >= since);
        let ended = ended.map(|(_, late)| *late).max().unwrap_or_default();
        ended.max(seen.began.elapsed().saturating_sub(PAUSE))
    }

    /// Waits until there was no stall of this length for a second, at most half a minute.
    pub(super) async fn calm(&self, stall: Duration) {
        let began = Instant::now();
        loop {
            let second = Instant::now();
            sleep(Duration::from_secs(1)).await;
            if self.longest(second) < stall || began.elapsed() >= Duration::from_secs(30) {
                return;
            }
        }
    }
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

const PAUSE: Duration = Duration::from_millis(10);
