//! The calls of a count-down latch.

use std::sync::LazyLock;

use redis::Value;

use super::permit::done;
use super::{Arg, Remembered, ScriptCall, unexpected};
use crate::key::{LockKey, Script};
use crate::lease;
use crate::observe::CommandKind;
use crate::server::{Failure, Sent, Server, TimeBox};

/// The count; 0 if there is none.
pub(crate) async fn count(
    server: &Server,
    key: &LockKey,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<i64, Failure> {
    let mut query = redis::cmd("GET");
    query.arg(key.key());
    let answer = server.call(key.key(), |_, _| query.clone(), time, sent);
    match answer.await? {
        Value::Nil => Ok(0),
        Value::BulkString(digits) => {
            let digits = str::from_utf8(&digits).unwrap_or_default();
            let count = digits.parse().ok().filter(|count: &i64| {
                // The scripts, and Redis itself, accept the same numbers.
                count.unsigned_abs() < 1 << 53 && count.to_string() == digits
            });
            count.ok_or_else(|| Failure::Refused {
                code: "WRONGTYPE".to_owned(),
                message: "the count is no number".to_owned(),
            })
        }
        other => Err(unexpected(&other)),
    }
}

/// Counts down by one, once for each request. Returns false if there was no count. See
/// `lua/latch/count_down.lua`.
pub(crate) async fn count_down(
    server: &Server,
    key: &LockKey,
    call: Remembered,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<bool, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/latch/count_down.lua")));
    change(server, key, &SCRIPT, None, call, time, sent).await
}

/// Sets the count if there is none, once for each request. Returns false if there was one. See
/// `lua/latch/try_set.lua`.
pub(crate) async fn try_set(
    server: &Server,
    key: &LockKey,
    count: i64,
    call: Remembered,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<bool, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/latch/try_set.lua")));
    change(server, key, &SCRIPT, Some(count), call, time, sent).await
}

/// Ends the latch, once for each request. Returns false if there was none. See `lua/latch/delete.lua`.
pub(crate) async fn delete(
    server: &Server,
    key: &LockKey,
    call: Remembered,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<bool, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/latch/delete.lua")));
    change(server, key, &SCRIPT, None, call, time, sent).await
}

/// Runs a script that changes the latch. If it takes a count, that is its first argument.
async fn change(
    server: &Server,
    key: &LockKey,
    script: &'static Script,
    count: Option<i64>,
    call: Remembered,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<bool, Failure> {
    let channel = key.channel().unwrap_or_default();
    let digits = count.map(|count| count.to_string());
    let always = [
        Arg::Number(lease::millis(call.kept)),
        Arg::Text(&channel),
        Arg::Text(server.publishes()),
    ];
    let args: Vec<Arg<'_>> = digits
        .iter()
        .map(|digits| Arg::Text(digits))
        .chain(always)
        .collect();
    let call = ScriptCall {
        kind: CommandKind::Query,
        script,
        keys: &[key.key(), &key.mark(&call.request)],
        args: &args,
    };
    done(&call.through(server, time, sent).await?)
}
