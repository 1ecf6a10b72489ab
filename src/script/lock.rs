//! The transitions of a lock.

use std::num::NonZeroU64;
use std::time::Duration;

use redis::Value;

use super::{Arg, ScriptCall, semaphore, token, unexpected};
use crate::clock::Moment;
use crate::hold::LedgerView;
use crate::key::{LockKey, Script};
use crate::lease;
use crate::server::{Connection, Failure, PendingWrite, Sent, Server, TimeBox, Unacknowledged};

/// The result of an acquire.
#[derive(Debug)]
pub(crate) enum AcquireReply {
    /// Contains the hold's fencing token, if its kind issues tokens.
    Granted(Option<NonZeroU64>),
    /// Another owner has the lock. Contains its TTL, if it has one.
    Busy(Option<Duration>),
    /// This was a re-entry, and the hold is gone.
    Gone,
}

/// The result of an unlock.
#[derive(Debug)]
pub(crate) enum UnlockReply {
    /// The lock is free.
    Released,
    /// The hold's count is the target.
    Kept,
    /// The hold does not exist.
    Missing,
}

/// The result of a transfer.
#[derive(Debug)]
pub(crate) enum TransferReply {
    /// The next hold has the lock.
    Handed {
        /// The number of subscribers of its channel, if known.
        listening: Option<u32>,
        /// The next hold's fencing token, if its kind issues tokens.
        token: Option<NonZeroU64>,
    },
    /// The first hold ended, but the next one could not begin.
    Freed,
    /// Neither hold exists.
    Missing,
}

/// The result of a settle.
#[derive(Debug)]
pub(crate) enum SettleReply {
    /// The count is the target.
    Done,
    /// The hold does not exist.
    Missing,
}

/// The result of a renewal for one hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RenewReply {
    Extended,
    /// The hold does not exist.
    Missing,
    /// The server could not check it.
    Unknown,
}

