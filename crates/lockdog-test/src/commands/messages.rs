//! Pub/sub: subscriptions and messages.

use std::collections::BTreeSet;

use super::{Command, anywhere, client_only, is};
use crate::database::{ClientConnection, Database, text};
use crate::glob;
use crate::reply::{CommandResult, Refusal, Reply};

pub(super) const COMMANDS: &[Command] = &[
    client_only("monitor", 1, |database, client, _| {
        if let Some(client) = database.client(client) {
            client.is_monitor = true;
        }
        Ok(Reply::OK)
    }),
    client_only("psubscribe", -2, |database, client, args| {
        change(database, client, &PATTERNS, args, true)
    }),
    anywhere("publish", 3, |database, _, args| {
        Ok(Reply::Int(publish(database, &args[1], &args[2], false)))
    }),
    anywhere("pubsub", -2, pubsub),
    client_only("punsubscribe", -1, |database, client, args| {
        change(database, client, &PATTERNS, args, false)
    }),
    anywhere("spublish", 3, |database, _, args| {
        Ok(Reply::Int(publish(database, &args[1], &args[2], true)))
    }),
    client_only("ssubscribe", -2, |database, client, args| {
        change(database, client, &SHARDED, args, true)
    }),
    client_only("subscribe", -2, |database, client, args| {
        change(database, client, &PLAIN, args, true)
    }),
    client_only("sunsubscribe", -1, |database, client, args| {
        change(database, client, &SHARDED, args, false)
    }),
    client_only("unsubscribe", -1, |database, client, args| {
        change(database, client, &PLAIN, args, false)
    }),
];

/// One of the three kinds of subscription.
struct Way {
    begins: &'static str,
    ends: &'static str,
    names: fn(&mut ClientConnection) -> &mut BTreeSet<Vec<u8>>,
}

const PLAIN: Way = Way {
    begins: "subscribe",
    ends: "unsubscribe",
    names: |client| &mut client.channels,
};
const PATTERNS: Way = Way {
    begins: "psubscribe",
    ends: "punsubscribe",
    names: |client| &mut client.patterns,
};
const SHARDED: Way = Way {
    begins: "ssubscribe",
    ends: "sunsubscribe",
    names: |client| &mut client.shard_channels,
};

impl ClientConnection {
    pub(crate) fn listens(&self) -> bool {
        !(self.channels.is_empty() && self.patterns.is_empty() && self.shard_channels.is_empty())
    }
}

/// Adds or removes subscriptions; an unsubscribe without names removes all of this kind.
fn change(
    database: &mut Database,
    client: Option<u64>,
    way: &Way,
    args: &[Vec<u8>],
    begins: bool,
) -> CommandResult {
    let Some(client) = database.client(client) else {
        return Err(Refusal::new("ERR only a connection can listen"));
    };
    let mut names = args[1..].to_vec();
    if names.is_empty() {
        names.extend((way.names)(client).iter().cloned());
    }
    let verb = if begins { way.begins } else { way.ends };
    let mut replies = Vec::new();
    for name in names {
        if begins {
            (way.names)(client).insert(name.clone());
        } else {
            (way.names)(client).remove(&name);
        }
        let count = count_of(client, way);
        replies.push(Reply::Push(vec![
            Reply::bulk(verb),
            Reply::Bulk(name),
            Reply::Int(count),
        ]));
    }
    if replies.is_empty() {
        let count = count_of(client, way);
        replies.push(Reply::Push(vec![
            Reply::bulk(verb),
            Reply::Nil,
            Reply::Int(count),
        ]));
    }
    Ok(Reply::Several(replies))
}

/// Channels and patterns are counted together, sharded channels separately.
fn count_of(client: &ClientConnection, way: &Way) -> i64 {
    let count = if way.begins == SHARDED.begins {
        client.shard_channels.len()
    } else {
        client.channels.len() + client.patterns.len()
    };
    count as i64
}

