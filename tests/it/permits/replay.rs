//! Redisson's recorded calls, made through our API. After every step the answer, the messages and the
//! keys equal those of the recording, or those in [`DIFFERENCES`].

mod calls;
mod differences;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockdog::{Client, PermitId};
use serde_json::Value;
use tokio::task::JoinHandle;

use calls::{Call, Ids};
use differences::{DIFFERENCES, Difference};

use super::{LONG, NEVER, SOON, ms};
use crate::support::tap::Messages;
use crate::support::{Redis, RedisServer};

/// One test for each recorded scenario.
macro_rules! replayed {
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

replayed! {
    permits lists expiry expiry_in_other_scripts waiter_woken waiter_wakes_by_expiry ttl_and_delete
}

#[test]
fn every_recorded_scenario_is_replayed() {
    let recording = recording();
    let names = list(&recording["scenarios"]).iter();
    let recorded: Vec<&str> = names.map(|it| text(&it["scenario"])).collect();
    assert_eq!(REPLAYED, recorded);
}

#[test]
fn the_differences_are_those_of_the_protocol_document() {
    let known = DIFFERENCES.iter().map(|it| it.id);
    crate::recorded::assert_documented("differences of the semaphore", known);
}

async fn replay(name: &str) {
    let recording = recording();
    let mut all = list(&recording["scenarios"]).iter();
    let scenario = all.find(|it| it["scenario"] == name).expect("recorded");
    let mut ours = Ours::start(name).await;
    let mut wrong = Vec::new();
    let mut used = 0;
    for step in list(&scenario["steps"]) {
        let number = step["step"].as_u64().expect("a number");
        ours.perform(step).await;
        let listed: Vec<&Difference> = DIFFERENCES
            .iter()
            .filter(|it| it.scenario == name && it.step == number)
            .collect();
        used += listed.len();
        let recorded = ours.recorded(step);
        let mut wanted = recorded.clone();
        for difference in &listed {
            wanted.insert(difference.aspect, difference.ours.to_owned());
            if recorded[difference.aspect] == difference.ours {
                wrong.push(format!(
                    "step {number} {}: no difference",
                    difference.aspect
                ));
            }
        }
        let seen = ours.settle_on(&wanted).await;
        for (aspect, wanted) in &wanted {
            let (recorded, seen) = (&recorded[aspect], &seen[aspect]);
            if seen != wanted {
                wrong.push(format!(
                    "step {number} {aspect}:\n  recorded {recorded}\n  expected {wanted}\n  seen     {seen}"
                ));
            }
        }
    }
    let known = DIFFERENCES.iter().filter(|it| it.scenario == name).count();
    assert_eq!(used, known, "a listed difference names no recorded step");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is compared after a step, as text.
type Facts = BTreeMap<&'static str, String>;

/// Our side: clients in place of the recorded clients, and the server's state after each step.
struct Ours {
    redis: Redis,
    server: RedisServer,
    clients: BTreeMap<String, Client>,
    /// The name of the semaphore.
    name: &'static str,
    messages: Messages,
    /// Messages of the steps before.
    messages_before: usize,
    ids: Ids,
    answer: String,
    waiting: Vec<(u64, JoinHandle<Vec<PermitId>>)>,
    came_back: Vec<(u64, Vec<PermitId>)>,
}

impl Ours {
    async fn start(scenario: &str) -> Self {
        let server = RedisServer::start().await;
        let redis = server.redis().await;
        Self {
            messages: redis.messages("redisson_sc:*").await,
            redis,
            server,
            clients: BTreeMap::new(),
            name: match scenario {
                "ttl_and_delete" => "{a}:seats",
                _ => "seats",
            },
            messages_before: 0,
            ids: Ids::default(),
            answer: String::new(),
            waiting: Vec::new(),
            came_back: Vec::new(),
        }
    }

    async fn perform(&mut self, step: &Value) {
        self.messages_before = self.messages.seen().len();
        self.answer = String::new();
        self.came_back.clear();
        let who = step["who"].as_str().unwrap_or_default();
        if who == "redis-cli" {
            let args: Vec<&str> = list(&step["call"]).iter().map(text).collect();
            self.redis.cmd(&args).await;
            return;
        }
        if who.is_empty() {
            let pause = text(&step["call"]).strip_prefix('(');
            let pause = pause.and_then(|it| it.split(" s pass").next()?.parse().ok());
            if let Some(seconds) = pause {
                tokio::time::sleep(Duration::from_secs_f64(seconds) * SLOWER).await;
            }
            return;
        }
        let name = who.split(' ').next().expect("a name").to_owned();
        if !self.clients.contains_key(&name) {
            // No timer of ours fires but that of an expiry.
            let client = Client::builder().url(self.server.url()).poll_cap(LONG);
            let client = client.build().await.expect("it runs");
            self.clients.insert(name.clone(), client);
        }
        let call = Call::parse(text(&step["call"]), self.name, &self.ids);
        if step["waits"] == true {
            let acquiring = tokio::spawn(call.acquire(self.clients[&name].clone()));
            let number = step["step"].as_u64().expect("a number");
            self.waiting.push((number, acquiring));
            tokio::time::sleep(ms(250)).await;
            self.answer = "waits".to_owned();
            return;
        }
        let made = call.make(&self.clients[&name], &self.redis).await;
        self.ids.note(&made.ids, recorded_ids(&step["returns"]));
        self.answer = made.answer;
    }

    /// Redisson's recorded result.
    fn recorded(&mut self, step: &Value) -> Facts {
        let came_back = step["came_back"].as_array().map_or(&[][..], Vec::as_slice);
        let came_back: Vec<String> = came_back
            .iter()
            .map(|call| call["call_of_step"].to_string())
            .collect();
        let published = step["published"].as_array().map_or(&[][..], Vec::as_slice);
        let published: Vec<String> = published
            .iter()
            .map(|message| format!("{} <- {}", text(&message[0]), text(&message[1])))
            .collect();
        let keys: Vec<String> = list(&step["keys"]).iter().map(recorded_key).collect();
        BTreeMap::from([
            ("answer", recorded_answer(step)),
            ("came back", came_back.join(", ")),
            ("published", published.join(", ")),
            ("keys", keys.join(", ")),
        ])
    }

    /// Queries the state until it equals the wanted one. Returns the last state if that takes long.
    async fn settle_on(&mut self, wanted: &Facts) -> Facts {
        let began = Instant::now();
        loop {
            tokio::time::sleep(ms(60)).await;
            let seen = self.look().await;
            if seen == *wanted || began.elapsed() > SOON {
                return seen;
            }
        }
    }

    async fn look(&mut self) -> Facts {
        let (done, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, task)| task.is_finished());
        self.waiting = waiting;
        let done: Vec<(u64, JoinHandle<Vec<PermitId>>)> = done;
        for (step, task) in done {
            let ids = task.await.expect("the call does not panic");
            self.came_back.push((step, ids));
        }
        let came_back: Vec<String> = self
            .came_back
            .iter()
            .map(|(it, _)| it.to_string())
            .collect();
        let published: Vec<String> = self.messages.seen()[self.messages_before..]
            .iter()
            .map(|(channel, message)| format!("{channel} <- {message}"))
            .collect();
        let mut keys = Vec::new();
        for key in self.redis.keys().await {
            if !key.starts_with("lockdog_") {
                keys.push(self.key(&key).await);
            }
        }
        // As recorded, the number comes first.
        keys.sort_by_key(|it| it.contains(" zset "));
        BTreeMap::from([
            ("answer", self.answer.clone()),
            ("came back", came_back.join(", ")),
            ("published", published.join(", ")),
            ("keys", keys.join(", ")),
        ])
    }

    async fn key(&self, key: &str) -> String {
        let ttl = match self.redis.pttl(key).await {
            -1 => "without ttl",
            _ => "with a ttl",
        };
        let kind: String = self.redis.ask(&["TYPE", key]).await;
        if kind != "zset" {
            let value: String = self.redis.ask(&["GET", key]).await;
            return format!("{key} {kind} {value} {ttl}");
        }
        let now: Vec<f64> = self.redis.ask(&["TIME"]).await;
        let now = now[0] * 1_000.0 + now[1] / 1_000.0;
        let found: Vec<(Vec<u8>, f64)> = self
            .redis
            .ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"])
            .await;
        let states = found.iter().map(|(_, ends)| match ends {
            ends if *ends >= NEVER => "endless",
            ends if *ends > now => "living",
            _ => "expired",
        });
        zset_text(key, states, ttl)
    }
}

/// How many of the permits in use are expired, living and endless.
fn zset_text<'a>(key: &str, states: impl Iterator<Item = &'a str>, ttl: &str) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for state in states {
        *counts.entry(state).or_default() += 1;
    }
    format!("{key} zset {counts:?} {ttl}")
}

