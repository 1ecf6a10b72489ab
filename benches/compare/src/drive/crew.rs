//! Owners that acquire and unlock in a loop: W1, W2, W3, W6, W7, W8, W9, W11, W14, W16, W18.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::Result;
use crate::drive::library::Library;
use crate::drive::stage::{Stage, Stopwatch};
use crate::drive::tally::{Latencies, Tally};
use crate::protocol::{Event, Request};

pub(crate) async fn measure<L: Library>(
    request: &Request,
    stage: &mut Stage,
) -> Result<Map<String, Value>> {
    let work = Work::of(&request.workload);
    let clients = match work {
        Work::Shared => request.clients.max(1),
        _ => 1,
    };
    let crew = Crew::<L>::hire(request, work, clients).await?;
    crew.work(request.warmup_s).await?;
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    let tallies = crew.work(request.seconds).await?;
    let (all_done, cpu) = (watch.seconds(), watch.cpu_seconds());

    let (tallies, writers) = crew.split(tallies);
    let mut pairs: u64 = tallies.iter().map(|t| t.pairs).sum();
    let mut late: u64 = tallies.iter().map(|t| t.late_pairs).sum();
    let mut seconds = request.seconds;
    if work == Work::Quorum {
        // A pair may take longer than the window, so its end is the window's.
        (pairs, late, seconds) = (pairs + late, 0, all_done);
    }
    late += writers.iter().map(|t| t.late_pairs).sum::<u64>();
    let mut figures = Latencies::of(&tallies).figures();
    figures.insert("seconds".to_owned(), json!(seconds));
    figures.insert("pairs".to_owned(), json!(pairs));
    figures.insert("late_pairs".to_owned(), json!(late));
    figures.insert("cpu_s".to_owned(), json!(cpu));
    if work == Work::Shared {
        let done: Vec<u64> = tallies.iter().map(|t| t.pairs).collect();
        let by_client: Vec<u64> = done
            .chunks(request.owners)
            .map(|c| c.iter().sum())
            .collect();
        shares(&mut figures, ["min_share", "max_share"], &done);
        shares(
            &mut figures,
            ["min_client_share", "max_client_share"],
            &by_client,
        );
    }
    if work == Work::Quorum {
        let failures: u64 = tallies.iter().map(|t| t.failures).sum();
        figures.insert("failures".to_owned(), json!(failures));
    }
    if !writers.is_empty() {
        let writes: u64 = writers.iter().map(|t| t.pairs).sum();
        figures.insert("writes".to_owned(), json!(writes));
        for (name, value) in Latencies::of(&writers).figures() {
            figures.insert(format!("write_{name}"), value);
        }
    }
    crew.leave().await;
    Ok(figures)
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Work {
    /// Each owner has a lock of its own.
    Own,
    /// All want the same lock.
    Shared,
    /// As `Own`; an acquire may fail.
    Quorum,
    /// Each holds its lock all the time and takes it again.
    Again,
}

impl Work {
    fn of(workload: &str) -> Self {
        match workload {
            "W2" | "W3" | "W8a" | "W8b" | "W9a" | "W9b" | "W9c" | "W11a" | "W11b" | "W16" => {
                Self::Shared
            }
            "W6" => Self::Quorum,
            "W7" | "W7-local" => Self::Again,
            _ => Self::Own,
        }
    }
}

/// Clients, and a lock for each owner, those of a client side by side, and its writer's after them.
struct Crew<L: Library> {
    work: Work,
    /// Of each client.
    owners: usize,
    /// Of each client: none or one.
    writers: usize,
    clients: Vec<L>,
    locks: Vec<Arc<L::Lock>>,
}

impl<L: Library> Crew<L> {
    async fn hire(request: &Request, work: Work, clients: usize) -> Result<Self> {
        let mut crew = Self {
            work,
            owners: request.owners,
            writers: usize::from(matches!(request.workload.as_str(), "W9b" | "W9c")),
            clients: Vec::new(),
            locks: Vec::new(),
        };
        let names = names(request);
        for _ in 0..clients {
            let client = L::connect(request).await?;
            for name in names.iter().cycle().take(request.owners) {
                crew.locks.push(Arc::new(client.lock(name)));
            }
            for _ in 0..crew.writers {
                crew.locks.push(Arc::new(client.write_lock(&request.name)));
            }
            crew.clients.push(client);
        }
        Ok(crew)
    }

    /// Every owner is a task; ends when each has finished the pair that it began.
    async fn work(&self, seconds: f64) -> Result<Vec<Tally>> {
        let room = (seconds * MOST_PAIRS_A_SECOND) as usize / self.locks.len();
        let rooms: Vec<Tally> = self
            .locks
            .iter()
            .map(|_| Tally::for_samples(room))
            .collect();
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let mut tasks = JoinSet::new();
        for (place, (lock, tally)) in self.locks.iter().zip(rooms).enumerate() {
            let (lock, work) = (lock.clone(), self.work);
            tasks.spawn(async move { (place, toil::<L>(&lock, work, end, tally).await) });
        }
        let mut done = tasks.join_all().await;
        done.sort_by_key(|(place, _)| *place);
        done.into_iter().map(|(_, tally)| tally).collect()
    }

    /// The tallies of the owners, and those of the writers.
    fn split(&self, tallies: Vec<Tally>) -> (Vec<Tally>, Vec<Tally>) {
        let (mut owners, mut writers) = (Vec::new(), Vec::new());
        for (place, tally) in tallies.into_iter().enumerate() {
            match place % (self.owners + self.writers) {
                within if within < self.owners => owners.push(tally),
                _ => writers.push(tally),
            }
        }
        (owners, writers)
    }

    async fn leave(self) {
        drop(self.locks);
        for client in self.clients {
            client.close().await;
        }
    }
}

async fn toil<L: Library>(
    lock: &L::Lock,
    work: Work,
    end: Instant,
    mut tally: Tally,
) -> Result<Tally> {
    let outer = match work {
        Work::Again => Some(L::acquire(lock).await?),
        _ => None,
    };
    let mut begun = Instant::now();
    while begun < end {
        let held = match L::acquire(lock).await {
            Ok(held) => held,
            Err(_) if work == Work::Quorum => {
                tally.failures += 1;
                tokio::task::yield_now().await;
                begun = Instant::now();
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let waited = match work {
            Work::Shared => Some(begun.elapsed()),
            _ => None,
        };
        L::unlock(held).await?;
        let now = Instant::now();
        tally.sample(waited.unwrap_or_else(|| now - begun));
        if now < end {
            tally.pairs += 1;
        } else {
            tally.late_pairs += 1;
        }
        begun = now;
    }
    if let Some(held) = outer {
        L::unlock(held).await?;
    }
    Ok(tally)
}

/// Of the locks of a cell.
pub(crate) fn names(request: &Request) -> Vec<String> {
    match Work::of(&request.workload) {
        Work::Shared => vec![request.name.clone()],
        _ if request.api.as_deref() == Some("other-shape") => (0..request.owners)
            .map(|owner| {
                let rest = "n".repeat(LENGTHS[owner % LENGTHS.len()]);
                format!("{}:{owner}:{rest}", request.name)
            })
            .collect(),
        _ => (0..request.owners)
            .map(|owner| format!("{}:{owner}", request.name))
            .collect(),
    }
}

/// The smallest and the largest part, as multiples of an even one.
fn shares(figures: &mut Map<String, Value>, names: [&str; 2], parts: &[u64]) {
    let even = parts.iter().sum::<u64>() as f64 / parts.len() as f64;
    let ends = [parts.iter().min(), parts.iter().max()];
    for (name, part) in names.into_iter().zip(ends) {
        let share = part.map(|part| *part as f64 / even.max(1.0));
        figures.insert(name.to_owned(), json!(share));
    }
}

/// More than any library reaches here: the memory of the samples is allocated for this number.
const MOST_PAIRS_A_SECOND: f64 = 250_000.0;

/// Of what follows the usual name in names of another shape, in bytes.
const LENGTHS: [usize; 4] = [200, 40, 500, 100];

/// Of each semaphore.
pub(crate) const PERMITS: u32 = 4;
