//! W4: how soon a waiter of another client has a lock that is unlocked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::Result;
use crate::drive::library::Library;
use crate::drive::stage::{Stage, Stopwatch};
use crate::drive::tally::{Latencies, Tally};
use crate::protocol::{Event, Request};

pub(crate) async fn measure<L: Library>(
    request: &Request,
    stage: &mut Stage,
) -> Result<Map<String, Value>> {
    let holder = L::connect(request).await?;
    let waiter = L::connect(request).await?;
    let locks = [holder.lock(&request.name), waiter.lock(&request.name)].map(Arc::new);
    hand_over::<L>(&locks, request.warmup_s).await?;
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    let tally = hand_over::<L>(&locks, request.seconds).await?;
    let (seconds, cpu) = (watch.seconds(), watch.cpu_seconds());

    let pairs = tally.pairs;
    let latencies = Latencies::of(&[tally]);
    let mut figures = latencies.figures();
    figures.insert("seconds".to_owned(), json!(seconds));
    figures.insert("pairs".to_owned(), json!(pairs));
    figures.insert("cpu_s".to_owned(), json!(cpu));
    figures.insert(
        "samples_us".to_owned(),
        json!(latencies.spread(MOST_SAMPLES)),
    );
    drop(locks);
    holder.close().await;
    waiter.close().await;
    Ok(figures)
}

async fn hand_over<L: Library>(locks: &[Arc<L::Lock>; 2], seconds: f64) -> Result<Tally> {
    let [ours, theirs] = locks;
    let mut tally = Tally::for_samples((seconds * 1_000.0) as usize);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        let held = L::acquire(ours).await?;
        let lock = theirs.clone();
        let waiter = tokio::spawn(async move {
            let held = L::acquire(&lock).await;
            (Instant::now(), held)
        });
        tokio::time::sleep(until_it_waits(tally.pairs)).await;
        let began = Instant::now();
        L::unlock(held).await?;
        let (woken, held) = waiter.await?;
        L::unlock(held?).await?;
        tally.sample(woken - began);
        tally.pairs += 1;
    }
    Ok(tally)
}

/// Two to three milliseconds, never in step with anything.
pub(crate) fn until_it_waits(turn: u64) -> Duration {
    Duration::from_micros(2_000 + turn * 617 % 1_000)
}

const MOST_SAMPLES: usize = 2_000;
