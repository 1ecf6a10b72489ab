//! When this machine was too busy for a time limit to mean anything.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::support::Redis;

/// Records each time at which a task of the runtime ran late, or a server answered late.
pub(super) struct Stalls {
    seen: Arc<Mutex<Vec<(Instant, Duration)>>>,
}

impl Stalls {
    /// Records until the value is dropped.
    pub(super) fn start(views: Vec<Redis>) -> Self {
        let seen: Arc<Mutex<Vec<(Instant, Duration)>>> = Arc::default();
        let record = Arc::downgrade(&seen);
        tokio::spawn(async move {
            loop {
                let before = Instant::now();
                join_all(views.iter().map(|view| view.cmd(&["PING"]))).await;
                sleep(PAUSE).await;
                let late = before.elapsed().saturating_sub(PAUSE);
                let Some(seen) = record.upgrade() else { return };
                seen.lock().unwrap().push((Instant::now(), late));
            }
        });
        Self { seen }
    }

    /// The longest since then.
    pub(super) fn longest(&self, since: Instant) -> Duration {
        let seen = self.seen.lock().unwrap();
        let of_then = seen.iter().filter(|(at, _)| *at >= since);
        of_then.map(|(_, late)| *late).max().unwrap_or_default()
    }
}

const PAUSE: Duration = Duration::from_millis(10);
