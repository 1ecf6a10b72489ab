//! W13 without a library: lockdog's scripts, and for each client a subscription and the query that must follow it.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use redis::Cmd;
use redis::aio::{MultiplexedConnection, PubSub};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Result;
use crate::drive::bare_scripts::evaluate;
use crate::drive::latch::{UNTIL_ALL_WAIT, repeat};
use crate::drive::raw::{connect, load, open};
use crate::drive::stage::{Stage, Stopwatch};
use crate::protocol::{Event, Request};

pub(crate) async fn measure(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    let url = request.urls.first().ok_or("a URL is missing")?;
    let mut connection = connect(url).await?;
    let try_set = load(TRY_SET).query_async(&mut connection).await?;
    let count_down = load(COUNT_DOWN).query_async(&mut connection).await?;
    let mut clients = Vec::new();
    for _ in 0..request.clients {
        clients.push(Subscriber {
            connection: connect(url).await?,
            messages: open(url)?.get_async_pubsub().await?,
        });
    }
    let mut turns = Turns {
        connection,
        try_set,
        count_down,
        clients,
        waiters: request.owners,
        name: request.name.clone(),
        turn: 0,
    };
    repeat(request.warmup_s, async || turns.turn().await).await?;
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    let tally = repeat(request.seconds, async || turns.turn().await).await?;
    Ok(tally.figures(&watch))
}

struct Turns {
    /// Sets the counts and counts down.
    connection: MultiplexedConnection,
    /// The digests of the scripts.
    try_set: String,
    count_down: String,
    clients: Vec<Subscriber>,
    /// Of each client.
    waiters: usize,
    name: String,
    turn: usize,
}

impl Turns {
    /// From just before the count-down to zero until the last waiter knows of it.
    async fn turn(&mut self) -> Result<Duration> {
        let latch = Latch::new(format!("{}:{}", self.name, self.turn));
        self.turn += 1;
        self.call(&latch.try_set(&self.try_set)).await?;
        let mut waiting: JoinSet<Result<(Subscriber, Instant)>> = JoinSet::new();
        for mut client in self.clients.drain(..) {
            let (latch, waiters) = (latch.clone(), self.waiters);
            waiting.spawn(async move {
                let notified = client.wait(&latch, waiters).await?;
                Ok((client, notified))
            });
        }
        tokio::time::sleep(UNTIL_ALL_WAIT).await;
        let began = Instant::now();
        self.call(&latch.count_down(&self.count_down)).await?;
        let mut last = began;
        while let Some(done) = waiting.join_next().await {
            let (client, notified) = done??;
            // A waiter that did not wait would make the figure too good.
            if notified < began {
                return Err("a waiter was notified before the latch was at zero".into());
            }
            last = last.max(notified);
            self.clients.push(client);
        }
        Ok(last - began)
    }

    async fn call(&mut self, command: &Cmd) -> Result<()> {
        let answer: i64 = command.query_async(&mut self.connection).await?;
        if answer == 1 {
            Ok(())
        } else {
            Err(format!("the latch answers {answer}").into())
        }
    }
}

#[derive(Clone)]
struct Latch {
    name: String,
    channel: String,
}

impl Latch {
    fn new(name: String) -> Self {
        let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
        Self { name, channel }
    }

    fn try_set(&self, digest: &str) -> Cmd {
        let mut command = self.evaluate(digest, "set");
        command.arg((1, MARK_OF_SET_MS, &self.channel, "publish"));
        command
    }

    fn count_down(&self, digest: &str) -> Cmd {
        let mut command = self.evaluate(digest, "down");
        command.arg((MARK_OF_COUNT_DOWN_MS, &self.channel, "publish"));
        command
    }

    /// With the mark of a request of this name.
    fn evaluate(&self, digest: &str, request: &str) -> Cmd {
        let mark = format!("lockdog_ledger:{{{}}}:{request}", self.name);
        let mut command = evaluate(digest, 2);
        command.arg((&self.name, mark));
        command
    }
}

/// A client, whose waiters share its subscription.
struct Subscriber {
    connection: MultiplexedConnection,
    messages: PubSub,
}

impl Subscriber {
    /// Returns when the last of the waiters knew of the zero.
    async fn wait(&mut self, latch: &Latch, waiters: usize) -> Result<Instant> {
        let (notify, notified) = watch::channel(());
        let mut waiting = JoinSet::new();
        for _ in 0..waiters {
            let mut notified = notified.clone();
            waiting.spawn(async move { notified.changed().await.map(|()| Instant::now()) });
        }
        self.messages.subscribe(&latch.channel).await?;
        // The count may have become zero before the subscription began.
        let mut count = redis::cmd("GET");
        count.arg(&latch.name);
        let count: Option<i64> = count.query_async(&mut self.connection).await?;
        if count != Some(1) {
            return Err(format!("the count is {count:?} before the count-down").into());
        }
        let message = self.messages.on_message().next().await;
        let text: String = message.ok_or("the connection has ended")?.get_payload()?;
        if text != "0" {
            return Err(format!("the message is {text}").into());
        }
        notify.send_replace(());
        let mut last = Instant::now();
        while let Some(notified) = waiting.join_next().await {
            last = last.max(notified??);
        }
        self.messages.unsubscribe(&latch.channel).await?;
        Ok(last)
    }
}

/// The client's, with its default command timeout.
const MARK_OF_SET_MS: u32 = 12_000;
const MARK_OF_COUNT_DOWN_MS: u32 = 3_600_000;

const TRY_SET: &str = include_str!("../../../../lua/latch/try_set.lua");
const COUNT_DOWN: &str = include_str!("../../../../lua/latch/count_down.lua");
