//! A lock as JSON and in words.

use lockdog::report::{ConnectionInfo, HolderInfo, LockInfo, LockKind, Ttl, lock_hash};
use serde_json::{Value, json};

use crate::duration;
use crate::output::clean;

/// The lock as an object. Fields are added and never renamed.
pub(crate) fn object(info: &LockInfo, connections: &[ConnectionInfo]) -> Value {
    let holders = info
        .holders
        .iter()
        .map(|holder| holder_object(holder, connections));
    json!({
        "key": info.key,
        "hash": lock_hash(&info.key),
        "kind": info.kind.as_str(),
        "type": foreign(info),
        "server": info.server,
        "slot": info.slot,
        "held": info.is_held(),
        "ttl_ms": ttl_ms(info.ttl),
        "persistent": info.ttl == Some(Ttl::Persistent),
        "holders": holders.collect::<Vec<_>>(),
        "listeners": info.listeners,
        "queued": info.queued,
        "token": info.token,
        "permits": info.permits,
    })
}

fn holder_object(holder: &HolderInfo, connections: &[ConnectionInfo]) -> Value {
    let connections = connections_of(holder, connections).map(|it| {
        json!({
            "server": it.server, "name": it.name, "address": it.address,
            "age_s": it.age.as_secs(), "idle_s": it.idle.as_secs(),
        })
    });
    json!({
        "field": holder.field(),
        "by": by(holder),
        "client": holder.client_id().map(|id| id.to_string()),
        "owner": holder.owner(),
        "hold": hold_number(holder),
        "writes": holder.is_write(),
        "count": holder.count,
        "connections": connections.collect::<Vec<_>>(),
    })
}

/// The redis type of a key that is no lock.
fn foreign(info: &LockInfo) -> Option<&str> {
    match &info.kind {
        LockKind::Foreign(kind) => Some(kind),
        _ => None,
    }
}

pub(crate) fn ttl_ms(ttl: Option<Ttl>) -> Option<u64> {
    match ttl {
        Some(Ttl::Expires(ttl)) => u64::try_from(ttl.as_millis()).ok(),
        Some(Ttl::Persistent) | None => None,
    }
}

/// The program of a holder.
pub(crate) fn by(holder: &HolderInfo) -> &'static str {
    match (holder.client_id(), holder.is_lockdog()) {
        (Some(_), true) => "lockdog",
        (Some(_), false) => "redisson",
        (None, _) => "unknown",
    }
}

/// The number of the hold, which only lockdog has.
fn hold_number(holder: &HolderInfo) -> Option<u64> {
    if !holder.is_lockdog() {
        return None;
    }
    let field = holder.field().trim_end_matches(":write");
    field.rsplit_once('.')?.1.parse().ok()
}

/// The connections of a holder's client, as far as their names say it.
fn connections_of<'a>(
    holder: &HolderInfo,
    all: &'a [ConnectionInfo],
) -> impl Iterator<Item = &'a ConnectionInfo> {
    let id = holder.client_id().filter(|_| holder.is_lockdog());
    let id = id.map(|id| id.to_string());
    all.iter()
        .filter(move |it| id.as_ref().is_some_and(|id| it.name.contains(id.as_str())))
}

/// A holder in a few words: `Redisson 5f6b8a3e-…:57`.
pub(crate) fn short(holder: &HolderInfo) -> String {
    format!("{} {}", program(holder), clean(holder.field()))
}

fn program(holder: &HolderInfo) -> &'static str {
    match by(holder) {
        "lockdog" => "lockdog",
        "redisson" => "Redisson",
        _ => "an unknown program",
    }
}

/// The owner in words.
pub(crate) fn owner(holder: &HolderInfo) -> String {
    let owner = holder.owner();
    let numbered = |prefix: &str| {
        let rest = owner.strip_prefix(prefix)?;
        rest.parse::<u64>().ok()
    };
    if by(holder) == "redisson" {
        return format!("thread {} of a JVM", clean(owner));
    }
    if by(holder) == "unknown" {
        return "not an owner of lockdog or Redisson".to_owned();
    }
    if let Some(number) = numbered("th") {
        format!("thread {number}")
    } else if let Some(number) = numbered("t") {
        format!("tokio task {number}")
    } else if let Some(number) = numbered("o") {
        format!("Owner::new() number {number}")
    } else {
        format!("Owner::from_id({})", clean(owner))
    }
}

