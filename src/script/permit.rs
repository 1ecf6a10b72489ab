//! The transitions of a semaphore whose permits have leases, except those that it shares with a lock. A plain
//! semaphore uses [`add`] and [`ask`] too.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use super::{Arg, Remembered, ScriptCall, unexpected};
use crate::key::{LockKey, PermitId, Script};
use crate::lease;
use crate::observe::CommandKind;
use crate::server::{Failure, Sent, Server, TimeBox};

/// The result of acquiring permits.
#[derive(Debug)]
pub(super) enum PermitReply {
    Granted {
        /// How many permits are left.
        free: u64,
    },
    TooFew {
        /// When the next permit expires, if one does.
        next: Option<Duration>,
    },
}

/// The result of giving permits back by their ids.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GivenBack {
    All,
    /// Nothing was done: none of them was in use.
    NoneInUse,
    /// Nothing was done: some were in use, and others were not.
    SomeInUse,
}

/// How many permits a semaphore has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PermitState {
    /// Below zero if more are in use than the semaphore has.
    pub(crate) free: i64,
    pub(crate) in_use: u64,
    /// Of the permit that was asked about.
    pub(crate) lease: PermitLease,
}

/// How long a permit is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PermitLease {
    Ends(Duration),
    Never,
    /// It is not in use.
    Missing,
}

/// Acquires the permits with these ids, which are text: all, or none. See `lua/permit/acquire.lua`.
pub(super) async fn acquire(
    server: &Server,
    script: &'static Script,
    key: &LockKey,
    ids: &[&str],
    lease: Duration,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<PermitReply, Failure> {
    let channel = key.channel().unwrap_or_default();
    let mut args = Vec::with_capacity(3 + ids.len());
    args.extend([
        Arg::Number(lease::millis(lease)),
        Arg::Text(&channel),
        Arg::Text(server.publishes()),
    ]);
    args.extend(ids.iter().map(|id| Arg::Text(id)));
    let answer = ask(
        server,
        key,
        (CommandKind::Acquire, script),
        &args,
        time,
        sent,
    )
    .await?;
    let parts = numbers::<3>(&answer).ok_or_else(|| unexpected(&answer))?;
    match parts {
        [1, free, _] => Ok(PermitReply::Granted {
            // Below zero if permits were taken away meanwhile.
            free: u64::try_from(free).unwrap_or(0),
        }),
        [0, _, next] if next >= -1 => Ok(PermitReply::TooFew {
            next: u64::try_from(next).ok().map(Duration::from_millis),
        }),
        _ => Err(unexpected(&answer)),
    }
}

/// Gives the permits with these ids back: all, or none. See `lua/permit/give_back.lua`.
pub(crate) async fn give_back(
    server: &Server,
    key: &LockKey,
    ids: &[PermitId],
    time: TimeBox,
    sent: &mut Sent,
) -> Result<GivenBack, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/permit/give_back.lua")));
    let channel = key.channel().unwrap_or_default();
    let mut args = vec![Arg::Text(&channel), Arg::Text(server.publishes())];
    args.extend(ids.iter().map(|id| Arg::Bytes(id.as_bytes())));
    match ask(
        server,
        key,
        (CommandKind::Unlock, &SCRIPT),
        &args,
        time,
        sent,
    )
    .await?
    {
        Value::Int(1) => Ok(GivenBack::All),
        Value::Int(0) => Ok(GivenBack::NoneInUse),
        Value::Int(-1) => Ok(GivenBack::SomeInUse),
        other => Err(unexpected(&other)),
    }
}

/// Sets the leases of the permits with these ids: of all, or of none. `None`: they never end. Returns
/// false if one of them is not in use. See `lua/permit/update.lua`.
pub(crate) async fn update(
    server: &Server,
    key: &LockKey,
    ids: &[PermitId],
    lease: Option<Duration>,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<bool, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/permit/update.lua")));
    let lease = lease.map_or(Arg::Text("-1"), |lease| Arg::Number(lease::millis(lease)));
    let mut args = vec![lease];
    args.extend(ids.iter().map(|id| Arg::Bytes(id.as_bytes())));
    let permits = key.permits().unwrap_or_default();
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &[&permits],
        args: &args,
    };
    done(&call.through(server, time, sent).await?)
}

