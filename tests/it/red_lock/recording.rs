//! The recorded calls of real `RedissonRedLock`s on three servers (`tests/golden/red_lock.json`), made
//! by our RedLock: the same answers, locks, TTLs and messages on each server. [`DIFFERENCES`] lists the
//! intended differences, and [`LEFT_OUT`] the steps that are not replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use lockdog::{Client, Error, Guard, Lock, Owner, RedLock};
use serde_json::Value;

use crate::support::prelude::SOON;
use crate::support::redis::Redis;
use crate::support::tap::Messages;
use crate::support::{RedisServer, eventually, until_ok};

macro_rules! recorded {
    ($($scenario:ident)*) => {
        $(
            #[tokio::test]
            async fn $scenario() {
                replay(stringify!($scenario)).await;
            }
        )*

        const REPLAYED: &[&str] = &[$(stringify!($scenario)),*];
    };
}

recorded! {
    lock_unlock s1_held_by_other s2_held_by_other s3_held_by_other two_held_by_others
    quorum_then_failure lost_after_acquire server_down
}

/// One intended difference. Each id is a row of the table in `docs/protocol.md`, which has the reasons.
struct Difference {
    id: &'static str,
    scenario: &'static str,
    step: u64,
    /// A part of the recorded text, and what is seen instead.
    theirs: &'static str,
    ours: &'static str,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        id: "all-servers-asked",
        scenario: "quorum_then_failure",
        step: 2,
        theirs: "s1 a A:1 30000",
        ours: "s1 a A:1 30000, s1 b A:1 30000",
    },
    Difference {
        id: "all-servers-asked",
        scenario: "quorum_then_failure",
        step: 3,
        theirs: "s1 {a} 0",
        ours: "s1 {a} 0, s1 {b} 0",
    },
    Difference {
        id: "lost-quorum-is-reported",
        scenario: "lost_after_acquire",
        step: 4,
        theirs: "answer void",
        ours: "answer lost",
    },
];

/// (scenario, step, reason)
const LEFT_OUT: &[(&str, u64, &str)] = &[(
    "server_down",
    4,
    "it calls a MultiLock, whose errors for a server that is down are tested in multi_lock::faults",
)];

#[test]
fn every_recorded_scenario_is_replayed() {
    let recorded: Vec<String> = scenarios().iter().map(|it| text(&it["scenario"])).collect();
    assert_eq!(recorded, REPLAYED);
}

#[test]
fn what_is_left_out_is_recorded_and_calls_another_lock() {
    let mut others = Vec::new();
    for scenario in scenarios() {
        for step in list(&scenario["steps"]) {
            if text(&step["call"]).starts_with("multiLock") {
                others.push((text(&scenario["scenario"]), step["step"].clone()));
            }
        }
    }
    for (scenario, step, reason) in LEFT_OUT {
        println!("not replayed: {scenario} {step}: {reason}");
        let listed = ((*scenario).to_owned(), Value::from(*step));
        assert!(others.contains(&listed), "{scenario} {step}");
    }
}

#[test]
fn each_difference_is_documented() {
    let known = DIFFERENCES.iter().map(|it| it.id);
    crate::recorded::assert_documented("differences of the red lock", known);
}

async fn replay(name: &str) {
    let scenarios = scenarios();
    let scenario = scenarios.iter().find(|it| it["scenario"] == name);
    let mut stage = Stage::new(name).await;
    let mut differed = 0;
    for step in list(&scenario.expect("it is recorded")["steps"]) {
        let call = text(&step["call"]);
        let mut left_out = LEFT_OUT.iter();
        if left_out.any(|(scenario, number, _)| *scenario == name && step["step"] == *number) {
            continue;
        }
        println!("{name} {}: {} {call}", step["step"], text(&step["who"]));
        let answer = stage.perform(step, &call).await;
        let mut expected = recorded(step);
        for known in DIFFERENCES {
            if known.scenario == name && step["step"] == known.step {
                let changed = expected.replace(known.theirs, known.ours);
                let Difference { step, theirs, .. } = known;
                assert_ne!(expected, changed, "step {step} has no {theirs:?}");
                expected = changed;
                differed += 1;
            }
        }
        stage.assert_is(&answer, &expected).await;
    }
    let known = DIFFERENCES.iter().filter(|known| known.scenario == name);
    assert_eq!(differed, known.count());
}

