//! The scripts that only a member of a quorum needs.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{FromRedisValue, Value};

use super::{AcquireReply, Arg, ScriptCall, TimedCommand, number, unexpected};
use crate::key::{LockKey, Script};
use crate::lease;
use crate::observe::CommandKind;
use crate::server::{Connection, Failure, Sent, Server, TimeBox};

/// What an acquire checks in addition to the lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InstanceChecks {
    /// If the server lost its data, it remembers that and grants nothing for this long.
    pub(crate) quarantine: Option<Duration>,
    /// Read the register of the fencing tokens.
    pub(crate) register: bool,
}

impl InstanceChecks {
    /// Only the lock is checked.
    pub(crate) fn is_none(self) -> bool {
        self.quarantine.is_none() && !self.register
    }
}

/// The result of an acquire.
#[derive(Debug)]
pub(crate) struct InstanceReply {
    /// `Busy` without a TTL if the server is in quarantine; nothing was changed then.
    pub(crate) acquired: AcquireReply,
    /// The rest of the server's quarantine.
    pub(crate) quarantined: Option<Duration>,
    /// Present also if another owner has the lock, but `None` in quarantine.
    pub(crate) register: Option<RegisterState>,
    /// The time since which the server's data may have been lost, as sent with the command. It is
    /// in milliseconds of the server's clock. Anything written before it may be out of date.
    pub(crate) asked_since: u64,
}

/// One server's state of a lock's fencing tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RegisterState {
    /// The largest token in the server's register, below 2^53.
    pub(crate) value: Option<u64>,
    /// The server's clock, in microseconds since 1970.
    pub(crate) time: u64,
    /// The server lost its data, its data was not provisioned since, and no token was written
    /// since. Larger tokens may have been forgotten, so this value proves nothing.
    pub(crate) fresh: bool,
}

/// The result of writing a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MarkReply {
    /// The register has a token of another hold that is as large or larger.
    Conflict(u64),
    Done,
    /// The hold does not exist.
    Lost,
}

/// Raises a hold's count to `target`. See `lua/red_lock/acquire.lua`.
#[expect(clippy::too_many_arguments, reason = "the plain acquire's, and one")]
pub(crate) async fn acquire(
    server: &Server,
    key: &LockKey,
    field: &str,
    target: u32,
    lease: Duration,
    guards: InstanceChecks,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<InstanceReply, Failure> {
    let script = key.kind().scripts.acquire_member;
    let register = guards.register.then(|| key.register());
    let mut keys = vec![key.key()];
    keys.extend(register.as_deref());
    keys.extend(guards.quarantine.map(|_| EPOCH));
    // 0 would mean that no quarantine is requested.
    let period = guards
        .quarantine
        .map_or(0, |period| lease::millis(period).max(1));
    let asked_since = AtomicU64::new(0);
    let command = |whole, on: &Connection| {
        // Use the value of the server that the command goes to: a redirection may lead to another
        // server.
        let since = server.lost(key.key(), on).since;
        asked_since.store(since, Ordering::Relaxed);
        let args = [
            Arg::Text(field),
            Arg::Number(target.into()),
            Arg::Number(lease::millis(lease)),
            Arg::Number(period),
            Arg::Number(guards.register.into()),
            Arg::Number(since),
        ];
        script.command(whole, &keys, &args)
    };
    let timed = TimedCommand::begin_at(server, CommandKind::Acquire, || time.now);
    let answer = server.call(key.key(), command, time, sent).await;
    timed.end(&answer);
    let answer = answer?;
    let asked_since = asked_since.load(Ordering::Relaxed);
    taken(&answer, guards, asked_since).ok_or_else(|| unexpected(&answer))
}

fn taken(answer: &Value, guards: InstanceChecks, asked_since: u64) -> Option<InstanceReply> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [
        Value::Int(what),
        Value::Int(n),
        time,
        Value::Int(fresh),
        token,
    ] = &parts[..]
    else {
        return None;
    };
    let left = u64::try_from(*n).ok().map(Duration::from_millis);
    let (acquired, quarantined) = match (what, n) {
        (1, _) => (AcquireReply::Granted(None), None),
        (0, -1..) => (AcquireReply::Busy(left), None),
        (-3, _) => (AcquireReply::Gone, None),
        (-4, 1..) => (AcquireReply::Busy(None), left),
        _ => return None,
    };
    let register = if guards.register && quarantined.is_none() {
        Some(RegisterState {
            value: match token {
                Value::Nil => None,
                token => Some(number(token)?),
            },
            time: number(time)?,
            fresh: *fresh != 0,
        })
    } else {
        None
    };
    Some(InstanceReply {
        acquired,
        quarantined,
        register,
        asked_since,
    })
}

/// Writes a fencing token to the register and extends the lock's lease. See
/// `lua/red_lock/mark.lua`.
pub(crate) async fn mark(
    server: &Server,
    key: &LockKey,
    field: &str,
    token: u64,
    lease: Duration,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<MarkReply, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/red_lock/mark.lua")));
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &[key.key(), &key.register()],
        args: &[
            Arg::Text(field),
            Arg::Number(token),
            Arg::Number(lease::millis(lease)),
            Arg::Number(lease::millis(KEPT)),
        ],
    };
    match call.through(server, time, sent).await? {
        Value::Int(1) => Ok(MarkReply::Done),
        Value::Int(0) => Ok(MarkReply::Lost),
        other => number(&other)
            .map(MarkReply::Conflict)
            .ok_or_else(|| unexpected(&other)),
    }
}

/// Marks the server's data as complete and returns the server's identity. See
/// `lua/red_lock/provision.lua`.
pub(crate) async fn provision(
    server: &Server,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<String, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/red_lock/provision.lua")));
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &[EPOCH],
        args: &[Arg::Number(0)],
    };
    let answer = call.through(server, time, sent).await?;
    String::from_redis_value_ref(&answer).map_err(|_| unexpected(&answer))
}

/// The key where a server stores since when its data is complete.
const EPOCH: &str = "lockdog:epoch";

/// How long a register is kept after its last token. It is longer than any hold and than any pause
/// in the use of a lock that matters.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