/// Returns the number of connections that the message was sent to, whether or not it arrives.
pub(crate) fn publish(
    database: &mut Database,
    channel: &[u8],
    payload: &[u8],
    sharded: bool,
) -> i64 {
    let mut sent = Vec::new();
    for (id, client) in &database.clients {
        if sharded {
            if client.shard_channels.contains(channel) {
                sent.push((*id, vec![Reply::bulk("smessage"), Reply::bulk(channel)]));
            }
            continue;
        }
        if client.channels.contains(channel) {
            sent.push((*id, vec![Reply::bulk("message"), Reply::bulk(channel)]));
        }
        for pattern in client
            .patterns
            .iter()
            .filter(|it| glob::matches(it, channel))
        {
            let head = [&b"pmessage"[..], pattern, channel].map(Reply::bulk);
            sent.push((*id, head.to_vec()));
        }
    }
    let count = sent.len() as i64;
    if !database.faults.loses_messages {
        for (id, mut parts) in sent {
            parts.push(Reply::bulk(payload));
            database.send(id, &Reply::Push(parts));
        }
    }
    count
}

/// The number of connections subscribed to a channel.
pub(crate) fn listeners(database: &Database, channel: &[u8], sharded: bool) -> usize {
    let all = database.clients.values();
    let listening = all.filter(|client| match sharded {
        true => client.shard_channels.contains(channel),
        false => client.channels.contains(channel),
    });
    listening.count()
}

/// All channels with at least one subscriber.
pub(crate) fn channels(database: &Database, sharded: bool) -> BTreeSet<Vec<u8>> {
    let all = database.clients.values();
    let names = all.flat_map(|client| match sharded {
        true => &client.shard_channels,
        false => &client.channels,
    });
    names.cloned().collect()
}

fn pubsub(database: &mut Database, _: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    let word = text(&args[1]).to_lowercase();
    let sharded = word.starts_with("shard");
    match (word.as_str(), &args[2..]) {
        ("channels" | "shardchannels", [] | [_]) => {
            let mut found: Vec<_> = channels(database, sharded).into_iter().collect();
            if let Some(pattern) = args.get(2) {
                found.retain(|name| glob::matches(pattern, name));
            }
            Ok(Reply::bulks(found))
        }
        ("numsub" | "shardnumsub", names) => {
            let counts = names.iter().flat_map(|name| {
                let count = listeners(database, name, sharded);
                [Reply::bulk(name), Reply::Int(count as i64)]
            });
            Ok(Reply::Array(counts.collect()))
        }
        ("numpat", []) => {
            let all = database.clients.values();
            let patterns: BTreeSet<_> = all.flat_map(|client| &client.patterns).collect();
            Ok(Reply::Int(patterns.len() as i64))
        }
        _ => Err(Refusal::new(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try PUBSUB HELP.",
            text(&args[1])
        ))),
    }
}

/// Shows a command to every MONITOR connection; `client` is `None` for a command of a script.
pub(super) fn show_monitors(database: &mut Database, client: Option<u64>, args: &[Vec<u8>]) {
    let monitors = database.clients.iter().filter(|(_, it)| it.is_monitor);
    let monitors: Vec<u64> = monitors.map(|(id, _)| *id).collect();
    if monitors.is_empty() || is(&args[0], "auth") || is(&args[0], "monitor") {
        return;
    }
    let who = match client.and_then(|id| database.clients.get(&id)) {
        Some(client) => client.address.clone(),
        None => "lua".to_owned(),
    };
    let time = database.micros();
    let mut line = format!(
        "{}.{:06} [{} {who}]",
        time / 1_000_000,
        time % 1_000_000,
        database.current
    );
    for arg in args {
        line.push_str(" \"");
        line.push_str(&quoted(arg));
        line.push('"');
    }
    for id in monitors {
        database.send(id, &Reply::Status(line.clone().into()));
    }
}

fn quoted(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            7 => text.push_str("\\a"),
            8 => text.push_str("\\b"),
            b' '..=b'~' => text.push(char::from(*byte)),
            byte => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}
