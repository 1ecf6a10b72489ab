//! A query at a lock whose queue is on the server.

use std::num::NonZeroU64;
use std::time::Duration;

use redis::Value;

use super::more_keys::{more_keys, with_more};
use super::{Arg, ScriptCall, number, token, unexpected};
use crate::key::{LockKey, QueueTimeouts};
use crate::lease;
use crate::observe::CommandKind;
use crate::server::{Failure, Sent, Server, TimeBox};

/// What a query may do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum QueryMode {
    /// Take a place in the queue, if it has none.
    Enter,
    /// Ask again from its place.
    Again,
    /// Take the lock if no waiter is present, and never take a place.
    Try,
}

/// One query.
pub(crate) struct QueueQuery<'a> {
    pub(crate) mode: QueryMode,
    pub(crate) field: &'a str,
    /// The count that the hold is to have.
    pub(crate) target: u32,
    pub(crate) lease: Duration,
    pub(crate) queue_timeouts: QueueTimeouts,
    /// The fields of further waiters of this client, which are kept present.
    pub(crate) others: &'a [String],
}

/// The result of a query.
#[derive(Debug)]
pub(crate) enum QueueReply {
    /// Contains the hold's fencing token, if its kind issues tokens.
    Granted(Option<NonZeroU64>),
    /// Another holder has the lock, or another waiter is first.
    Waits {
        /// The TTL of the holder, if there is one and it has one.
        ttl: Option<Duration>,
        /// When the field took its place by this query, by the server's clock.
        arrival: Option<u64>,
        /// The field of the first waiter, if the lock is free.
        head: Option<String>,
    },
    /// The field has no place in the queue any more.
    NoPlace,
    /// This was a re-entry, and the hold is gone.
    Gone,
}

/// Queries a lock from its place in the server's queue. See `lua/fair/acquire.lua`.
pub(crate) async fn query_queue(
    server: &Server,
    key: &LockKey,
    query: &QueueQuery<'_>,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<QueueReply, Failure> {
    let counter = key.counter();
    let mut more = more_keys(key, query.field);
    more.extend(counter.clone());
    let channel = key.channel().unwrap_or_default();
    let mut args = vec![
        Arg::Text(query.field),
        Arg::Number(query.target.into()),
        Arg::Number(lease::millis(query.lease)),
        Arg::Number(lease::millis(query.queue_timeouts.fair_wait)),
        Arg::Number(lease::millis(query.queue_timeouts.fair_absence)),
        Arg::Text(match query.mode {
            QueryMode::Enter => "enter",
            QueryMode::Again => "look",
            QueryMode::Try => "try",
        }),
        Arg::Text(&channel),
        Arg::Text(server.publishes()),
    ];
    args.extend(query.others.iter().map(|field| Arg::Text(field)));
    let call = ScriptCall {
        kind: CommandKind::Acquire,
        script: key.kind().scripts.acquire,
        keys: &with_more(key, &more),
        args: &args,
    };
    let answer = call.through(server, time, sent).await?;
    match &answer {
        Value::Nil if counter.is_none() => return Ok(QueueReply::Granted(None)),
        Value::BulkString(_) if counter.is_some() => {
            if let Some(token) = token(&answer) {
                return Ok(QueueReply::Granted(Some(token)));
            }
        }
        Value::Int(-3) => return Ok(QueueReply::Gone),
        Value::Int(-5) => return Ok(QueueReply::NoPlace),
        Value::Array(parts) => {
            if let Some(waits) = waits(parts) {
                return Ok(waits);
            }
        }
        _ => {}
    }
    Err(unexpected(&answer))
}

fn waits(parts: &[Value]) -> Option<QueueReply> {
    let (ttl, arrival, head) = match parts {
        [Value::Int(-2), arrival, Value::BulkString(head)] => {
            (None, arrival, Some(String::from_utf8(head.clone()).ok()?))
        }
        [Value::Int(-1), arrival] => (None, arrival, None),
        [Value::Int(ttl @ 0..), arrival] => {
            (Some(Duration::from_millis(*ttl as u64)), arrival, None)
        }
        _ => return None,
    };
    let Value::BulkString(text) = arrival else {
        return None;
    };
    let arrival = match text.is_empty() {
        true => None,
        false => Some(number(arrival)?),
    };
    Some(QueueReply::Waits { ttl, arrival, head })
}
