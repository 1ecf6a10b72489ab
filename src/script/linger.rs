//! Ends a hold whose lock stays in Redis for some time.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;

use super::more_keys::{more_keys, with_more};
use super::{Arg, LoweredHold, ScriptCall, SettleReply, UnlockReply, unexpected};
use crate::key::Script;
use crate::lease;
use crate::observe::CommandKind;
use crate::server::{Connection, Failure, Sent, Server, TimeBox};

/// Lowers the TTL of an ended hold's lock to `rest`. See `lua/lock/linger.lua`.
pub(crate) async fn linger(
    server: &Server,
    hold: &LoweredHold<'_>,
    rest: Duration,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<UnlockReply, Failure> {
    let texts = LingerTexts::new(hold);
    let args = texts.args(hold, rest, server);
    let call = ScriptCall {
        kind: CommandKind::Unlock,
        script: &SCRIPT,
        keys: &with_more(hold.key, &texts.more),
        args: &args,
    };
    match call.through(server, time, sent).await? {
        Value::Int(1) => Ok(UnlockReply::Kept),
        Value::Nil => Ok(UnlockReply::Missing),
        other => Err(unexpected(&other)),
    }
}

/// As [`linger`], once and on this connection.
pub(crate) async fn linger_on(
    server: &Server,
    connection: &Connection,
    hold: &LoweredHold<'_>,
    rest: Duration,
    limit: Duration,
) -> Result<SettleReply, Failure> {
    let texts = LingerTexts::new(hold);
    let args = texts.args(hold, rest, server);
    let call = ScriptCall {
        kind: CommandKind::Settle,
        script: &SCRIPT,
        keys: &with_more(hold.key, &texts.more),
        args: &args,
    };
    match call.on(server, connection, limit).await? {
        Value::Int(1) => Ok(SettleReply::Kept),
        Value::Nil => Ok(SettleReply::Missing),
        other => Err(unexpected(&other)),
    }
}

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../lua/lock/linger.lua")));

/// What the keys and arguments of the script refer to.
struct LingerTexts {
    more: SmallVec<[String; 3]>,
    channel: String,
}

impl LingerTexts {
    fn new(hold: &LoweredHold<'_>) -> Self {
        Self {
            more: more_keys(hold.key, hold.field),
            channel: hold.key.channel().unwrap_or_default(),
        }
    }

    /// The rest is rounded up, so that the lock is not free too early.
    fn args<'a>(&'a self, hold: &LoweredHold<'a>, rest: Duration, server: &Server) -> [Arg<'a>; 5] {
        [
            Arg::Text(hold.field),
            Arg::Number(lease::millis(rest) + 1),
            Arg::Text(&self.channel),
            Arg::Text(server.publishes()),
            Arg::Number(lease::millis(hold.queue_timeouts.fair_wait)),
        ]
    }
}
