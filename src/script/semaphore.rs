//! The transitions of a semaphore whose permits have no leases.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value;

use super::permit::{ask, done};
use super::{Arg, HandOver, Remembered, ScriptCall, TransferReply, call, unexpected};
use crate::hold::LedgerView;
use crate::key::{LockKey, Script};
use crate::lease;
use crate::observe::CommandKind;
use crate::server::{Connection, Failure, Sent, Server, TimeBox};

/// The result of acquiring permits.
#[derive(Debug)]
pub(super) enum SemaphoreReply {
    Granted {
        /// How many permits are left.
        free: u64,
        /// How many the hold has.
        permits: u32,
    },
    TooFew,
    /// The hold ended before: this was a late sending.
    Ended,
}

/// The permits of a semaphore.
#[derive(Debug)]
pub(crate) struct SemaphoreState {
    /// Below zero if permits were taken away.
    pub(crate) free: i64,
    /// The fields of holds, and how many permits each has.
    pub(crate) holders: Vec<(String, u32)>,
}

/// Acquires this number of permits for the hold with this field, or none; 0 means all that are free. See
/// `lua/semaphore/acquire.lua`.
pub(super) async fn acquire(
    server: &Server,
    script: &'static Script,
    key: &LockKey,
    field: &str,
    permits: u32,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<SemaphoreReply, Failure> {
    let args = [Arg::Text(field), Arg::Number(permits.into())];
    let answer = ask(
        server,
        key,
        (CommandKind::Acquire, script),
        &args,
        time,
        sent,
    )
    .await?;
    let Value::Array(parts) = &answer else {
        return Err(unexpected(&answer));
    };
    match parts[..] {
        [Value::Int(1), Value::Int(free), Value::Int(has)] => match u32::try_from(has) {
            Ok(permits @ 1..) => Ok(SemaphoreReply::Granted {
                // Below zero if permits were taken away meanwhile.
                free: u64::try_from(free).unwrap_or(0),
                permits,
            }),
            _ => Err(unexpected(&answer)),
        },
        [Value::Int(0), ..] => Ok(SemaphoreReply::TooFew),
        [Value::Int(-3), ..] => Ok(SemaphoreReply::Ended),
        _ => Err(unexpected(&answer)),
    }
}

/// Lowers what the hold with this field has to `target`. Returns false if the ledger does not know the hold.
/// See `lua/semaphore/release.lua`.
pub(super) async fn release(
    server: &Server,
    key: &LockKey,
    field: &str,
    target: u32,
    view: LedgerView,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<bool, Failure> {
    let (channel, ledger) = (key.channel().unwrap_or_default(), ledger(key));
    let publish = server.publishes();
    let script = key.kind().scripts.unlock;
    // Only one of the sendings says what the client knows. If that one runs and the ledger is lost
    // afterwards, the other sendings must not release the permits once more. A sending by digest that the
    // server refused, because it did not know the script, does not count.
    let (was_sent, was_whole) = (AtomicBool::new(false), AtomicBool::new(false));
    let command = |whole, on: &Connection| {
        let is_first = match whole {
            false => !was_sent.swap(true, Ordering::Relaxed),
            true => !was_whole.swap(true, Ordering::Relaxed),
        };
        let known = if is_first { view.known } else { 0 };
        let view = LedgerView { known, ..view }.at(server, key, on);
        let args = release_args(field, target, &channel, publish, view);
        script.command(whole, &[key.key(), &ledger], &args)
    };
    match call(server, CommandKind::Unlock, key.key(), command, time, sent).await? {
        Value::Int(1) => Ok(true),
        Value::Nil => Ok(false),
        other => Err(unexpected(&other)),
    }
}

/// As [`release`], once and on this connection.
pub(super) async fn settle(
    server: &Server,
    connection: &Connection,
    key: &LockKey,
    field: &str,
    target: u32,
    view: LedgerView,
    limit: Duration,
) -> Result<bool, Failure> {
    let (channel, ledger) = (key.channel().unwrap_or_default(), ledger(key));
    let view = view.at(server, key, connection);
    let args = release_args(field, target, &channel, server.publishes(), view);
    let call = ScriptCall {
        kind: CommandKind::Settle,
        script: key.kind().scripts.settle,
        keys: &[key.key(), &ledger],
        args: &args,
    };
    match call.on(server, connection, limit).await? {
        Value::Int(1) => Ok(true),
        Value::Nil => Ok(false),
        other => Err(unexpected(&other)),
    }
}

/// Hands all permits of one hold on to the next one. See `lua/semaphore/transfer.lua`.
pub(super) async fn transfer(
    server: &Server,
    key: &LockKey,
    hand_over: &HandOver<'_>,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<TransferReply, Failure> {
    let channel = key.channel().unwrap_or_default();
    let args = [
        Arg::Text(hand_over.ends),
        Arg::Text(hand_over.begins),
        Arg::Number(hand_over.permits.into()),
        Arg::Number(hand_over.in_doubt.into()),
        Arg::Text(&channel),
        Arg::Text(server.publishes()),
    ];
    match ask(
        server,
        key,
        (CommandKind::Transfer, hand_over.script),
        &args,
        time,
        sent,
    )
    .await?
    {
        Value::Int(-3) => Ok(TransferReply::Declined),
        Value::Int(listening @ -1..) => Ok(TransferReply::Handed {
            ended_first: true,
            // Below zero only if it is not known.
            listening: (listening >= 0).then(|| u32::try_from(listening).unwrap_or(u32::MAX)),
            token: None,
        }),
        other => Err(unexpected(&other)),
    }
}

/// The number of free permits, and up to `most` holds that have others. See `lua/semaphore/state.lua`.
pub(crate) async fn state(
    server: &Server,
    key: &LockKey,
    most: u32,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<SemaphoreState, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/semaphore/state.lua")));
    let answer = ask(
        server,
        key,
        (CommandKind::Query, &SCRIPT),
        &[Arg::Number(most.into())],
        time,
        sent,
    )
    .await?;
    state_in(&answer).ok_or_else(|| unexpected(&answer))
}

fn state_in(answer: &Value) -> Option<SemaphoreState> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let texts: Option<Vec<&str>> = parts.iter().map(text).collect();
    let texts = texts?;
    let (free, holders) = texts.split_first()?;
    let holders = holders.chunks(2).map(|pair| match pair {
        [field, has] => Some(((*field).to_owned(), has.parse().ok()?)),
        _ => None,
    });
    Some(SemaphoreState {
        free: free.parse().ok()?,
        holders: holders.collect::<Option<_>>()?,
    })
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// The properties of a new semaphore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    pub(crate) permits: u32,
    /// When the semaphore ends, if it does.
    pub(crate) ttl: Option<Duration>,
    /// Repetitions of this call make one semaphore.
    pub(crate) call: Remembered,
}

/// Makes a semaphore if there is none, once for each request. Returns false if there is one. See
/// `lua/semaphore/try_set.lua`.
pub(crate) async fn try_set(
    server: &Server,
    key: &LockKey,
    beginning: &Beginning,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<bool, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/semaphore/try_set.lua")));
    let channel = key.channel().unwrap_or_default();
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &[key.key(), &key.mark(&beginning.call.request), &ledger(key)],
        args: &[
            Arg::Number(beginning.permits.into()),
            Arg::Number(beginning.ttl.map_or(0, lease::millis)),
            Arg::Number(lease::millis(beginning.call.kept)),
            Arg::Text(&channel),
            Arg::Text(server.publishes()),
        ],
    };
    done(&call.through(server, time, sent).await?)
}

