//! Shows whether a runtime's workers were starved.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Starts a ticker on the given runtime, which runs until the value is dropped.
pub(crate) fn heartbeat(runtime: &Handle) -> Heartbeat {
    let beats = Arc::new(Mutex::new(Beats {
        last: Instant::now(),
        largest_gap: Duration::ZERO,
    }));
    let ticker = Arc::clone(&beats);
    let task = runtime.spawn(async move {
        loop {
            ticker.lock().unwrap().beat();
            tokio::time::sleep(PERIOD).await;
        }
    });
    Heartbeat { beats, task }
}

#[derive(Debug)]
pub(crate) struct Heartbeat {
    beats: Arc<Mutex<Beats>>,
    task: JoinHandle<()>,
}

impl Heartbeat {
    /// The longest time without a tick, including the time since the last one, because a starved ticker
    /// cannot report.
    pub(crate) fn largest_gap(&self) -> Duration {
        let beats = self.beats.lock().unwrap();
        beats.largest_gap.max(beats.last.elapsed())
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Beats {
    last: Instant,
    largest_gap: Duration,
}

impl Beats {
    fn beat(&mut self) {
        self.largest_gap = self.largest_gap.max(self.last.elapsed());
        self.last = Instant::now();
    }
}

const PERIOD: Duration = Duration::from_millis(5);
