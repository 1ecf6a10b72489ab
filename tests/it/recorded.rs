//! Recorded calls of an object of Redisson that is a number with a channel, made through our API. After
//! every step the answer, the messages and the keys are what the recording says, or what a listed
//! difference says instead.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Instant;

use lockdog::Client;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::support::prelude::{LONG, SOON, ms};
use crate::support::tap::Messages;
use crate::support::{Redis, RedisServer};

/// What an object's tests say about its recording.
pub(crate) struct Recorded {
    pub(crate) recording: &'static str,
    /// The object's name where a scenario gives none.
    pub(crate) name: &'static str,
    /// How recorded calls begin: on the object of the scenario, and on one that is named.
    pub(crate) prefixes: [&'static str; 2],
    pub(crate) differences: &'static [Difference],
    pub(crate) perform: fn(Call) -> Answered,
}

/// A recorded call.
pub(crate) struct Call {
    pub(crate) client: Client,
    pub(crate) redis: Redis,
    pub(crate) name: String,
    pub(crate) method: String,
    pub(crate) args: Vec<String>,
}

/// What a call answers, as the recording has it. `Err`: it throws.
pub(crate) type Answered = Pin<Box<dyn Future<Output = Result<String, lockdog::Error>> + Send>>;

/// One aspect of one step in which our calls differ on purpose. `docs/protocol.md` has the reasons.
pub(crate) struct Difference {
    pub(crate) id: &'static str,
    pub(crate) scenario: &'static str,
    pub(crate) step: u64,
    pub(crate) aspect: &'static str,
    pub(crate) ours: &'static str,
}

/// One test for each recorded scenario.
macro_rules! replayed {
    ($recorded:expr, $document:literal, $($scenario:ident)*) => {
        $(
            #[tokio::test]
            async fn $scenario() {
                crate::recorded::replay(&$recorded, stringify!($scenario)).await;
            }
        )*

        #[test]
        fn every_recorded_scenario_is_replayed_and_each_difference_documented() {
            crate::recorded::check(&$recorded, &[$(stringify!($scenario)),*], $document);
        }
    };
}
pub(crate) use replayed;

/// Checks that the tests cover the recording, and that `docs/protocol.md` lists the differences under this
/// heading.
pub(crate) fn check(recorded: &Recorded, replayed: &[&str], heading: &str) {
    let scenarios = recorded.scenarios();
    let names: Vec<&str> = scenarios.iter().map(|it| text(&it["scenario"])).collect();
    assert_eq!(replayed, names);
    let known = recorded.differences.iter().map(|it| it.id);
    assert_documented(&format!("differences of {heading}"), known);
}

/// Checks that the table of `docs/protocol.md` under this mark lists exactly these ids of differences.
pub(crate) fn assert_documented<'a>(mark: &str, known: impl Iterator<Item = &'a str>) {
    let document = include_str!("../../docs/protocol.md");
    let table = document
        .split(&format!("<!-- {mark} -->"))
        .nth(1)
        .and_then(|rest| rest.split("<!-- end -->").next())
        .expect("the document has the table");
    let mut listed: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let mut known: Vec<&str> = known.collect();
    listed.sort_unstable();
    known.sort_unstable();
    known.dedup();
    assert_eq!(listed, known);
}

