//! W15: how soon the next candidate leads, after the leader has resigned or its process was killed. lockdog only:
//! `bare_election` has no library.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use lockdog::{Client, Election, Leadership, Owner};
use serde_json::{Map, Value};
use tokio::task::{JoinSet, spawn_blocking};

use crate::Result;
use crate::drive::process::{Process, until_input_ends};
use crate::drive::stage::{Stage, Stopwatch};
use crate::drive::tally::Tally;
use crate::drive::wake::until_it_waits;
use crate::protocol::{Event, Request};

pub(crate) async fn resigned(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    let clients = connect(request, request.clients).await?;
    let mut candidates = Candidates::new(&clients, &request.name);
    let leader = candidates.next().await?;
    let (leader, _) = candidates.resign(leader, request.warmup_s).await?;
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    let (leader, tally) = candidates.resign(leader, request.seconds).await?;
    let figures = tally.figures(&watch);
    drop((candidates, leader));
    shut_down(clients).await;
    Ok(figures)
}

/// The leader is a process of its own.
pub(crate) async fn killed(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    let clients = connect(request, request.clients.saturating_sub(1)).await?;
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    let mut tally = Tally::for_samples(1_000);
    let end = Instant::now() + Duration::from_secs_f64(request.seconds);
    loop {
        tally.sample(kill(request, &clients, tally.pairs).await?);
        tally.pairs += 1;
        if Instant::now() >= end {
            break;
        }
    }
    let figures = tally.figures(&watch);
    shut_down(clients).await;
    Ok(figures)
}

/// The process of the leader that is killed. It waits for the end of its input, in case its parent ends first.
pub(crate) fn lead(url: &str, name: &str, lease_ms: &str) -> Result<()> {
    let lease = Duration::from_millis(lease_ms.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = Client::builder().url(url).watchdog_lease(lease);
        let client = client.build().await?;
        let lead = client.election(name).campaign("process").await?;
        println!("{}", lead.term());
        until_input_ends().await?;
        lead.resign().await?;
        Ok(())
    })
}

/// Clients that all campaign, but for the one that leads.
struct Candidates {
    elections: Vec<Election>,
    campaigning: JoinSet<Result<Elected>>,
}

struct Elected {
    at: Instant,
    candidate: usize,
    lead: Leadership,
}

impl Candidates {
    fn new(clients: &[Client], name: &str) -> Self {
        let elections = clients.iter().map(|client| client.election(name));
        let mut candidates = Self {
            elections: elections.collect(),
            campaigning: JoinSet::new(),
        };
        for candidate in 0..clients.len() {
            candidates.campaign(candidate);
        }
        candidates
    }

    fn campaign(&mut self, candidate: usize) {
        let election = self.elections[candidate].clone();
        self.campaigning.spawn(async move {
            // Another task resigns.
            let owner = Owner::new();
            let lead = election.campaign("candidate").owner(&owner).await?;
            Ok(Elected {
                at: Instant::now(),
                candidate,
                lead,
            })
        });
    }

    async fn next(&mut self) -> Result<Elected> {
        let elected = self.campaigning.join_next().await;
        elected.ok_or("there is no candidate")??
    }

    /// Each leader resigns soon, and campaigns again once the next one leads.
    async fn resign(&mut self, mut leader: Elected, seconds: f64) -> Result<(Elected, Tally)> {
        let mut tally = Tally::for_samples(100_000);
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            tokio::time::sleep(until_it_waits(tally.pairs)).await;
            let term = leader.lead.term();
            let began = Instant::now();
            leader.lead.resign().await?;
            let next = self.next().await?;
            check_terms(term, next.lead.term())?;
            tally.sample(next.at.saturating_duration_since(began));
            tally.pairs += 1;
            self.campaign(leader.candidate);
            leader = next;
        }
        Ok((leader, tally))
    }
}

/// From just before the leader is killed until one of the others leads.
async fn kill(request: &Request, clients: &[Client], turn: u64) -> Result<Duration> {
    let url = request.urls.first().ok_or("a URL is missing")?;
    let name = format!("{}:{turn}", request.name);
    let lease_ms = format!("{:.0}", request.lease_s * 1e3);
    let (leader, output) = Process::start(&["drive", "leader", url, &name, &lease_ms])?;
    let line = spawn_blocking(|| {
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        read.map(|_| line)
    });
    let term: u64 = line.await??.trim().parse()?;

    let mut candidates = Candidates::new(clients, &name);
    // The leases differ in age.
    let queued = UNTIL_ALL_WAIT + until_it_waits(turn) * 100;
    tokio::time::sleep(queued).await;
    let began = Instant::now();
    leader.kill()?;
    let next = candidates.next().await?;
    if next.at < began {
        return Err("a candidate led before the leader was killed".into());
    }
    check_terms(term, next.lead.term())?;
    next.lead.resign().await?;
    Ok(next.at - began)
}

async fn connect(request: &Request, count: usize) -> Result<Vec<Client>> {
    let url = request.urls.first().ok_or("a URL is missing")?;
    let lease = Duration::from_secs_f64(request.lease_s);
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let client = Client::builder().url(url).watchdog_lease(lease);
        clients.push(client.build().await?);
    }
    Ok(clients)
}

async fn shut_down(clients: Vec<Client>) {
    for client in clients {
        client.shutdown().await;
    }
}

pub(crate) fn check_terms(before: u64, after: u64) -> Result<()> {
    if after > before {
        Ok(())
    } else {
        Err(format!("term {after} follows term {before}").into())
    }
}

const UNTIL_ALL_WAIT: Duration = Duration::from_millis(200);
