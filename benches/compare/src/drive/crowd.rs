//! W17: how late the calls of a crowd return whose waits end at the same moment. lockdog only.

use std::time::{Duration, Instant};

use lockdog::Client;
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use crate::Result;
use crate::drive::stage::{Stage, Stopwatch};
use crate::drive::tally::Tally;
use crate::protocol::{Event, Request};

pub(crate) async fn measure(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    let url = request.urls.first().ok_or("a URL is missing")?;
    let holder = Client::connect(url).await?;
    let waiters = request.locks * request.owners;
    let client = Client::builder()
        .url(url)
        .max_waiters(u32::try_from(waiters)?)
        .build()
        .await?;
    let names: Vec<String> = (0..request.locks)
        .map(|i| format!("{}:{i}", request.name))
        .collect();
    let mut held = Vec::with_capacity(names.len());
    for name in &names {
        let guard = holder.lock(name).try_lock().lease(HELD_FOR).await?;
        held.push(guard.ok_or("a new lock is not free")?);
    }
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    let until = Instant::now() + WAIT;
    let mut waiting = JoinSet::new();
    for _ in 0..request.owners {
        for name in &names {
            let lock = client.lock(name);
            waiting.spawn(async move {
                let wait = until.saturating_duration_since(Instant::now());
                let guard = lock.try_lock().wait(wait).await;
                (guard, Instant::now())
            });
        }
    }
    // The wait of a caller that begins late ends late.
    if Instant::now() > until {
        return Err("the waits did not begin in time".into());
    }
    // Otherwise each call that returns would wake this thread, which would take the cores from the other calls.
    tokio::time::sleep_until((until + MOST_HAVE_RETURNED).into()).await;
    let mut tally = Tally::for_samples(waiters);
    while let Some(returned) = waiting.join_next().await {
        let (guard, returned) = returned?;
        if guard?.is_some() {
            return Err("a lock that was held was granted".into());
        }
        // A caller that did not wait would make the figures too good.
        if returned + TIMER < until {
            return Err("a call returned before its time was over".into());
        }
        tally.sample(returned.saturating_duration_since(until));
        tally.pairs += 1;
    }
    let figures = tally.figures(&watch);
    for guard in held {
        guard.unlock().await?;
    }
    client.shutdown().await;
    holder.shutdown().await;
    Ok(figures)
}

/// Every caller has asked once before that.
const WAIT: Duration = Duration::from_secs(15);

/// How long after the end of the waits this program begins to collect what the calls returned.
const MOST_HAVE_RETURNED: Duration = Duration::from_secs(1);

const HELD_FOR: Duration = Duration::from_secs(120);

/// A wait is counted from the moment at which the call begins, which is a little later.
const TIMER: Duration = Duration::from_millis(2);