/// Raises a hold's count to `target`. See `lua/lock/acquire.lua`.
pub(crate) async fn acquire(
    server: &Server,
    key: &LockKey,
    field: &str,
    target: u32,
    lease: Duration,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<AcquireReply, Failure> {
    let counter = key.counter();
    let call = ScriptCall {
        script: key.kind().scripts.acquire,
        keys: &[key.key(), counter.as_deref().unwrap_or_default()][..1 + more(key)],
        args: &[
            Arg::Text(field),
            Arg::Number(target.into()),
            Arg::Number(lease::millis(lease)),
            from(key),
        ][..3 + more(key)],
    };
    match call.through(server, time, sent).await? {
        Value::Nil if counter.is_none() => Ok(AcquireReply::Granted(None)),
        Value::Int(-3) => Ok(AcquireReply::Gone),
        Value::Int(-1) => Ok(AcquireReply::Busy(None)),
        Value::Int(ttl @ 0..) => Ok(AcquireReply::Busy(Some(Duration::from_millis(ttl as u64)))),
        other => match token(&other).filter(|_| counter.is_some()) {
            Some(token) => Ok(AcquireReply::Granted(Some(token))),
            None => Err(unexpected(&other)),
        },
    }
}

/// Lowers a hold's count to `target`. `view` is for a semaphore with a ledger. See `lua/lock/unlock.lua`.
pub(crate) async fn unlock(
    server: &Server,
    key: &LockKey,
    field: &str,
    target: u32,
    view: LedgerView,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<UnlockReply, Failure> {
    if key.kind().is_counted() {
        let is_known = semaphore::release(server, key, field, target, view, time, sent).await?;
        return Ok(match is_known {
            true => UnlockReply::Released,
            false => UnlockReply::Missing,
        });
    }
    let permits = key.permits();
    let call = ScriptCall {
        script: key.kind().scripts.unlock,
        keys: &[key.key(), permits.as_deref().unwrap_or_default()][..keys_of(key)],
        args: &[
            Arg::Text(field),
            Arg::Number(target.into()),
            Arg::Text(&key.channel().unwrap_or_default()),
            Arg::Text(server.publishes()),
        ],
    };
    match call.through(server, time, sent).await? {
        Value::Int(1) => Ok(UnlockReply::Released),
        Value::Int(0) => Ok(UnlockReply::Kept),
        Value::Nil => Ok(UnlockReply::Missing),
        other => Err(unexpected(&other)),
    }
}

/// Ends one hold and begins the next. Both are named by their fields and have the same kind. See
/// `lua/lock/transfer.lua`.
pub(crate) async fn transfer(
    server: &Server,
    script: &'static Script,
    key: &LockKey,
    [ends, begins]: [&str; 2],
    lease: Duration,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<TransferReply, Failure> {
    let counter = key.counter();
    let channel = key.channel().unwrap_or_default();
    let call = ScriptCall {
        script,
        keys: &[key.key(), counter.as_deref().unwrap_or_default()][..1 + more(key)],
        args: &[
            Arg::Text(ends),
            Arg::Text(begins),
            Arg::Number(lease::millis(lease)),
            Arg::Text(&channel),
            Arg::Text(server.publishes()),
            from(key),
        ][..5 + more(key)],
    };
    let answer = call.through(server, time, sent).await?;
    let handed = match &answer {
        Value::Int(-2) => return Ok(TransferReply::Freed),
        Value::Nil => return Ok(TransferReply::Missing),
        Value::Int(listening) if counter.is_none() => Some((*listening, None)),
        Value::Array(parts) if counter.is_some() => match &parts[..] {
            [Value::Int(listening), issued] => token(issued).map(|it| (*listening, Some(it))),
            _ => None,
        },
        _ => None,
    };
    match handed {
        Some((listening @ -1.., token)) => Ok(TransferReply::Handed {
            // Below zero only if it is not known.
            listening: (listening >= 0).then(|| u32::try_from(listening).unwrap_or(u32::MAX)),
            token,
        }),
        _ => Err(unexpected(&answer)),
    }
}

/// How many keys a script for one hold has: that of the lock, and of its set of permits if it has one.
fn keys_of(key: &LockKey) -> usize {
    1 + usize::from(key.kind().permits.is_some())
}

/// How many keys and arguments the scripts of a kind that issues tokens have in addition.
fn more(key: &LockKey) -> usize {
    usize::from(key.kind().counter.is_some())
}

/// Where the tokens begin, if its kind issues tokens.
fn from(key: &LockKey) -> Arg<'static> {
    Arg::Text(key.kind().counter.map_or("", |counter| counter.from))
}

/// Sets a hold's count to `target` if the hold exists. `view` is for a semaphore with a ledger. See `lua/lock/settle.lua`.
pub(crate) async fn settle(
    connection: &Connection,
    publishes: &str,
    key: &LockKey,
    field: &str,
    target: u32,
    view: LedgerView,
    limit: Duration,
) -> Result<SettleReply, Failure> {
    if key.kind().is_counted() {
        let call = semaphore::settle(connection, publishes, key, field, target, view, limit);
        return Ok(match call.await? {
            true => SettleReply::Done,
            false => SettleReply::Missing,
        });
    }
    let permits = key.permits();
    let call = ScriptCall {
        script: key.kind().scripts.settle,
        keys: &[key.key(), permits.as_deref().unwrap_or_default()][..keys_of(key)],
        args: &[
            Arg::Text(field),
            Arg::Number(target.into()),
            Arg::Text(&key.channel().unwrap_or_default()),
            Arg::Text(publishes),
        ],
    };
    match call.on(connection, limit).await? {
        Value::Int(1) => Ok(SettleReply::Done),
        Value::Nil => Ok(SettleReply::Missing),
        other => Err(unexpected(&other)),
    }
}

/// Waits until the replicas have acknowledged the grant of a hold on this connection, as far as the
/// setting requires it. See `lua/lock/touch.lua`.
pub(crate) async fn acknowledge(
    server: &Server,
    key: &LockKey,
    field: &str,
    on: &Connection,
    until: Moment,
) -> Result<(), Unacknowledged> {
    let script = key.kind().scripts.touch;
    let permits = key.permits();
    let keys = &[key.key(), permits.as_deref().unwrap_or_default()][..keys_of(key)];
    let touch = script.command(true, keys, &[Arg::Text(field)]);
    server
        .acknowledge(PendingWrite::new(touch, on), until)
        .await
}

/// Extends the leases of many holds whose kinds share the script. Returns one answer for each hold.
/// See `lua/lock/renew.lua`.
pub(crate) async fn renew(
    connection: &Connection,
    holds: &[(&LockKey, String, Duration)],
    limit: Duration,
) -> Result<Vec<RenewReply>, Failure> {
    let Some((first, ..)) = holds.first() else {
        return Ok(Vec::new());
    };
    // A hold is in the lock's hash, or a permit in the set of permits.
    let permits: Vec<Option<String>> = holds.iter().map(|(key, ..)| key.permits()).collect();
    let keys: Vec<&str> = holds
        .iter()
        .zip(&permits)
        .map(|((key, ..), permits)| permits.as_deref().unwrap_or_else(|| key.key()))
        .collect();
    let args: Vec<Arg<'_>> = holds
        .iter()
        .flat_map(|(_, field, lease)| [Arg::Text(field), Arg::Number(lease::millis(*lease))])
        .collect();
    let call = ScriptCall {
        script: first.kind().scripts.renew,
        keys: &keys,
        args: &args,
    };
    let answers = match call.on(connection, limit).await? {
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

/// Frees the lock from the holder with this field. See `lua/lock/force_unlock.lua`.
pub(crate) async fn force_unlock(
    server: &Server,
    key: &LockKey,
    field: &str,
    time: TimeBox,
) -> Result<bool, Failure> {
    let call = ScriptCall {
        script: key.kind().scripts.force_unlock,
        keys: &[key.key()],
        args: &[
            Arg::Text(field),
            Arg::Text(&key.channel().unwrap_or_default()),
            Arg::Text(server.publishes()),
        ],
    };
    let mut sent = Sent::default();
    let answer = call.through(server, time, &mut sent).await;
    server.abandon_silent(&answer, &sent);
    match answer? {
        Value::Int(1) => Ok(true),
        // If an earlier sending was not answered, that one may have freed the lock.
        Value::Int(0) => Ok(sent.repeated),
        other => Err(unexpected(&other)),
    }
}
