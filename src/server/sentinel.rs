//! A master that sentinels watch over: who it is now, by what they say.
//!
//! A sentinel that was cut off still names the master of before. Each switch has a number of its own,
//! the sentinels' `config-epoch`, so the one with the largest number knows best, and what was heard
//! once is not forgotten for less.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{ConnectionInfo, FromRedisValue, RedisResult};
use tokio::sync::{Notify, watch};

use super::failure::Failure;
use super::identity::Identity;
use super::wire::{address_like, open};
use crate::clock::{Clock, Moment};

/// The sentinels of one master.
pub(crate) struct Sentinels {
    /// What they call the master.
    name: String,
    clients: Vec<redis::Client>,
    /// How to connect to the master, wherever it is.
    master: ConnectionInfo,
    clock: Clock,
    identity: Arc<Identity>,
    known: Mutex<Known>,
    /// The last time that the master was named, as a [`Moment`].
    named: AtomicU64,
    /// Somebody said that the master was switched, or has to know that it was not.
    news: Notify,
    /// Told each time that the sentinels were asked.
    looks: watch::Sender<()>,
    /// When calls last asked, and what that came to: one question is for all who want to know.
    asked: tokio::sync::Mutex<Option<(Moment, Result<(), Failure>)>>,
}

#[derive(Default)]
struct Known {
    master: Option<Named>,
    /// Who it is by what a majority says without a larger number, and since when it says so.
    doubted: Option<(Named, Moment)>,
}

/// A master, as one sentinel names it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Named {
    host: String,
    port: u16,
    epoch: u64,
}

