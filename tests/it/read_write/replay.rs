//! Redisson's recorded calls, made through our API. After every step the answer, the messages and the
//! keys equal those of the recording, or those in [`DIFFERENCES`].

mod calls;
mod differences;
mod keys;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockdog::{Client, Owner};
use serde_json::Value;
use tokio::task::JoinHandle;

use calls::Call;
use differences::{DIFFERENCES, Difference};
use keys::Key;

use super::{LONG, SOON, ms};
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
    two_readers read_reentry write_reentry downgrade write_then_read_unlocked_first upgrade_refused
    writer_waits_for_readers readers_wait_for_writer unlock_by_others
    leases_of_readers stale_reader_unlocks force_unlock leftover_hold_keys watchdog_readers
    read_unlock_shortens_writer renewal_shortens_other_readers watchdog_writer queries
}

#[test]
fn every_recorded_scenario_is_replayed() {
    let scenarios = scenarios();
    let recorded: Vec<&str> = scenarios.iter().map(|it| text(&it["scenario"])).collect();
    assert_eq!(REPLAYED, recorded);
}

#[test]
fn the_differences_are_those_of_the_protocol_document() {
    let known = DIFFERENCES.iter().map(|it| it.id);
    crate::recorded::assert_documented("differences of the read/write lock", known);
}

