//! W8d: how long no waiter gets a fair lock after a client with many waiters dies. lockdog only.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::thread;
use std::time::{Duration, Instant};

use lockdog::{Client, Lock};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Result;
use crate::drive::process::{Process, until_input_ends};
use crate::drive::stage::{Stage, Stopwatch};
use crate::drive::tally::{Latencies, Tally};
use crate::protocol::{Event, Request};

pub(crate) async fn measure(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    let mut clients = Clients::start(request)?;
    clients.until_each_had_a_turn().await?;
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    let tally = clients.die(request.seconds).await?;
    let seconds = watch.seconds();

    let pairs = tally.pairs;
    let mut figures = Latencies::of(&[tally]).figures();
    figures.insert("seconds".to_owned(), json!(seconds));
    figures.insert("pairs".to_owned(), json!(pairs));
    Ok(figures)
}

/// The process of a client. It prints a line for each turn, and waits for the end of its input, in case
/// its parent ends first.
pub(crate) fn wait_in_line(url: &str, name: &str, lease_ms: &str, waiters: &str) -> Result<()> {
    let lease = Duration::from_millis(lease_ms.parse()?);
    let waiters: usize = waiters.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let done: Result<()> = runtime.block_on(async {
        let client = Client::builder().url(url).watchdog_lease(lease);
        let client = client.build().await?;
        let mut waiting = JoinSet::new();
        for _ in 0..waiters {
            let lock = client.fair_lock(name);
            waiting.spawn(async move { take_turns(&lock).await });
        }
        tokio::select! {
            failed = waiting.join_next() => failed.ok_or("there is no waiter")??,
            ended = until_input_ends() => ended,
        }
    });
    // A thread may still read the input.
    runtime.shutdown_background();
    done
}

async fn take_turns(lock: &Lock) -> Result<()> {
    loop {
        let held = lock.lock().await?;
        println!();
        tokio::time::sleep(TURN).await;
        held.unlock().await?;
    }
}

struct Clients {
    living: Vec<Process>,
    /// The number of the client that had a turn, and when.
    turns: UnboundedReceiver<(usize, Instant)>,
}

impl Clients {
    fn start(request: &Request) -> Result<Self> {
        let url = request.urls.first().ok_or("a URL is missing")?;
        let lease_ms = format!("{:.0}", request.lease_s * 1e3);
        let waiters = request.owners.to_string();
        let (sender, turns) = unbounded_channel();
        let mut living = Vec::with_capacity(request.clients);
        for number in 0..request.clients {
            let args = ["drive", "waiters", url, &request.name, &lease_ms, &waiters];
            let (client, output) = Process::start(&args)?;
            living.push(client);
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(output).lines() {
                    if line.is_err() || sender.send((number, Instant::now())).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { living, turns })
    }

    async fn until_each_had_a_turn(&mut self) -> Result<()> {
        let mut others: BTreeSet<usize> = (0..self.living.len()).collect();
        while !others.is_empty() {
            let turn = timeout(PATIENCE, self.turns.recv()).await;
            let turn = turn.map_err(|_| "no waiter gets the lock")?;
            let (number, _) = turn.ok_or("all clients have ended")?;
            others.remove(&number);
        }
        Ok(())
    }

    /// Kills one client each second in which the waiters have turns. A sample is the time from one turn to the
    /// next.
    ///
    /// While a dead waiter is first, no client is killed. Otherwise the next waiter in the queue may be one that has just
    /// died, and a sample would be the sum of several absences.
    async fn die(&mut self, seconds: f64) -> Result<Tally> {
        let mut tally = Tally::for_samples((seconds * MOST_TURNS_A_SECOND) as usize);
        let began = Instant::now();
        let end = began + Duration::from_secs_f64(seconds);
        let (mut last, mut death) = (began, began + BETWEEN_DEATHS);
        let mut deaths = 0;
        loop {
            let now = Instant::now();
            if now >= end {
                break;
            }
            if now >= death {
                let are_served = now.saturating_duration_since(last) < BETWEEN_TURNS;
                if are_served {
                    self.kill_one()?;
                    deaths += 1;
                }
                death += BETWEEN_DEATHS;
            }
            let rest = death.min(end).saturating_duration_since(now);
            match timeout(rest, self.turns.recv()).await {
                // One of the turns before the window.
                Ok(Some((_, at))) if at < last => {}
                Ok(Some((_, at))) => {
                    tally.sample(at - last);
                    tally.pairs += 1;
                    last = at;
                }
                Ok(None) => return Err("all clients have ended".into()),
                // A client is to die, or the time is over.
                Err(_) => {}
            }
        }
        // The time without a turn at the end may be the longest.
        tally.sample(end.saturating_duration_since(last));
        if deaths == 0 {
            return Err("no client died".into());
        }
        for client in &mut self.living {
            if client.has_ended()? {
                return Err("a client ended before it was killed".into());
            }
        }
        Ok(tally)
    }

    /// One of them stays.
    fn kill_one(&mut self) -> Result<()> {
        if self.living.len() < 2 {
            return Ok(());
        }
        self.living.pop().ok_or("no client is left")?.kill()
    }
}

/// How long a turn lasts.
const TURN: Duration = Duration::from_millis(1);

const BETWEEN_DEATHS: Duration = Duration::from_secs(1);

/// If a turn takes longer, a dead waiter is first, or the machine is busy.
const BETWEEN_TURNS: Duration = Duration::from_millis(100);

/// For the start of all processes, and a turn of each of them.
const PATIENCE: Duration = Duration::from_secs(30);

/// No more than one in each `TURN`.
const MOST_TURNS_A_SECOND: f64 = 1_000.0;