pub(crate) async fn replay(recorded: &Recorded, name: &str) {
    let scenarios = recorded.scenarios();
    let mut all = scenarios.iter();
    let scenario = all.find(|it| it["scenario"] == name).expect("recorded");
    let steps = scenario["steps"].as_array().expect("a list");
    let mut ours = Ours::start(recorded, steps).await;
    let mut wrong = Vec::new();
    let mut used = 0;
    for step in steps {
        let number = step["step"].as_u64().expect("a number");
        ours.perform(step).await;
        let differences = recorded.differences.iter();
        let listed = differences.filter(|it| it.scenario == name && it.step == number);
        let facts = facts(step);
        let mut wanted = facts.clone();
        for difference in listed {
            used += 1;
            wanted.insert(difference.aspect, difference.ours.to_owned());
            if facts[difference.aspect] == difference.ours {
                wrong.push(format!(
                    "step {number} {}: no difference",
                    difference.aspect
                ));
            }
        }
        let seen = ours.settle_on(&wanted).await;
        for (aspect, wanted) in &wanted {
            let (recorded, seen) = (&facts[aspect], &seen[aspect]);
            if seen != wanted {
                wrong.push(format!(
                    "step {number} {aspect}:\n  recorded {recorded}\n  expected {wanted}\n  seen     {seen}"
                ));
            }
        }
    }
    let known = recorded.differences.iter().filter(|it| it.scenario == name);
    assert_eq!(used, known.count(), "a listed difference names no step");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl Recorded {
    fn scenarios(&self) -> Vec<Value> {
        let recording: Value = serde_json::from_str(self.recording).expect("it is JSON");
        recording["scenarios"].as_array().expect("a list").clone()
    }

    /// The name, the method and the arguments of a call.
    fn parse(&self, call: &str) -> (Option<String>, String, Vec<String>) {
        let [plain, named] = self.prefixes;
        let (name, call) = match call.strip_prefix(named) {
            Some(rest) => {
                let (name, call) = rest.split_once("\").").expect("a call follows");
                (Some(name.to_owned()), call)
            }
            None => (None, call.strip_prefix(plain).expect("the object")),
        };
        let (method, args) = call.split_once('(').expect("a call has parentheses");
        let args = args.strip_suffix(')').expect("a call has parentheses");
        let args = args.split(", ").filter(|arg| !arg.is_empty());
        (name, method.to_owned(), args.map(str::to_owned).collect())
    }
}

/// What is compared after a step, as text.
type Facts = BTreeMap<&'static str, String>;

/// Our side: clients in place of the recorded clients, and the server's state after each step.
struct Ours<'a> {
    recorded: &'a Recorded,
    redis: Redis,
    server: RedisServer,
    clients: BTreeMap<String, Client>,
    name: String,
    messages: Messages,
    /// Messages of the steps before.
    messages_before: usize,
    answer: String,
    waiting: Vec<(u64, JoinHandle<String>)>,
    came_back: BTreeMap<u64, String>,
}

impl<'a> Ours<'a> {
    async fn start(recorded: &'a Recorded, steps: &[Value]) -> Self {
        let server = RedisServer::start().await;
        let redis = server.redis().await;
        let calls = steps
            .iter()
            .filter(|it| it["who"].as_str().is_some_and(is_java));
        let named = calls
            .filter_map(|it| recorded.parse(text(&it["call"])).0)
            .next();
        Self {
            recorded,
            messages: redis.messages("redisson_*").await,
            redis,
            server,
            clients: BTreeMap::new(),
            name: named.unwrap_or_else(|| recorded.name.to_owned()),
            messages_before: 0,
            answer: String::new(),
            waiting: Vec::new(),
            came_back: BTreeMap::new(),
        }
    }