/// Gives back the permits of all fields with this prefix. Returns the number of permits. See
/// `lua/semaphore/reclaim.lua`.
pub(crate) async fn reclaim(
    server: &Server,
    key: &LockKey,
    client: &str,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<u32, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/semaphore/reclaim.lua")));
    let channel = key.channel().unwrap_or_default();
    let args = [
        Arg::Text(client),
        Arg::Text(&channel),
        Arg::Text(server.publishes()),
    ];
    match ask(
        server,
        key,
        (CommandKind::Query, &SCRIPT),
        &args,
        time,
        sent,
    )
    .await?
    {
        // The permits of one client are a `u32` everywhere; a larger sum counts as the largest one.
        Value::Int(given @ 0..) => Ok(u32::try_from(given).unwrap_or(u32::MAX)),
        other => Err(unexpected(&other)),
    }
}

impl LedgerView {
    /// The view that is sent to the server behind this connection. A server that may have lost data since the
    /// grant may already count the permits as free, so the known number is not sent to it.
    fn at(self, server: &Server, key: &LockKey, on: &Connection) -> Self {
        let lost = server.lost(key.key(), on).seen;
        let is_known = lost.is_none_or(|lost| lost < self.acquired);
        Self {
            known: if is_known { self.known } else { 0 },
            ..self
        }
    }
}

fn ledger(key: &LockKey) -> String {
    key.permits().unwrap_or_default()
}

fn release_args<'a>(
    field: &'a str,
    target: u32,
    channel: &'a str,
    publish: &'a str,
    view: LedgerView,
) -> [Arg<'a>; 6] {
    [
        Arg::Text(field),
        Arg::Number(target.into()),
        Arg::Text(channel),
        Arg::Text(publish),
        Arg::Number(view.in_doubt.into()),
        Arg::Number(view.known.into()),
    ]
}