/// How long Redis keeps it, in words.
pub(crate) fn ttl(ttl: Option<Ttl>) -> String {
    match ttl {
        Some(Ttl::Expires(ttl)) => duration::shown(ttl),
        Some(Ttl::Persistent) => "never ends".to_owned(),
        None => "-".to_owned(),
    }
}

/// What is under the key, in words.
pub(crate) fn kind(info: &LockInfo) -> String {
    match &info.kind {
        LockKind::Foreign(kind) => format!("no lock ({})", clean(kind)),
        kind => kind.as_str().replace('_', " "),
    }
}

/// The lock in lines: all that is known. `None` for connections: the user may not ask for them.
pub(crate) fn lines(info: &LockInfo, connections: Option<&[ConnectionInfo]>) -> Vec<String> {
    let mut lines = Vec::new();
    let slot = info
        .slot
        .map(|slot| format!(", slot {slot}"))
        .unwrap_or_default();
    lines.push(format!("kind       {}", kind(info)));
    lines.push(format!("hash       {} (in logs)", lock_hash(&info.key)));
    lines.push(format!("server     {}{slot}", clean(&info.server)));
    if info.ttl == Some(Ttl::Persistent) && info.is_held() {
        lines.push("ttl        never ends: no lock leaves such a key".to_owned());
    } else if info.ttl.is_some() {
        lines.push(format!("ttl        {}", ttl(info.ttl)));
    }
    for holder in &info.holders {
        let write = if holder.is_write() { ", writes" } else { "" };
        lines.push(format!("holder     {}", clean(holder.field())));
        lines.push(format!(
            "  by       {}, {}{write}",
            program(holder),
            owner(holder)
        ));
        lines.push(format!("  count    {}", holder.count));
        lines.extend(from(holder, connections));
    }
    if let Some(permits) = info.permits {
        lines.push(format!("permits    {permits} free"));
    }
    match info.listeners {
        _ if matches!(info.kind, LockKind::Foreign(_)) => {}
        Some(count) => lines.push(format!(
            "listeners  {count} (connections: each client has one, for all its tasks that wait)"
        )),
        None => lines.push("listeners  not permitted (pubsub|numsub)".to_owned()),
    }
    if info.queued > 0 {
        lines.push(format!("queue      {} waiters", info.queued));
    }
    if let Some(token) = info.token {
        lines.push(format!("token      {token}"));
    }
    lines
}

/// From where the holder is connected.
fn from(holder: &HolderInfo, connections: Option<&[ConnectionInfo]>) -> Vec<String> {
    let Some(all) = connections else {
        return vec!["  from     not permitted (client|list)".to_owned()];
    };
    let shown = |it: &ConnectionInfo| {
        let (age, idle) = (duration::shown(it.age), duration::shown(it.idle));
        // It may be any of its commands.
        let command = match it.name.starts_with("lockdog-cli/") {
            true => ", the command lockdog",
            false => "",
        };
        format!(
            "{} (connected for {age}, idle for {idle}{command})",
            clean(&it.address)
        )
    };
    let own: Vec<String> = connections_of(holder, all)
        .map(|it| format!("  from     {}", shown(it)))
        .collect();
    match by(holder) {
        _ if !own.is_empty() => own,
        "lockdog" => {
            let why = "its client has ended, or its client_name has no {id}";
            vec![format!("  from     no connection has its id: {why}")]
        }
        "redisson" => from_java(all),
        _ => Vec::new(),
    }
}

/// The hosts of all Redisson clients: the names of their connections say nothing of their client.
fn from_java(all: &[ConnectionInfo]) -> Vec<String> {
    let is_java = |it: &&ConnectionInfo| it.library.to_lowercase().contains("redisson");
    let mut hosts: Vec<&str> = all
        .iter()
        .filter(is_java)
        .filter_map(|it| Some(it.address.rsplit_once(':')?.0))
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    match hosts.is_empty() {
        true => Vec::new(),
        false => vec![format!("  from     one of {}", clean(&hosts.join(", ")))],
    }
}