    async fn perform(&mut self, step: &Value) {
        self.messages_before = self.messages.seen().len();
        self.answer = String::new();
        self.came_back.clear();
        let Some(who) = step["who"].as_str() else {
            // Time passes, until what came back is back.
            return;
        };
        if !is_java(who) {
            let args = step["call"].as_array().expect("a command");
            let args: Vec<&str> = args.iter().map(text).collect();
            self.redis.cmd(&args).await;
            return;
        }
        let client = who.split(' ').next().expect("a name").to_owned();
        if !self.clients.contains_key(&client) {
            // No timer of ours fires.
            let made = Client::builder().url(self.server.url()).poll_cap(LONG);
            let made = made.build().await.expect("it runs");
            self.clients.insert(client.clone(), made);
        }
        let (_, method, args) = self.recorded.parse(text(&step["call"]));
        let performing = (self.recorded.perform)(Call {
            client: self.clients[&client].clone(),
            redis: self.server.redis().await,
            name: self.name.clone(),
            method,
            args,
        });
        let performing = async move { performing.await.unwrap_or_else(|error| refusal(&error)) };
        if step["waits"] == true {
            let number = step["step"].as_u64().expect("a number");
            self.waiting.push((number, tokio::spawn(performing)));
            tokio::time::sleep(ms(250)).await;
            self.answer = "waits".to_owned();
            return;
        }
        self.answer = performing.await;
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
        let mut waiting = Vec::new();
        for (step, task) in std::mem::take(&mut self.waiting) {
            match task.is_finished() {
                true => {
                    let answer = task.await.expect("the call does not panic");
                    self.came_back.insert(step, answer);
                }
                false => waiting.push((step, task)),
            }
        }
        self.waiting = waiting;
        let came_back = self.came_back.iter();
        let came_back: Vec<String> = came_back
            .map(|(step, it)| format!("{step}: {it}"))
            .collect();
        let published: Vec<String> = self.messages.seen()[self.messages_before..]
            .iter()
            .map(|(channel, message)| format!("{channel} <- {message}"))
            .collect();
        let mut keys = Vec::new();
        for key in self.redis.keys().await {
            if !key.starts_with("lockdog_") {
                let value: String = self.redis.ask(&["GET", &key]).await;
                let ttl = match self.redis.pttl(&key).await {
                    -1 => "without ttl",
                    _ => "with a ttl",
                };
                keys.push(format!("{key} {value} {ttl}"));
            }
        }
        BTreeMap::from([
            ("answer", self.answer.clone()),
            ("came back", came_back.join(", ")),
            ("published", published.join(", ")),
            ("keys", keys.join(", ")),
        ])
    }
}

/// Redisson's recorded result.
fn facts(step: &Value) -> Facts {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let came_back = list(&step["came_back"]);
    let came_back: BTreeMap<u64, String> = came_back
        .iter()
        .map(|call| {
            let number = call["call_of_step"].as_u64().expect("a number");
            (number, returned(&call["returns"]))
        })
        .collect();
    let came_back: Vec<String> = came_back
        .iter()
        .map(|(step, it)| format!("{step}: {it}"))
        .collect();
    let published: Vec<String> = list(&step["published"])
        .iter()
        .map(|message| format!("{} <- {}", text(&message[0]), text(&message[1])))
        .collect();
    let keys: Vec<String> = list(&step["keys"])
        .iter()
        .map(|key| {
            let ttl = match text(&key["ttl"]) {
                "none" => "without ttl",
                _ => "with a ttl",
            };
            format!("{} {} {ttl}", text(&key["key"]), text(&key["content"]))
        })
        .collect();
    let answer = match step["who"].as_str() {
        Some(who) if is_java(who) && step["waits"] == true => "waits".to_owned(),
        Some(who) if is_java(who) && !step["throws"].is_null() => THROWS.to_owned(),
        Some(who) if is_java(who) => returned(&step["returns"]),
        _ => String::new(),
    };
    BTreeMap::from([
        ("answer", answer),
        ("came back", came_back.join(", ")),
        ("published", published.join(", ")),
        ("keys", keys.join(", ")),
    ])
}

fn returned(value: &Value) -> String {
    match value {
        Value::String(text) if text == "void" => String::new(),
        other => other.to_string(),
    }
}

/// Only that a call throws can be compared.
fn refusal(error: &lockdog::Error) -> String {
    match error {
        lockdog::Error::Invalid { .. } | lockdog::Error::Refused { .. } => THROWS.to_owned(),
        other => panic!("{other}"),
    }
}

fn is_java(who: &str) -> bool {
    who != "redis-cli"
}

fn text(value: &Value) -> &str {
    value.as_str().expect("it is text")
}

pub(crate) const THROWS: &str = "throws";
