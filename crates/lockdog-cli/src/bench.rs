//! `lockdog bench`: what a lock costs on the user's server, beside the round trip alone.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use lockdog::{Client, Lock, Result, Uuid};
use serde_json::{Value, json};

use crate::args::Bench;
use crate::connect::{Settings, try_out};
use crate::duration;
use crate::failed::{Failed, YES};
use crate::output::Output;
use crate::run::{Signals, number};

pub(crate) async fn bench(
    args: &Bench,
    settings: &Settings,
    output: Output,
) -> std::result::Result<u8, Failed> {
    if !DURATIONS.contains(&args.duration) {
        return Err(Failed::usage("--duration is from 100ms to 1m"));
    }
    if settings.is_quorum() {
        return Err(Failed::new("it measures one server; give one --url"));
    }
    let builder = settings.builders().remove(0);
    try_out(builder.clone()).await?;
    if !args.yes && !settings.is_local() {
        return Err(Failed::new(format_args!(
            "it loads the server for {}, and other clients may use that server; --yes measures it anyway",
            duration::shown(args.duration)
        )));
    }
    let mut signals = Signals::of_command()?;
    // The second one is the other client of the wake-ups.
    let building = async { tokio::try_join!(builder.clone().build(), builder.clone().build()) };
    let (client, other) = tokio::select! {
        clients = building => clients?,
        signal = signals.ending() => return Err(Failed::signalled(number(signal))),
    };
    let ended = tokio::select! {
        ended = measure(args, &client, &other, output) => ended.map_err(Failed::from),
        signal = signals.ending() => Err(Failed::signalled(number(signal))),
    };
    // Whatever is still held is released here.
    tokio::join!(client.shutdown_within(END), other.shutdown_within(END));
    ended.map(|()| YES)
}

/// Shows each row as soon as it is measured. No lock is held then, because the output ends the process if no
/// program reads it.
async fn measure(args: &Bench, client: &Client, other: &Client, output: Output) -> Result<()> {
    let prefix = format!("{}{}", args.lock_prefix, Uuid::new_v4());
    let lock = |of: &Client, number: usize| of.lock(format!("{prefix}:{number}")).exclusive();
    // Scripts are loaded, and connections opened, before anything is measured.
    for client in [client, other] {
        lock(client, 0).lock().await?.unlock().await?;
    }
    let share = args.duration / ROWS;
    if !output.json {
        output.line(HEADER);
    }

    let began = Instant::now();
    let trips = round_trips(&lock(client, 0), began + share).await?;
    let trip = Row::new("round trip", 1, trips);
    trip.per_second(began).show(&trip, output);
    for tasks in TASKS {
        let began = Instant::now();
        let each = (0..tasks).map(|number| pairs(lock(client, number), began + share));
        let times = each.collect::<FuturesUnordered<_>>().try_concat().await?;
        let row = Row::new("lock and unlock", tasks, times);
        row.per_second(began).show(&trip, output);
    }
    let pause = PAUSE + 4 * trip.p50;
    for (measure, second) in [("hand-over", client), ("wake-up", other)] {
        let locks = [client, second].map(|client| lock(client, 0));
        let times = waits(&locks, pause, Instant::now() + share).await?;
        Row::new(measure, 2, times).show(&trip, output);
    }
    Ok(())
}

/// The way to the server and back without a lock. It is EXISTS, because PING may ask another node of a
/// cluster than the one that has the key.
async fn round_trips(lock: &Lock, end: Instant) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    while times.is_empty() || Instant::now() < end {
        let began = Instant::now();
        lock.is_locked().await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// Acquires and releases a lock that no other owner wants.
async fn pairs(lock: Lock, end: Instant) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    while times.is_empty() || Instant::now() < end {
        let began = Instant::now();
        lock.lock().await?.unlock().await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// From one owner's unlock to the grant of the other one, which waits since the beginning of the pause.
async fn waits(locks: &[Lock; 2], pause: Duration, end: Instant) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let mut guard = locks[1].lock().await?;
    for lock in locks.iter().cycle() {
        let release = async {
            tokio::time::sleep(pause).await;
            let began = Instant::now();
            guard.unlock().await.map(|_| began)
        };
        let acquire = async { lock.lock().await.map(|guard| (guard, Instant::now())) };
        let (began, (granted, ended)) = tokio::try_join!(release, acquire)?;
        guard = granted;
        times.push(ended.saturating_duration_since(began));
        if Instant::now() >= end {
            break;
        }
    }
    guard.unlock().await?;
    Ok(times)
}

struct Row {
    measure: &'static str,
    tasks: usize,
    count: usize,
    p50: Duration,
    p99: Duration,
    max: Duration,
    per_second: Option<u128>,
}

impl Row {
    /// There is at least one time.
    fn new(measure: &'static str, tasks: usize, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let count = times.len();
        Self {
            measure,
            tasks,
            count,
            p50: times[count / 2],
            p99: times[count * 99 / 100],
            max: times[count - 1],
            per_second: None,
        }
    }

    fn per_second(&self, began: Instant) -> Self {
        let per_second = self.count as u128 * 1_000_000_000 / began.elapsed().as_nanos();
        Self {
            per_second: Some(per_second),
            ..*self
        }
    }

    fn show(&self, trip: &Self, output: Output) {
        let ratio = self.p50.as_secs_f64() / trip.p50.as_secs_f64();
        if output.json {
            output.object(self.object(ratio));
            return;
        }
        let [p50, p99, max] = [self.p50, self.p99, self.max].map(|it| it.as_secs_f64() * 1_000.0);
        let per_second = self
            .per_second
            .map_or_else(|| "-".to_owned(), |it| it.to_string());
        output.line(format_args!(
            "{:<15} {:>5} {p50:>9.3} {p99:>9.3} {max:>9.3} {ratio:>11.1} {per_second:>10}",
            self.measure, self.tasks
        ));
    }

    fn object(&self, ratio: f64) -> Value {
        json!({
            "measure": self.measure, "tasks": self.tasks, "count": self.count,
            "p50_us": self.p50.as_micros(), "p99_us": self.p99.as_micros(), "max_us": self.max.as_micros(),
            "round_trips": (ratio * 100.0).round() / 100.0, "per_second": self.per_second,
        })
    }
}

const HEADER: &str = "MEASURE         TASKS    P50 ms    P99 ms    MAX ms ROUND TRIPS PER SECOND";
const DURATIONS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
/// How long a server that does not answer keeps the command from its end. What it has ends with its lease.
const END: Duration = Duration::from_secs(5);
const TASKS: [usize; 3] = [1, 16, 64];
/// Each has the same share of the time.
const ROWS: u32 = 6;
/// A waiter listens after its attempt, its subscription and another attempt.
const PAUSE: Duration = Duration::from_millis(1);