/// What a step came to, in one text: the answer, the messages and the keys.
fn recorded(step: &Value) -> String {
    let answer = match &step["returns"] {
        Value::Bool(answer) => answer.to_string(),
        Value::String(answer) => answer.clone(),
        _ => "none".to_owned(),
    };
    let messages = list(&step["published"]).iter().map(|message| {
        let (server, channel) = (text(&message[0]), text(&message[1]));
        message_text(&server, &channel, &text(&message[2]))
    });
    let mut keys = Vec::new();
    for (server, held) in step["keys"].as_object().expect("keys by server") {
        for key in list(held) {
            let content = key["content"].as_object().expect("a hash");
            let (field, count) = content.iter().next().expect("one field");
            // Client and thread 1 are A's, the others B's.
            let holder = if field.ends_with("<t1>") { "A" } else { "B" };
            let ttl = text(&key["ttl"]);
            let base = ttl.trim_start_matches('≈').split('-').next();
            let (name, count) = (text(&key["key"]), text(count));
            let base = base.expect("a TTL");
            keys.push(format!("{server} {name} {holder}:{count} {base}"));
        }
    }
    facts(&answer, messages.collect(), keys.into_iter().collect())
}

fn facts(answer: &str, messages: BTreeSet<String>, keys: BTreeSet<String>) -> String {
    let join = |texts: BTreeSet<String>| texts.into_iter().collect::<Vec<_>>().join(", ");
    format!(
        "answer {answer}; messages {}; keys {}",
        join(messages),
        join(keys)
    )
}

fn message_text(server: &str, channel: &str, message: &str) -> String {
    let name = channel.strip_prefix("redisson_lock__channel:");
    format!("{server} {} {message}", name.expect("a lock's channel"))
}

/// Three servers, our clients A and B of each, and the messages that arrived.
struct Stage {
    servers: Vec<RedisServer>,
    views: Vec<Option<Redis>>,
    messages: Vec<Messages>,
    /// How many messages of each server belong to the steps before.
    messages_before: Vec<usize>,
    a: Vec<Client>,
    b: Vec<Client>,
    red: RedLock,
    owner: Owner,
    holds: bool,
    guards: Vec<Guard>,
}

impl Stage {
    async fn new(scenario: &str) -> Self {
        let (mut servers, mut views, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            let server = RedisServer::start().await;
            let view = server.redis().await;
            messages.push(view.messages("*").await);
            views.push(Some(view));
            servers.push(server);
        }
        let (a, b) = (clients(&servers).await, clients(&servers).await);
        let members: Vec<Lock> = match scenario {
            "quorum_then_failure" => [(0, "a"), (1, "a"), (2, "a"), (1, "b"), (0, "b")]
                .map(|(server, name): (usize, _)| a[server].lock(name))
                .into(),
            _ => a.iter().map(|client| client.lock("orders")).collect(),
        };
        Self {
            servers,
            views,
            messages,
            messages_before: vec![0; 3],
            red: RedLock::new(members),
            a,
            b,
            owner: Owner::new(),
            holds: false,
            guards: Vec::new(),
        }
    }

    /// Performs the step and returns its answer.
    async fn perform(&mut self, step: &Value, call: &str) -> String {
        let who = text(&step["who"]);
        if let Some(server) = who.strip_prefix("redis-cli on ") {
            let server = number(server);
            let command: Vec<String> = list(&step["call"]).iter().map(text).collect();
            if command[0] == "SHUTDOWN" {
                self.views[server] = None;
                self.servers[server].kill();
            } else {
                let command: Vec<&str> = command.iter().map(String::as_str).collect();
                self.view(server).cmd(&command).await;
            }
            return "none".to_owned();
        }
        if let Some((lock, server)) = call.split_once(".lock(30, SECONDS) on ") {
            let name = lock.split('"').nth(1).unwrap_or("orders");
            let lock = self.b[number(server)].lock(name);
            let guard = lock.lock().lease(Duration::from_secs(30)).await;
            self.guards.push(guard.expect("it is free"));
            return "void".to_owned();
        }
        let acquires = !call.ends_with(".unlock()");
        if acquires && self.holds {
            // The recording leaves out steps that only clean up.
            self.unlock().await.expect("it is held");
            eventually(SOON, "all is released", async || {
                self.keys().await.is_empty()
            })
            .await;
            self.discard_messages().await;
        }
        match call {
            "redLock.lock()" => {
                let request = self.red.lock().owner(&self.owner);
                request.await.expect("it is free").forget();
                self.holds = true;
                "void".to_owned()
            }
            "redLock.unlock()" => match self.unlock().await {
                Ok(()) => "void".to_owned(),
                Err(error) if error.is_lost() => "lost".to_owned(),
                Err(error) => panic!("{error}"),
            },
            _ => self.try_lock(call).await.to_string(),
        }
    }

