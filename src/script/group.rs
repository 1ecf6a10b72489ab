//! The query for the holders of a group's values.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use super::more_keys::values;
use super::{Arg, ScriptCall, unexpected};
use crate::key::{LockKey, Script};
use crate::observe::CommandKind;
use crate::server::{Failure, Sent, Server, TimeBox};

/// The owner of a value.
pub(crate) struct ValueHolder {
    pub(crate) field: String,
    pub(crate) count: u32,
    pub(crate) left: Duration,
}

/// The holders of a lock's values, one for each value that an owner has. See `lua/group/holders.lua`.
pub(crate) async fn holders(
    server: &Server,
    key: &LockKey,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<Vec<ValueHolder>, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/group/holders.lua")));
    let args: Vec<Arg<'_>> = values(key).collect();
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &[key.key()],
        args: &args,
    };
    let answer = call.through(server, time, sent).await?;
    let Value::Array(parts) = &answer else {
        return Err(unexpected(&answer));
    };
    let read = |three: &[Value]| match three {
        [
            Value::BulkString(field),
            Value::BulkString(count),
            Value::Int(left),
        ] => Some(ValueHolder {
            field: String::from_utf8_lossy(field).into_owned(),
            count: str::from_utf8(count).ok()?.parse().unwrap_or(0),
            left: Duration::from_millis(u64::try_from(*left).ok()?),
        }),
        _ => None,
    };
    let holders: Option<Vec<ValueHolder>> = parts.chunks(3).map(read).collect();
    holders.ok_or_else(|| unexpected(&answer))
}