async fn replay(name: &str) {
    let scenarios = scenarios();
    let scenario = scenarios.iter().find(|it| it["scenario"] == name);
    let scenario = scenario.expect("recorded");
    let mut ours = Ours::start(name).await;
    let mut wrong = Vec::new();
    let mut used = 0;
    // A note between the steps has no number.
    let steps = list(&scenario["steps"]).iter();
    for step in steps.filter(|step| step["step"].is_number()) {
        let number = step["step"].as_u64().expect("a number");
        ours.perform(step).await;
        let listed: Vec<&Difference> = DIFFERENCES
            .iter()
            .filter(|it| it.scenario == name && it.step == number)
            .collect();
        used += listed.len();
        let recorded = recorded(step);
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
    watchdog: Duration,
    clients: BTreeMap<String, Client>,
    /// For the recorded threads.
    owners: BTreeMap<String, Owner>,
    messages: Messages,
    /// Messages of the steps before.
    messages_before: usize,
    answer: String,
    waiting: Vec<(u64, JoinHandle<String>)>,
    came_back: Vec<String>,
}

impl Ours {
    async fn start(scenario: &str) -> Self {
        let server = RedisServer::start().await;
        let redis = server.redis().await;
        let has_short_watchdog =
            scenario.starts_with("watchdog_") || scenario.starts_with("renewal_");
        Self {
            messages: redis.messages("redisson_rwlock:*").await,
            redis,
            server,
            watchdog: ms(if has_short_watchdog { 3_000 } else { 30_000 }) * SLOWER,
            clients: BTreeMap::new(),
            owners: BTreeMap::new(),
            messages_before: 0,
            answer: String::new(),
            waiting: Vec::new(),
            came_back: Vec::new(),
        }
    }

    async fn perform(&mut self, step: &Value) {
        self.messages_before = self.messages.seen().len();
        self.answer = String::new();
        self.came_back.clear();
        let Some((client, thread)) = step["who"].as_str().and_then(|who| who.split_once(' '))
        else {
            self.pass(text(&step["call"])).await;
            return;
        };
        if !self.clients.contains_key(client) {
            // No timer of ours fires but that of a lease or of the watchdog.
            let builder = Client::builder().url(self.server.url()).poll_cap(LONG);
            let built = builder.watchdog_lease(self.watchdog).build().await;
            self.clients
                .insert(client.to_owned(), built.expect("it runs"));
        }
        let owner = *self
            .owners
            .entry(thread.to_owned())
            .or_insert_with(Owner::new);
        let call = Call::parse(text(&step["call"]), owner);
        let (client, redis) = (self.clients[client].clone(), self.redis.clone());
        if step["waits"] == true {
            let number = step["step"].as_u64().expect("a number");
            let waiting = tokio::spawn(async move { call.make(&client, &redis).await });
            self.waiting.push((number, waiting));
            tokio::time::sleep(ms(250)).await;
            self.answer = "waits".to_owned();
            return;
        }
        self.answer = call.make(&client, &redis).await;
    }

    /// A pause, before which a client may end.
    async fn pass(&mut self, what: &str) {
        if what.contains("A is shut down") {
            self.clients["A"].shutdown().await;
        }
        let seconds = what.split(" s pass").next();
        let seconds = seconds.and_then(|it| it.rsplit(['(', ' ']).next()?.parse::<f64>().ok());
        if let Some(seconds) = seconds {
            tokio::time::sleep(Duration::from_secs_f64(seconds) * SLOWER).await;
        }
    }

    /// Queries the state until it equals the wanted one. Returns the last state if that takes long.
    async fn settle_on(&mut self, wanted: &Facts) -> Facts {
        let began = Instant::now();
        loop {
            tokio::time::sleep(ms(60)).await;
            let seen = self.look(wanted).await;
            if seen == *wanted || began.elapsed() > SOON {
                return seen;
            }
        }
    }

    async fn look(&mut self, wanted: &Facts) -> Facts {
        let waiting = std::mem::take(&mut self.waiting);
        for (step, task) in waiting {
            match task.is_finished() {
                true => {
                    let answer = task.await.expect("the call does not panic");
                    self.came_back.push(came_back(step, &answer));
                }
                false => self.waiting.push((step, task)),
            }
        }
        self.came_back.sort();
        let published: Vec<String> = self.messages.seen()[self.messages_before..]
            .iter()
            .map(|(channel, message)| format!("{channel} <- {message}"))
            .collect();
        let mut keys = Vec::new();
        for name in self.redis.keys().await {
            keys.extend(Key::read(&self.redis, &name, &self.clients, &self.owners).await);
        }
        BTreeMap::from([
            ("answer", self.answer.clone()),
            ("came back", self.came_back.join(", ")),
            ("published", published.join(", ")),
            ("keys", keys::contents(&keys)),
            ("ttls", keys::ttls_like(&keys, &wanted["ttls"])),
        ])
    }
}

fn came_back(step: u64, answer: &str) -> String {
    format!("{step} {answer}").trim().to_owned()
}

/// Redisson's recorded result.
fn recorded(step: &Value) -> Facts {
    let came_back = list(&step["came_back"]).iter().map(|call| {
        let step = call["call_of_step"].as_u64().expect("a number");
        came_back(step, &answer(&call["returns"]))
    });
    let published: Vec<String> = list(&step["published"])
        .iter()
        .map(|message| format!("{} <- {}", text(&message[0]), text(&message[1])))
        .collect();
    let keys: Vec<Key> = list(&step["keys"]).iter().map(Key::recorded).collect();
    let returned = match () {
        () if step["waits"] == true => "waits".to_owned(),
        () if !step["throws"].is_null() => "not held".to_owned(),
        () => answer(&step["returns"]),
    };
    BTreeMap::from([
        ("answer", returned),
        ("came back", came_back.collect::<Vec<_>>().join(", ")),
        ("published", published.join(", ")),
        ("keys", keys::contents(&keys)),
        ("ttls", keys::ttls(&keys)),
    ])
}

fn answer(returned: &Value) -> String {
    match returned {
        Value::Null => String::new(),
        Value::String(text) if text == "void" => String::new(),
        returned => returned.to_string(),
    }
}

fn scenarios() -> Vec<Value> {
    let files = [
        include_str!("../../golden/read_write_lock.json"),
        include_str!("../../golden/read_write_lock_edges.json"),
    ];
    let scenarios = files.map(|file| {
        let recording: Value = serde_json::from_str(file).expect("a recording is JSON");
        list(&recording["scenarios"]).to_vec()
    });
    scenarios.concat()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("it is text")
}

/// The factor by which recorded times are longer here, because a machine may be busy.
const SLOWER: u32 = 5;
