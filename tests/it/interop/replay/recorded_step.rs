//! One step of a recording, and the effects of Redisson's call.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::deployment::Deployment;
use super::facts::{
    Change, Expiries, Expiry, Facts, MASTER, Place, at, hash_text, key_text, list_text, lock_of,
    message_text, places_text, renewals,
};
use super::recorded_commands::{
    asked, expiry_changes, server, sharded_messages, takes_a_free_lock, waited_for_replicas,
};
use super::recording::{list, text};

pub(super) struct Step {
    pub(super) number: usize,
    /// Client and thread: `A <t1>`. Empty for a pause; `redis-cli` or `redis-cli on s2` for plain commands.
    pub(super) who: String,
    /// The call, or the pause, or a plain command with its arguments in quotes.
    pub(super) call: String,
    /// A plain command.
    pub(super) command: Vec<String>,
    /// A change of a server before the step.
    pub(super) note: String,
    /// The call was still running at the end of the step.
    pub(super) waits: bool,
    /// The server on which its own first attempt found the lock free.
    pub(super) found_it_free: Option<String>,
    pub(super) came_back: Vec<(usize, String)>,
    facts: Facts,
}

impl Step {
    /// The effects of Redisson's call.
    pub(super) fn facts(&self) -> Facts {
        self.facts.clone()
    }

    /// The duration of a pause.
    pub(super) fn pause(&self) -> Option<Duration> {
        let seconds = self.call.strip_prefix('(')?.split(" s pass").next()?;
        Some(Duration::from_secs_f64(seconds.parse().ok()?))
    }

    /// The server of a plain command; `None` if this is not a plain command.
    pub(super) fn cli_server(&self) -> Option<&str> {
        let server = self.who.strip_prefix("redis-cli")?;
        Some(server.trim_start_matches(" on "))
    }

    /// `expiries` are those after the earlier steps.
    pub(super) fn read(
        number: usize,
        step: &Value,
        note: String,
        deployment: Deployment,
        expiries: &mut Expiries,
    ) -> Self {
        let commands = list(&step["commands"]);
        let mut read = Self {
            number,
            who: text(&step["who"]),
            call: text(&step["call"]),
            command: list(&step["call"]).iter().map(text).collect(),
            note,
            waits: step["waits"] == true,
            found_it_free: None,
            came_back: list(&step["came_back"]).iter().map(came_back).collect(),
            facts: Facts::default(),
        };
        if !read.command.is_empty() {
            read.call = read.command.join(" ");
        }
        let first = commands.first();
        let first = first.filter(|first| takes_a_free_lock(first, &read.who));
        read.found_it_free = first.map(server);
        let mut changes: Vec<Expiry> = commands.iter().flat_map(expiry_changes).collect();
        if let (Some(server), [name, key]) = (read.cli_server(), &read.command[..])
            && matches!(name.as_str(), "PERSIST" | "DEL")
        {
            let place = Place::new(server, key);
            let change = Change::Removed;
            changes.push(Expiry { place, change });
        }
        for change in &changes {
            expiries.apply(number, change);
        }
        let facts = &mut read.facts;
        facts.set("answer", answer(step));
        facts.set("came back", came_back_text(&read.came_back));
        facts.set("published", published(step).join(", "));
        facts.set("keys", keys(step, deployment, expiries).join(", "));
        if step["who"].is_null() {
            facts.set("renewals", renewals(changes.iter(), str::to_owned));
        }
        if deployment != Deployment::One {
            facts.set("asked", asked(commands).join(", "));
            let waited = waited_for_replicas(commands).join(", ");
            facts.set("waits for replicas", waited);
        }
        read
    }
}

/// The distance of a recorded time, `<now+0.6 s>`, from the query.
pub(super) fn in_seconds(moment: &str) -> Option<f64> {
    let number = moment.strip_prefix("<now")?.strip_suffix(" s>")?;
    number.parse().ok()
}

fn came_back(call: &Value) -> (usize, String) {
    let step = call["call_of_step"].as_u64().expect("a number") as usize;
    (step, answer(call))
}

/// By server, because messages of different servers have no order.
fn published(step: &Value) -> Vec<String> {
    let plain = list(&step["published"]).iter().map(|message| {
        let message: Vec<String> = list(message).iter().map(text).collect();
        match &message[..] {
            [channel, message] => (String::new(), message_text(channel, message, false)),
            [server, channel, message] => (server.clone(), message_text(channel, message, false)),
            other => panic!("{other:?} is no message"),
        }
    });
    let sharded = sharded_messages(list(&step["commands"])).into_iter();
    let sharded =
        sharded.map(|(server, channel, message)| (server, message_text(&channel, &message, true)));
    let mut messages: Vec<(String, String)> = plain.chain(sharded).collect();
    messages.sort_by(|one, other| one.0.cmp(&other.0));
    let texts = messages.iter();
    texts.map(|(server, message)| at(server, message)).collect()
}

