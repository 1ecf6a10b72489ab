//! W13: how soon the last of many waiters knows that a latch is at zero. lockdog only: `bare_latch` has no library, and
//! Redisson's is in Java.

use std::time::{Duration, Instant};

use lockdog::{Client, CountDownLatch};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use crate::Result;
use crate::drive::stage::{Stage, Stopwatch};
use crate::drive::tally::Tally;
use crate::protocol::{Event, Request};

pub(crate) async fn measure(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    let url = request.urls.first().ok_or("a URL is missing")?;
    let mut clients = Vec::new();
    for _ in 0..request.clients {
        clients.push(Client::connect(url).await?);
    }
    let mut turns = Turns {
        clients,
        waiters: request.owners,
        name: request.name.clone(),
        turn: 0,
    };
    repeat(request.warmup_s, async || turns.turn().await).await?;
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    let tally = repeat(request.seconds, async || turns.turn().await).await?;
    let figures = tally.figures(&watch);
    for client in turns.clients {
        client.shutdown().await;
    }
    Ok(figures)
}

struct Turns {
    clients: Vec<Client>,
    /// Of each client.
    waiters: usize,
    name: String,
    turn: usize,
}

impl Turns {
    /// From just before the count-down to zero until the last waiter knows of it.
    async fn turn(&mut self) -> Result<Duration> {
        let name = format!("{}:{}", self.name, self.turn);
        self.turn += 1;
        let latches: Vec<CountDownLatch> = self
            .clients
            .iter()
            .map(|client| client.count_down_latch(&name))
            .collect();
        let first = latches.first().ok_or("there is no client")?;
        if !first.try_set_count(1).await? {
            return Err(format!("{name} has a count already").into());
        }
        let mut waiting = JoinSet::new();
        for latch in &latches {
            for _ in 0..self.waiters {
                let latch = latch.clone();
                waiting.spawn(async move {
                    let notified = latch.wait_zero().await;
                    notified.map(|()| Instant::now())
                });
            }
        }
        tokio::time::sleep(UNTIL_ALL_WAIT).await;
        let began = Instant::now();
        first.count_down().await?;
        let mut last = began;
        while let Some(notified) = waiting.join_next().await {
            let notified = notified??;
            // A waiter that did not wait would make the figure too good.
            if notified < began {
                return Err("a waiter was notified before the latch was at zero".into());
            }
            last = last.max(notified);
        }
        Ok(last - began)
    }
}

/// At least one turn.
pub(crate) async fn repeat(
    seconds: f64,
    mut turn: impl AsyncFnMut() -> Result<Duration>,
) -> Result<Tally> {
    let mut tally = Tally::for_samples(1_000);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    loop {
        tally.sample(turn().await?);
        tally.pairs += 1;
        if Instant::now() >= end {
            return Ok(tally);
        }
    }
}

pub(crate) const UNTIL_ALL_WAIT: Duration = Duration::from_millis(100);