/// How many permits the semaphore has, and how long the permit with this id is in use. See
/// `lua/permit/state.lua`.
pub(crate) async fn state(
    server: &Server,
    key: &LockKey,
    id: Option<&PermitId>,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<PermitState, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/permit/state.lua")));
    let id = Arg::Bytes(id.map_or(&[], |id| id.as_bytes()));
    let answer = ask(
        server,
        key,
        (CommandKind::Query, &SCRIPT),
        &[id],
        time,
        sent,
    )
    .await?;
    match numbers::<3>(&answer) {
        Some([free, in_use, left]) if in_use >= 0 && left >= -2 => Ok(PermitState {
            free,
            in_use: in_use as u64,
            lease: match left {
                -2 => PermitLease::Missing,
                -1 => PermitLease::Never,
                left => PermitLease::Ends(Duration::from_millis(left as u64)),
            },
        }),
        _ => Err(unexpected(&answer)),
    }
}

/// Sets how many permits the semaphore has, once for each request. `only_if_missing`: returns false if the
/// semaphore exists. See `lua/permit/set.lua`.
pub(crate) async fn set(
    server: &Server,
    key: &LockKey,
    permits: u32,
    only_if_missing: bool,
    call: Remembered,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<bool, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/permit/set.lua")));
    let channel = key.channel().unwrap_or_default();
    let in_use = key.permits().unwrap_or_default();
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &[key.key(), &in_use, &key.mark(&call.request)],
        args: &[
            Arg::Number(permits.into()),
            Arg::Number(only_if_missing.into()),
            Arg::Number(lease::millis(call.kept)),
            Arg::Text(&channel),
            Arg::Text(server.publishes()),
        ],
    };
    done(&call.through(server, time, sent).await?)
}

/// How permits are added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addition {
    pub(crate) by: i32,
    /// Only if the semaphore exists.
    pub(crate) only_if_exists: bool,
    /// Repetitions of this call add the permits once.
    pub(crate) call: Remembered,
}

/// Adds permits to a semaphore of either kind, once for each request. Returns false if the semaphore does
/// not exist and should. See `lua/permit/add.lua`.
pub(crate) async fn add(
    server: &Server,
    key: &LockKey,
    addition: &Addition,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<bool, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/permit/add.lua")));
    let channel = key.channel().unwrap_or_default();
    let mark = key.mark(&addition.call.request);
    let by = addition.by.to_string();
    let ledger = match key.kind().is_counted() {
        true => key.permits(),
        false => None,
    };
    let keys: Vec<&str> = [key.key(), &mark]
        .into_iter()
        .chain(ledger.as_deref())
        .collect();
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &keys,
        args: &[
            Arg::Text(&by),
            Arg::Number(lease::millis(addition.call.kept)),
            Arg::Text(&channel),
            Arg::Text(server.publishes()),
            Arg::Number(addition.only_if_exists.into()),
        ],
    };
    done(&call.through(server, time, sent).await?)
}

/// Runs a script with both keys of a semaphore of either kind.
pub(super) async fn ask(
    server: &Server,
    key: &LockKey,
    (kind, script): (CommandKind, &'static Script),
    args: &[Arg<'_>],
    time: TimeBox,
    sent: &mut Sent,
) -> Result<Value, Failure> {
    let permits = key.permits().unwrap_or_default();
    let call = ScriptCall {
        kind,
        script,
        keys: &[key.key(), &permits],
        args,
    };
    call.through(server, time, sent).await
}

pub(super) fn done(answer: &Value) -> Result<bool, Failure> {
    match answer {
        Value::Int(1) => Ok(true),
        Value::Int(0) => Ok(false),
        other => Err(unexpected(other)),
    }
}

fn numbers<const N: usize>(answer: &Value) -> Option<[i64; N]> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let numbers: Option<Vec<i64>> = parts
        .iter()
        .map(|part| match part {
            Value::Int(number) => Some(*number),
            _ => None,
        })
        .collect();
    numbers?.try_into().ok()
}
