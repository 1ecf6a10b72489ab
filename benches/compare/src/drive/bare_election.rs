//! W15 without a library: lockdog's scripts, and for each candidate a subscription to its channel. No timer runs, so
//! only a leader that resigns is followed by another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Cmd, Value as Answer};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use crate::Result;
use crate::drive::bare_scripts::evaluate;
use crate::drive::election::check_terms;
use crate::drive::raw::{connect, load, open};
use crate::drive::stage::{Stage, Stopwatch};
use crate::drive::tally::Tally;
use crate::drive::wake::until_it_waits;
use crate::protocol::{Event, Request};

pub(crate) async fn resigned(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    let url = request.urls.first().ok_or("a URL is missing")?;
    let digests = Arc::new(Digests::load(url).await?);
    let mut campaigning = JoinSet::new();
    for number in 0..request.clients {
        let candidate = Candidate {
            number,
            turn: 0,
            keys: keys(&request.name),
            digests: digests.clone(),
            connection: connect(url).await?,
            messages: open(url)?.get_async_pubsub().await?,
        };
        campaigning.spawn(candidate.campaign());
    }
    let mut candidates = Candidates { campaigning };
    let leader = candidates.next().await?;
    let (leader, _) = candidates.resign(leader, request.warmup_s).await?;
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    let (_leader, tally) = candidates.resign(leader, request.seconds).await?;
    Ok(tally.figures(&watch))
}

/// Candidates that campaign: all but the leader.
struct Candidates {
    campaigning: JoinSet<Result<Elected>>,
}

struct Elected {
    at: Instant,
    term: u64,
    candidate: Candidate,
}

impl Candidates {
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
            let began = Instant::now();
            leader.candidate.resign().await?;
            let next = self.next().await?;
            check_terms(leader.term, next.term)?;
            tally.sample(next.at.saturating_duration_since(began));
            tally.pairs += 1;
            self.campaigning.spawn(leader.candidate.campaign());
            leader = next;
        }
        Ok((leader, tally))
    }
}

struct Candidate {
    number: usize,
    /// Of its campaigns.
    turn: u64,
    keys: [String; 6],
    digests: Arc<Digests>,
    connection: MultiplexedConnection,
    messages: PubSub,
}

impl Candidate {
    async fn campaign(mut self) -> Result<Elected> {
        self.turn += 1;
        let channel = format!("{}:{}", channel(&self.keys[0]), self.field());
        self.messages.subscribe(&channel).await?;
        let mut term = self.query("enter").await?;
        while term.is_none() {
            let message = self.messages.on_message().next().await;
            message.ok_or("the connection has ended")?;
            term = self.query("look").await?;
        }
        let term = term.ok_or("no term was issued")?;
        self.proclaim(term).await?;
        let at = Instant::now();
        self.messages.unsubscribe(&channel).await?;
        Ok(Elected {
            at,
            term,
            candidate: self,
        })
    }

    /// The term, if this candidate leads.
    async fn query(&mut self, mode: &str) -> Result<Option<u64>> {
        let mut command = self.evaluate(&self.digests.acquire, 6);
        command
            .arg((self.field(), 1, LEASE_MS, FAIR_WAIT_MS, ABSENCE_MS))
            .arg((mode, channel(&self.keys[0]), "publish"));
        let answer: Answer = command.query_async(&mut self.connection).await?;
        match answer {
            Answer::BulkString(term) => Ok(Some(str::from_utf8(&term)?.parse()?)),
            Answer::Array(_) => Ok(None),
            other => Err(format!("a query is answered {other:?}").into()),
        }
    }

    async fn proclaim(&mut self, term: u64) -> Result<()> {
        let [hash, .., value, counter] = &self.keys;
        let mut command = evaluate(&self.digests.proclaim, 3);
        command
            .arg((hash, value, counter))
            .arg((self.field(), term, 1, "candidate", "publish"));
        self.done(&command).await
    }

    async fn resign(&mut self) -> Result<()> {
        let mut command = self.evaluate(&self.digests.unlock, 5);
        command
            .arg((self.field(), 0, channel(&self.keys[0]), "publish"))
            .arg((FAIR_WAIT_MS, 0));
        self.done(&command).await
    }

    async fn done(&mut self, command: &Cmd) -> Result<()> {
        let answer: Option<i64> = command.query_async(&mut self.connection).await?;
        if answer == Some(1) {
            Ok(())
        } else {
            Err(format!("the leader is answered {answer:?}").into())
        }
    }

    /// Each campaign has its own.
    fn field(&self) -> String {
        let Self { number, turn, .. } = self;
        format!("5e7a9f3c-26d1-4b8e-9c40-d1f6a83b2e75:{number}.{turn}")
    }

    /// With the first keys.
    fn evaluate(&self, digest: &str, keys: usize) -> Cmd {
        let mut command = evaluate(digest, keys);
        command.arg(&self.keys[..keys]);
        command
    }
}

/// Those of the scripts.
struct Digests {
    acquire: String,
    unlock: String,
    proclaim: String,
}

impl Digests {
    async fn load(url: &str) -> Result<Self> {
        let mut connection = connect(url).await?;
        let acquire = load(&calling(FAIR, ACQUIRE));
        let unlock = load(&calling(END_FAIR, UNLOCK));
        Ok(Self {
            acquire: acquire.query_async(&mut connection).await?,
            unlock: unlock.query_async(&mut connection).await?,
            proclaim: load(PROCLAIM).query_async(&mut connection).await?,
        })
    }
}

/// As the client joins the scripts.
fn calling(fair: &str, script: &str) -> String {
    format!("local function fair()\n{fair}\nend\n{script}")
}

/// The hash, the queue, the places, the presence, the leader's value and the counter of the terms.
fn keys(name: &str) -> [String; 6] {
    [
        name.to_owned(),
        format!("redisson_lock_queue:{{{name}}}"),
        format!("redisson_lock_timeout:{{{name}}}"),
        format!("lockdog_fair:{{{name}}}"),
        format!("lockdog_leader:{{{name}}}"),
        format!("redisson_lock_token:{{{name}}}"),
    ]
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

const LEASE_MS: u32 = 30_000;
const FAIR_WAIT_MS: u32 = 300_000;
/// Longer than the cell: no candidate sends the queries that keep it present.
const ABSENCE_MS: u32 = 600_000;

const FAIR: &str = include_str!("../../../../lua/fair/acquire.lua");
const END_FAIR: &str = include_str!("../../../../lua/fair/unlock.lua");
const ACQUIRE: &str = include_str!("../../../../lua/election/acquire.lua");
const UNLOCK: &str = include_str!("../../../../lua/election/unlock.lua");
const PROCLAIM: &str = include_str!("../../../../lua/election/proclaim.lua");
