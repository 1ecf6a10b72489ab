//! The keys in Redis, with the recorded names of clients and owners.

use std::collections::BTreeMap;

use lockdog::{Client, Owner};
use serde_json::Value;

use super::{SLOWER, text};
use crate::support::Redis;

/// One key.
pub(super) struct Key {
    name: String,
    content: String,
    /// In recorded milliseconds.
    ttl: i64,
}

impl Key {
    pub(super) fn recorded(key: &Value) -> Self {
        let content = match &key["content"] {
            Value::Object(fields) => hash(
                fields
                    .iter()
                    .map(|(field, count)| (field.as_str(), text(count))),
            ),
            content => text(content).to_owned(),
        };
        let number = |text: &str| text.parse::<i64>().expect("a number");
        let ttl = text(&key["ttl"]);
        let ttl = match (ttl.strip_prefix('≈'), ttl.split_once('-')) {
            (Some(ttl), _) => number(ttl),
            (None, Some((lease, passed))) => number(lease) - number(passed),
            (None, None) => panic!("{ttl} is no TTL"),
        };
        Self {
            name: text(&key["key"]).to_owned(),
            content,
            ttl,
        }
    }

    /// `None` if it is gone.
    pub(super) async fn read(
        redis: &Redis,
        name: &str,
        clients: &BTreeMap<String, Client>,
        owners: &BTreeMap<String, Owner>,
    ) -> Option<Self> {
        let ttl = redis.pttl(name).await;
        let content = match &*redis.ask::<String>(&["TYPE", name]).await {
            "hash" => {
                let fields = redis.hash(name).await;
                let fields = fields
                    .iter()
                    .map(|(field, count)| (rename(field, clients, owners), count));
                let fields: Vec<(String, &String)> = fields.collect();
                hash(
                    fields
                        .iter()
                        .map(|(field, count)| (field.as_str(), count.as_str())),
                )
            }
            "string" => {
                let value: Option<String> = redis.ask(&["GET", name]).await;
                let value = value?;
                // The announcement begins with the moment of the server's clock.
                let text = match value.split_once(' ') {
                    Some((since, rest)) if since.parse::<u64>().is_ok() => rest,
                    _ => &value,
                };
                rename(text, clients, owners)
            }
            _ => return None,
        };
        Some(Self {
            name: rename(name, clients, owners),
            content,
            ttl: ttl / i64::from(SLOWER),
        })
    }
}

/// As recorded: client A has the first id, and B the second. Our fields have a number after the owner.
fn rename(
    name: &str,
    clients: &BTreeMap<String, Client>,
    owners: &BTreeMap<String, Owner>,
) -> String {
    let mut name = name.to_owned();
    for (letter, client) in clients {
        let uuid = if letter == "A" { "<uuid1>" } else { "<uuid2>" };
        name = name.replace(&client.id().to_string(), uuid);
    }
    for (thread, owner) in owners {
        if let Some((before, rest)) = name.split_once(&format!(":{owner}.")) {
            let rest = rest.trim_start_matches(|it: char| it.is_ascii_digit());
            name = format!("{before}:{thread}{rest}");
        }
    }
    name
}

fn hash<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut fields: Vec<String> = fields
        .map(|(field, count)| format!("{field}={count}"))
        .collect();
    fields.sort();
    format!("{{{}}}", fields.join(" "))
}

/// Without the TTLs.
pub(super) fn contents(keys: &[Key]) -> String {
    let mut all: Vec<String> = keys
        .iter()
        .map(|key| format!("{} {}", key.name, key.content))
        .collect();
    all.sort();
    all.join(", ")
}

pub(super) fn ttls(keys: &[Key]) -> String {
    let mut all: Vec<String> = keys
        .iter()
        .map(|key| format!("{} {}", key.name, key.ttl))
        .collect();
    all.sort();
    all.join(", ")
}

/// The TTLs; where one is about what is wanted, as wanted.
pub(super) fn ttls_like(keys: &[Key], wanted: &str) -> String {
    let wanted: BTreeMap<&str, i64> = wanted
        .split(", ")
        .filter_map(|it| it.rsplit_once(' '))
        .filter_map(|(name, ttl)| Some((name, ttl.parse().ok()?)))
        .collect();
    let like = |key: &Key| match wanted.get(&*key.name) {
        Some(ttl) if (key.ttl - ttl).abs() <= ttl / 8 + 500 => *ttl,
        _ => key.ttl,
    };
    let all = keys.iter().map(|key| Key {
        name: key.name.clone(),
        content: String::new(),
        ttl: like(key),
    });
    ttls(&all.collect::<Vec<_>>())
}
