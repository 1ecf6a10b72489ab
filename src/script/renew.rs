//! Renews many holds by one command.

use std::time::Duration;

use redis::Value;

use super::{Arg, ScriptCall, unexpected};
use crate::key::{LockKey, Mode};
use crate::lease;
use crate::observe::CommandKind;
use crate::server::{Connection, Failure, Server};

/// The result of a renewal for one hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RenewReply {
    Extended,
    /// The hold does not exist.
    Missing,
    /// The server could not check it.
    Unknown,
}

/// Extends the leases of many holds whose kinds share the script. Returns one answer for each hold.
/// See `lua/lock/renew.lua`.
pub(crate) async fn renew(
    server: &Server,
    connection: &Connection,
    holds: &[(&LockKey, String, Duration)],
    limit: Duration,
) -> Result<Vec<RenewReply>, Failure> {
    let Some((first, ..)) = holds.first() else {
        return Ok(Vec::new());
    };
    // The lease of a hold is the TTL of the lock's hash, and of a second key: a read hold has a timeout key,
    // and a leader a published value. A permit is only in the set of permits.
    let other = |(key, field, _): &(&LockKey, String, Duration)| match key.mode() {
        Some(Mode::Read) => Some(key.timeout_of(field)),
        Some(Mode::Write) | None => key.permits().or_else(|| key.proclaimed()),
    };
    let others: Vec<Option<String>> = holds.iter().map(other).collect();
    let mut keys: Vec<&str> = Vec::with_capacity(holds.len() * 2);
    for ((key, ..), other) in holds.iter().zip(&others) {
        if key.kind().permits.is_none() {
            keys.push(key.key());
        }
        keys.extend(other.as_deref());
    }
    let values: Vec<String> = (holds.iter().map(|(key, ..)| key.values().join(" "))).collect();
    let args: Vec<Arg<'_>> = (holds.iter().zip(&values))
        .flat_map(|((key, field, lease), values)| {
            let values = (!key.values().is_empty()).then_some(Arg::Text(values));
            let hold = [Arg::Text(field), Arg::Number(lease::millis(*lease))];
            hold.into_iter().chain(values)
        })
        .collect();
    let call = ScriptCall {
        kind: CommandKind::Renew,
        script: first.kind().scripts.renew,
        keys: &keys,
        args: &args,
    };
    let answers = match call.on(server, connection, limit).await? {
        Value::Array(answers) if answers.len() == holds.len() => answers,
        other => return Err(unexpected(&other)),
    };
    Ok(answers
        .iter()
        .map(|answer| match answer {
            Value::Int(1) => RenewReply::Extended,
            Value::Int(0) => RenewReply::Missing,
            _ => RenewReply::Unknown,
        })
        .collect())
}
