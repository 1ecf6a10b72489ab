//! The commands of a recorded step.

use serde_json::Value;

use super::facts::{Change, Expiry, Place, QUESTIONS};
use super::recording::{list, text};

/// The server that ran a command. Empty with a single server.
pub(super) fn server(command: &Value) -> String {
    text(&command["on"])
}

fn name(command: &Value) -> String {
    text(&command["cmd"][0])
}

/// The servers that the call itself queried.
pub(super) fn asked(commands: &[Value]) -> Vec<String> {
    let own = commands.iter().filter(|command| command["by"].is_null());
    servers(own.filter(|command| QUESTIONS.contains(&&*name(command))))
}

/// The servers that waited for their replicas. The probe `WAIT 0 0` does not count.
pub(super) fn waited_for_replicas(commands: &[Value]) -> Vec<String> {
    let waits = |command: &&Value| name(command) == "WAIT" && text(&command["cmd"][1]) != "0";
    servers(commands.iter().filter(waits))
}

fn servers<'a>(commands: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let mut servers: Vec<String> = commands.map(server).collect();
    servers.sort();
    servers.dedup();
    servers
}

/// Server, channel and message of the sharded messages of the scripts.
pub(super) fn sharded_messages(commands: &[Value]) -> Vec<(String, String, String)> {
    let of_command = |command: &Value| {
        let server = server(command);
        let sent = list(&command["in_script"]).iter().filter_map(|call| {
            let call = text(call);
            let (channel, message) = call.strip_prefix("SPUBLISH ")?.rsplit_once(' ')?;
            Some((channel.to_owned(), message.to_owned()))
        });
        sent.map(|(channel, message)| (server.clone(), channel, message))
            .collect::<Vec<_>>()
    };
    commands.iter().flat_map(of_command).collect()
}

/// A script that acquires the free lock for the step's own client.
pub(super) fn takes_a_free_lock(command: &Value, who: &str) -> bool {
    let by = text(&command["by"]);
    let is_own = by.is_empty() || by.get(..1) == who.get(..1);
    let inside = list(&command["in_script"]);
    is_own
        && inside.len() == 3
        && text(&inside[0]).starts_with("exists ")
        && text(&inside[1]).starts_with("hincrby ")
}

/// The change of expiries by a recorded command.
pub(super) fn expiry_changes(command: &Value) -> Vec<Expiry> {
    let on = server(command);
    let on_key = |key: &str, change| Expiry {
        place: Place::new(&on, key),
        change,
    };
    let key = text(&command["cmd"][1]);
    if name(command) == "PERSIST" {
        return vec![on_key(&key, Change::Removed)];
    }
    if name(command) == "PEXPIREAT" && text(&command["by"]) == "replication" {
        return vec![on_key(&key, Change::Replicated)];
    }
    let is_renewal = RENEWALS.contains(&&*key);
    let of_call = |call: &Value| {
        let call = text(call);
        if let Some(key) = call.strip_prefix("persist ") {
            return Some(on_key(key, Change::Removed));
        }
        let (call, last) = call.rsplit_once(' ')?;
        let unquoted = |key: &str| key.trim_matches('\'').to_owned();
        if let Some(key) = call.strip_prefix("pexpire ") {
            let ms: i64 = last.parse().expect("milliseconds");
            // Zero deletes the key.
            let change = match ms {
                0 => Change::Removed,
                _ if is_renewal => Change::Renewed(ms),
                _ => Change::Set(ms),
            };
            return Some(on_key(&unquoted(key), change));
        }
        if call.starts_with("pexpireat ") {
            let key = call.split(' ').nth(1)?;
            return Some(on_key(key, Change::Set(20_000)));
        }
        if let Some(key) = call
            .strip_prefix("set ")
            .and_then(|set| set.split(' ').next())
        {
            let change = match call.ends_with(" px") {
                true => Change::Set(last.parse().expect("milliseconds")),
                false => Change::Removed,
            };
            return Some(on_key(&unquoted(key), change));
        }
        let asks = ["hexists ", "hget "].iter();
        if is_renewal && let Some(key) = asks.filter_map(|name| call.strip_prefix(name)).next() {
            return Some(on_key(&unquoted(key), Change::Asked));
        }
        None
    };
    let mut changes: Vec<Expiry> = list(&command["in_script"])
        .iter()
        .filter_map(of_call)
        .collect();
    // A renewal reads and sets: that counts once.
    if is_renewal {
        let renewed: Vec<Place> = changes
            .iter()
            .filter(|change| matches!(change.change, Change::Renewed(_)))
            .map(|change| change.place.clone())
            .collect();
        changes.retain(|change| {
            !matches!(change.change, Change::Asked) || !renewed.contains(&change.place)
        });
    }
    // `same_again` stands for repetitions of earlier commands: renewals, in one scenario.
    let again = command["same_again"].as_u64().unwrap_or(0);
    for _ in 0..again {
        changes.push(on_key("orders", Change::Renewed(3_000)));
    }
    changes
}

/// Redisson's scripts for renewals: one for most locks, and one for read locks.
const RENEWALS: [&str; 2] = ["6a3d3157", "38d2b478"];