    /// `redLock.tryLock()`, or with wait, lease and unit.
    async fn try_lock(&mut self, call: &str) -> bool {
        let arguments = call.strip_prefix("redLock.tryLock(").expect("a call");
        let arguments = arguments.trim_end_matches(')');
        let mut request = self.red.try_lock().owner(&self.owner);
        if let [wait, lease, unit] = arguments.split(", ").collect::<Vec<_>>()[..] {
            let unit = match unit {
                "SECONDS" => 1_000,
                "MILLISECONDS" => 1,
                other => panic!("{other}"),
            };
            let time = |n: &str| Duration::from_millis(n.parse::<u64>().expect("a number") * unit);
            request = request.wait(time(wait)).lease(time(lease));
        } else {
            assert_eq!(arguments, "");
        }
        let guard = until_ok(SOON, async || request.clone().await).await;
        self.holds = guard.is_some();
        guard.map(Guard::forget).is_some()
    }

    async fn unlock(&mut self) -> Result<(), Error> {
        self.holds = false;
        self.red.unlock().owner(&self.owner).await.map(drop)
    }

    /// Waits until the state equals this one, because releases in the background are late.
    async fn assert_is(&mut self, answer: &str, expected: &str) {
        let deadline = Instant::now() + SOON;
        loop {
            let (messages, keys) = (self.published(), self.keys().await);
            let found = facts(answer, messages, keys);
            if found == expected {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "\n   found {found}\nexpected {expected}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.discard_messages().await;
    }

    /// Discards all messages up to now.
    async fn discard_messages(&mut self) {
        for (n, messages) in self.messages.iter().enumerate() {
            // A killed server sends no more messages.
            if let Some(view) = &self.views[n] {
                // What it sent before comes before.
                view.cmd(&["PUBLISH", MARK, "0"]).await;
                eventually(SOON, "all that was sent has come", async || {
                    messages.seen()[self.messages_before[n]..]
                        .iter()
                        .any(|(channel, _)| channel == MARK)
                })
                .await;
            }
            self.messages_before[n] = messages.seen().len();
        }
    }

    fn published(&self) -> BTreeSet<String> {
        let mut published = BTreeSet::new();
        for (n, messages) in self.messages.iter().enumerate() {
            for (channel, message) in messages.seen().into_iter().skip(self.messages_before[n]) {
                published.insert(message_text(&format!("s{}", n + 1), &channel, &message));
            }
        }
        published
    }

    async fn keys(&self) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        for (n, view) in self.views.iter().enumerate() {
            let Some(view) = view else { continue };
            for name in view.keys().await {
                let hash: BTreeMap<String, String> = view.hash(&name).await;
                let ttl = view.pttl(&name).await;
                let Some((field, count)) = hash.into_iter().next() else {
                    continue;
                };
                let is_a = |client: &Client| field.starts_with(&client.id().to_string());
                let holder = if self.a.iter().any(is_a) { "A" } else { "B" };
                // Every lease in the recording is one of these.
                let base = if ttl <= 9_000 { 9_000 } else { 30_000 };
                keys.insert(format!("s{} {name} {holder}:{count} {base}", n + 1));
            }
        }
        keys
    }

    fn view(&self, server: usize) -> &Redis {
        self.views[server].as_ref().expect("it runs")
    }
}

async fn clients(servers: &[RedisServer]) -> Vec<Client> {
    let mut clients = Vec::new();
    for server in servers {
        let client = Client::connect(server.url()).await;
        clients.push(client.expect("it runs"));
    }
    clients
}

/// `s1` is the first one.
fn number(server: &str) -> usize {
    let number = server.strip_prefix('s').expect("a server");
    number.parse::<usize>().expect("a number") - 1
}

fn scenarios() -> Vec<Value> {
    let recording: Value = serde_json::from_str(include_str!("../../golden/red_lock.json"))
        .expect("a recording is JSON");
    list(&recording["scenarios"]).to_vec()
}

/// A list, or what is not there.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// No lock's channel.
const MARK: &str = "mark";