/// The keys of each server.
fn keys(step: &Value, deployment: Deployment, expiries: &mut Expiries) -> Vec<String> {
    let of_server = |server: &&'static str| match *server {
        "" => (*server, &step["keys"]),
        name => (name, &step["keys"][name]),
    };
    let servers: Vec<(&str, &Value)> = deployment.servers().iter().map(of_server).collect();
    let mut places = Vec::new();
    for (server, keys) in &servers {
        let names = list(keys).iter().map(|key| text(&key["key"]));
        places.extend(names.map(|key| Place::new(server, &key)));
    }
    expiries.keep(&places);
    let mut texts = Vec::new();
    for (server, keys) in servers {
        // The reason why it does not answer.
        if let Some(absent) = keys.as_str() {
            texts.push(at(server, absent));
        }
        let is_replica = deployment == Deployment::Replicated && server != MASTER;
        let all = list(keys);
        let texts_of = all
            .iter()
            .map(|key| key_facts(server, key, all, is_replica, expiries));
        texts.extend(texts_of);
    }
    texts
}

pub(super) fn came_back_text(calls: &[(usize, String)]) -> String {
    let texts: Vec<String> = calls
        .iter()
        .map(|(step, answer)| format!("{step}: {answer}"))
        .collect();
    texts.join(", ")
}

/// Only the kind of an error can be compared, and of a TTL only that there is one.
fn answer(step: &Value) -> String {
    if step["waits"] == true {
        return "waits".to_owned();
    }
    if let Some(class) = step["throws"].as_str() {
        let message = text(&step["message"]);
        return match class {
            "java.lang.IllegalMonitorStateException" if message.contains("already held") => {
                "already held".to_owned()
            }
            "java.lang.IllegalMonitorStateException" => "not held".to_owned(),
            "java.lang.InterruptedException" => "cancelled".to_owned(),
            "java.lang.UnsupportedOperationException" => "no such call".to_owned(),
            _ if text(&step["cause"]).contains("NoSyncedSlavesException") => {
                "not replicated".to_owned()
            }
            _ => format!("refused {}", message.split(' ').next().unwrap_or_default()),
        };
    }
    let call = text(&step["call"]);
    match &step["returns"] {
        Value::Null if step.get("returns").is_some() => "null".to_owned(),
        Value::Null if step["reply"].is_null() => String::new(),
        Value::Null => text(&step["reply"]),
        Value::Number(ttl) if call.contains("remainTimeToLive") && ttl.as_i64() >= Some(0) => {
            "a ttl".to_owned()
        }
        returned => text(returned),
    }
}

fn key_facts(
    server: &str,
    key: &Value,
    all: &[Value],
    is_replica: bool,
    expiries: &Expiries,
) -> String {
    let place = Place::new(server, &text(&key["key"]));
    let recorded = text(&key["ttl"]);
    let base = recorded
        .trim_start_matches('≈')
        .split('-')
        .next()
        .expect("a part");
    // An expiry at a point in time is a few milliseconds off, and that of a waiting replica is more.
    let inexact = if is_replica { 1_000 } else { 10 };
    match (base, expiries.of(&place)) {
        ("none", None) => {}
        (base, Some(ours)) if (base.parse().unwrap_or(0) - ours).abs() < inexact => {}
        // It is the first query of a slow machine: the commands of this step set it.
        ("?", Some(_)) => {}
        // The recordings omit the commands of these keys where a scenario is about something else.
        _ if place.key.starts_with("<latch") => {}
        (_, ours) => {
            panic!("{place:?} has {recorded} in the recording, its commands give {ours:?}")
        }
    }
    let content = match &key["content"] {
        Value::Object(fields) => {
            let fields: BTreeMap<String, String> = fields
                .iter()
                .map(|(field, value)| (field.clone(), text(value)))
                .collect();
            hash_text(&fields)
        }
        Value::Array(places) if key["type"] == "zset" => {
            let lock = lock_of(&place.key);
            let lock = all.iter().find(|key| key["key"] == lock);
            let left = lock.map_or(0, |lock| lock["pttl"].as_i64().expect("a number"));
            let good_for = |place: &Value| {
                let moment = in_seconds(&text(&place[1])).expect("a moment");
                (text(&place[0]), moment * 1_000.0 - left.max(0) as f64)
            };
            places_text(&places.iter().map(good_for).collect::<Vec<_>>())
        }
        Value::Array(items) => list_text(&items.iter().map(text).collect::<Vec<_>>()),
        other => text(other),
    };
    key_text(
        server,
        &place.key,
        &text(&key["type"]),
        &content,
        &expiries.text(&place),
    )
}