fn recorded_key(key: &Value) -> String {
    let name = text(&key["key"]);
    let ttl = match text(&key["ttl"]) {
        "none" => "without ttl",
        _ => "with a ttl",
    };
    if key["type"] != "zset" {
        return format!(
            "{name} {} {} {ttl}",
            text(&key["type"]),
            text(&key["content"])
        );
    }
    let states = list(&key["content"])
        .iter()
        .map(|member| match text(&member[1]) {
            "922337203685477" => "endless",
            ends if ends.starts_with("<now-") => "expired",
            _ => "living",
        });
    zset_text(name, states, ttl)
}

/// Only the kind of an error can be compared, the number of ids, and of a lease that it is one.
fn recorded_answer(step: &Value) -> String {
    if step["waits"] == true {
        return "waits".to_owned();
    }
    if !step["throws"].is_null() {
        return "not in use".to_owned();
    }
    let is_acquire = step["call"]
        .as_str()
        .is_some_and(|it| it.contains("cquire("));
    match &step["returns"] {
        _ if is_acquire => format!("{} permits", recorded_ids(&step["returns"]).len()),
        Value::Null => String::new(),
        Value::String(returned) if returned == "void" => String::new(),
        Value::String(about) if about.starts_with("about") => "a lease".to_owned(),
        returned => returned.to_string(),
    }
}

fn recorded_ids(returned: &Value) -> Vec<&str> {
    match returned {
        Value::String(id) if id.starts_with('<') => vec![id],
        Value::Array(ids) => ids.iter().map(text).collect(),
        _ => Vec::new(),
    }
}

fn recording() -> Value {
    let file = include_str!("../../golden/permit_expirable_semaphore.json");
    serde_json::from_str(file).expect("a recording is JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("it is text")
}

/// The factor by which recorded times are longer here, because a machine may be busy.
const SLOWER: u32 = 10;