impl Named {
    fn is_at(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

impl Sentinels {
    pub(super) fn new(
        name: String,
        clients: Vec<redis::Client>,
        master: ConnectionInfo,
        clock: Clock,
        identity: Arc<Identity>,
    ) -> Self {
        Self {
            name,
            clients,
            master,
            clock,
            identity,
            known: Mutex::default(),
            named: AtomicU64::new(0),
            news: Notify::new(),
            looks: watch::Sender::new(()),
            asked: tokio::sync::Mutex::default(),
        }
    }

    /// Asks who the master is: how to connect to it, and its reign.
    pub(super) async fn master(&self, limit: Duration) -> Result<(redis::Client, u64), Failure> {
        self.ask_for_all(limit).await?;
        let (Named { host, port, .. }, reign) = {
            let known = self.known.lock();
            let named = known.master.clone();
            let named =
                named.ok_or_else(|| Failure::Unsent("no sentinel names a master".into()))?;
            // A reign ends under this lock.
            (named, self.identity.reign())
        };
        let address = address_like(&self.master, host, port);
        let client = redis::Client::open(self.master.clone().set_addr(address));
        let client = client.map_err(|error| Failure::of_connect(&error))?;
        Ok((client, reign))
    }

    /// Asks, unless somebody else did since this was called, or just found nobody.
    async fn ask_for_all(&self, limit: Duration) -> Result<(), Failure> {
        let began = self.clock.now();
        let mut asked = self.asked.lock().await;
        if let Some((at, result)) = &*asked {
            let is_recent = began.since(*at) < BETWEEN_FAILURES;
            if *at >= began || (result.is_err() && is_recent) {
                return result.clone();
            }
        }
        let result = self.ask(&mut self.lines(), limit).await;
        *asked = Some((self.clock.now(), result.clone()));
        result
    }

    /// When a sentinel last named the master whose connections are in use.
    pub(super) fn named(&self) -> Moment {
        Moment(self.named.load(Ordering::Acquire))
    }

    /// Waits until one named the master that was asked after this moment.
    pub(super) async fn confirm(&self, since: Moment) {
        let mut looks = self.looks.subscribe();
        while self.named() < since {
            self.news.notify_one();
            // The sender is our own.
            let _ = looks.changed().await;
        }
    }

    /// Asks again and again, this often and whenever a sentinel says that it switched the master.
    /// Never ends.
    pub(super) async fn watch(&self, every: Duration) {
        let hearing: FuturesUnordered<_> = self.clients.iter().map(|it| self.hear(it)).collect();
        let asking = async {
            let mut lines = self.lines();
            loop {
                if let Err(failure) = self.ask(&mut lines, PATIENCE).await {
                    tracing::debug!(?failure, "no sentinel names the master");
                }
                self.looks.send_replace(());
                tokio::time::sleep(SHORTEST_PAUSE.min(every)).await;
                tokio::select! {
                    () = tokio::time::sleep(every) => {}
                    () = self.news.notified() => {}
                }
            }
        };
        tokio::join!(hearing.collect::<()>(), asking);
    }

    /// Hears one sentinel's news for as long as it lives. Never ends.
    async fn hear(&self, client: &redis::Client) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let hearing = async {
                let mut connection = client.get_async_pubsub().await?;
                connection.subscribe("+switch-master").await?;
                RedisResult::Ok(connection.into_on_message())
            };
            if let Ok(Ok(mut messages)) = tokio::time::timeout(PATIENCE, hearing).await {
                // What it said before is not heard again.
                self.news.notify_one();
                // One that is half open would be silent for ever.
                while let Ok(Some(message)) = tokio::time::timeout(A_MINUTE, messages.next()).await
                {
                    pause = SHORTEST_PAUSE;
                    let text: String = message.get_payload().unwrap_or_default();
                    if text.split(' ').next() == Some(&self.name) {
                        self.news.notify_one();
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let line = |client| Line { client, kept: None };
        self.clients.iter().map(line).collect()
    }

    /// Asks all, and takes in what more than half of them say, if these agree. One that answers late
    /// is not waited for once another one did.
    async fn ask(&self, lines: &mut [Line<'_>], limit: Duration) -> Result<(), Failure> {
        let began = self.clock.now();
        let enough = lines.len() / 2 + 1;
        let mut answers: FuturesUnordered<_> = lines
            .iter_mut()
            .map(|line| line.ask(&self.name, limit))
            .collect();
        let mut heard: Vec<Named> = Vec::new();
        let mut failed = Failure::Unsent("no sentinel answers".into());
        let mut patience = std::pin::pin!(tokio::time::sleep(limit));
        while heard.len() < enough || heard.iter().any(|named| *named != heard[0]) {
            tokio::select! {
                answer = answers.next() => match answer {
                    Some(Ok(named)) => {
                        if heard.is_empty() {
                            let soon = tokio::time::Instant::now() + GRACE.min(limit / 4);
                            patience.as_mut().reset(soon);
                        }
                        heard.push(named);
                    }
                    Some(Err(failure)) => failed = failure,
                    None => break,
                },
                () = &mut patience => break,
            }
        }
        drop(answers);
        self.take_in(&heard, began);
        if heard.is_empty() {
            return Err(failed);
        }
        Ok(())
    }

    fn take_in(&self, heard: &[Named], asked: Moment) {
        let mut known = self.known.lock();
        let Some(best) = heard.iter().max_by_key(|named| named.epoch) else {
            known.doubted = None;
            return;
        };
        let Some(master) = known.master.clone() else {
            known.master = Some(best.clone());
            self.named.fetch_max(asked.0, Ordering::AcqRel);
            return;
        };
        // The same server with a larger number was replaced meanwhile, and took over again.
        let is_newer = best.epoch > master.epoch;
        if is_newer || (*best != master && self.is_sure(&mut known, best, heard, asked)) {
            known.doubted = None;
            known.master = Some(best.clone());
            if is_newer || !best.is_at(&master) {
                self.identity.end_reign();
                tracing::warn!(
                    master = self.name,
                    host = best.host,
                    port = best.port,
                    from = master.epoch,
                    to = best.epoch,
                    "the sentinels switched the master"
                );
            }
        }
        let is_named = known.master.as_ref().is_some_and(|it| it.is_at(best));
        if is_named {
            self.named.fetch_max(asked.0, Ordering::AcqRel);
        }
    }

    /// Sentinels that were set up anew begin to count anew. So a smaller number is believed when a
    /// majority has said nothing else for long enough to hear of a switch.
    fn is_sure(&self, known: &mut Known, best: &Named, heard: &[Named], asked: Moment) -> bool {
        let agreeing = heard.iter().filter(|named| *named == best).count();
        if agreeing <= self.clients.len() / 2 {
            known.doubted = None;
            return false;
        }
        match &known.doubted {
            Some((named, since)) if named == best => asked.since(*since) > DOUBT,
            _ => {
                known.doubted = Some((best.clone(), asked));
                false
            }
        }
    }
}

/// One sentinel, and the connection to it that is kept for the next question.
struct Line<'a> {
    client: &'a redis::Client,
    kept: Option<MultiplexedConnection>,
}

impl Line<'_> {
    async fn ask(&mut self, name: &str, limit: Duration) -> Result<Named, Failure> {
        let answer = tokio::time::timeout(limit, self.ask_now(name, limit)).await;
        let answer = answer.unwrap_or(Err(Failure::Silent(limit)));
        answer.map_err(|failure| {
            self.kept = None;
            let address = self.client.get_connection_info().addr().to_string();
            tracing::debug!(server = address, ?failure, "a sentinel does not answer");
            // Nothing that it says is said by the server that keeps the locks.
            let why = match failure {
                Failure::Refused { code, message } => format!("{code} {message}"),
                Failure::Silent(_) => "no answer in time".to_owned(),
                Failure::Broken(cause) | Failure::Unsent(cause) => cause.to_string(),
            };
            Failure::Unsent(format!("sentinel {address}: {why}").into())
        })
    }

    async fn ask_now(&mut self, name: &str, limit: Duration) -> Result<Named, Failure> {
        let connection = match &self.kept {
            Some(kept) => kept.clone(),
            None => self.kept.insert(open(self.client, limit).await?).clone(),
        };
        // The number before the address: read the other way round, an old master could go with a new
        // number. A sentinel that is just switching names the new one in the second answer only.
        let (fields, address) = tokio::join!(
            question(&connection, "MASTER", name, limit),
            question(&connection, "GET-MASTER-ADDR-BY-NAME", name, limit)
        );
        let fields: HashMap<String, String> = fields?;
        let address: Option<(String, u16)> = address?;
        let epoch = fields.get("config-epoch").and_then(|it| it.parse().ok());
        match (address, epoch) {
            (Some((host, port)), Some(epoch)) => Ok(Named { host, port, epoch }),
            _ => Err(Failure::Unsent("it names no master".into())),
        }
    }
}

async fn question<T: FromRedisValue>(
    connection: &MultiplexedConnection,
    what: &str,
    name: &str,
    limit: Duration,
) -> Result<T, Failure> {
    let mut question = redis::cmd("SENTINEL");
    question.arg(what).arg(name);
    let answer = question.query_async(&mut connection.clone()).await;
    answer.map_err(|error| Failure::of_command(error, limit))
}

/// How long others are waited for after the first answer.
const GRACE: Duration = Duration::from_millis(100);
/// For how long a majority has to name another master, with no larger number, to be believed.
const DOUBT: Duration = Duration::from_secs(10);
/// After nobody answered, nobody is asked for this long.
const BETWEEN_FAILURES: Duration = Duration::from_millis(50);
const A_MINUTE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(3);
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
