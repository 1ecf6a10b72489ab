//! What a round trip costs, by one task with nothing else under way: the scale of the other figures.
//!
//! `rtt` is PING after PING; `idle` a PING after a pause, as the command of a waiter that is woken;
//! `serial` one small script after the other.

use std::time::{Duration, Instant};

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use serde_json::{Map, Value};

use crate::Result;
use crate::drive::bare_scripts::evaluate;
use crate::drive::raw::{connect, load};
use crate::drive::stage::{Stage, Stopwatch};
use crate::drive::tally::Tally;
use crate::drive::wake::until_it_waits;
use crate::protocol::{Event, Request};

pub(crate) async fn measure(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    let url = request.urls.first().ok_or("a URL is missing")?;
    let mut connection = connect(url).await?;
    let command = match request.workload.as_str() {
        "serial" => {
            let digest: String = load(SCRIPT).query_async(&mut connection).await?;
            let mut command = evaluate(&digest, 1);
            command.arg(&request.name).arg("owner");
            command
        }
        _ => redis::cmd("PING"),
    };
    let paused = request.workload == "idle";
    // On a worker of the runtime, as the owners of the other workloads.
    let task = Repeat {
        connection,
        command,
        paused,
    };
    let (task, _) = tokio::spawn(task.repeat(request.warmup_s)).await??;
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    let (_, tally) = tokio::spawn(task.repeat(request.seconds)).await??;
    Ok(tally.figures(&watch))
}

struct Repeat {
    connection: MultiplexedConnection,
    command: Cmd,
    paused: bool,
}

impl Repeat {
    async fn repeat(mut self, seconds: f64) -> Result<(Self, Tally)> {
        let mut tally = Tally::for_samples((seconds * 100_000.0) as usize);
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        loop {
            if self.paused {
                tokio::time::sleep(until_it_waits(tally.pairs)).await;
            }
            let began = Instant::now();
            if began >= end {
                return Ok((self, tally));
            }
            let _: redis::Value = self.command.query_async(&mut self.connection).await?;
            tally.sample(began.elapsed());
            tally.pairs += 1;
        }
    }
}

/// One call, as small as a script that looks at a lock can be.
const SCRIPT: &str = "return redis.call('hexists', KEYS[1], ARGV[1])";
