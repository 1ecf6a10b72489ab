//! The talk with the runner, and the moments between which a cell is measured.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use crate::Result;
use crate::protocol::{Answer, Event, Go, Request};

/// Standard input and output.
pub(crate) struct Stage {
    lines: Lines<BufReader<Stdin>>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            lines: BufReader::new(tokio::io::stdin()).lines(),
        }
    }

    /// The next cell; none at the end of input.
    pub(crate) async fn next(&mut self) -> Result<Option<Request>> {
        let line = self.lines.next_line().await?;
        Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
    }

    /// Says so and waits for the runner's word, as it looks at the servers' counters in between.
    pub(crate) async fn pause(&mut self, cell: u64, event: Event) -> Result<()> {
        self.say(cell, event, Map::new())?;
        let line = self.lines.next_line().await?;
        let go: Go = serde_json::from_str(&line.ok_or("the runner has gone")?)?;
        if go.cell == cell && go.go {
            Ok(())
        } else {
            Err(format!("the runner speaks of cell {}, not {cell}", go.cell).into())
        }
    }

    pub(crate) fn result(&self, cell: u64, figures: Map<String, Value>) -> Result<()> {
        self.say(cell, Event::Result, figures)
    }

    fn say(&self, cell: u64, event: Event, figures: Map<String, Value>) -> Result<()> {
        let answer = Answer {
            cell,
            event,
            figures,
        };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        out.write_all(&line)?;
        Ok(out.flush()?)
    }
}

/// What a stretch of work took, in time and in this process' CPU time.
pub(crate) struct Stopwatch {
    began: Instant,
    cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self {
            began: Instant::now(),
            cpu: cpu(),
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub(crate) fn cpu_seconds(&self) -> f64 {
        (cpu() - self.cpu).as_secs_f64()
    }
}

/// User and system time of this process, all threads.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}
