//! The value that a leader publishes, and the query for the leader.

use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use super::{Arg, EXACT, ScriptCall, unexpected};
use crate::key::{LockKey, Script};
use crate::observe::CommandKind;
use crate::server::{Failure, Sent, Server, TimeBox};

/// What a leader publishes about itself.
pub(crate) struct Proclamation<'a> {
    /// The field of its hold.
    pub(crate) field: &'a str,
    pub(crate) term: u64,
    /// Counts the proclamations of one leadership: of two, the larger one stays.
    pub(crate) number: u64,
    pub(crate) value: &'a str,
}

/// The leader that the server knows.
pub(crate) struct LeaderReply {
    pub(crate) field: String,
    /// `None`: its hold has no TTL.
    pub(crate) ttl: Option<Duration>,
    /// What the leader published about itself: the term and the value.
    pub(crate) proclaimed: Option<(NonZeroU64, String)>,
}

/// Publishes the leader's value. Returns false if the field does not lead. See `lua/election/proclaim.lua`.
pub(crate) async fn proclaim(
    server: &Server,
    key: &LockKey,
    what: &Proclamation<'_>,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<bool, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/election/proclaim.lua")));
    let (proclaimed, counter) = (key.proclaimed(), key.counter());
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &[
            key.key(),
            &proclaimed.unwrap_or_default(),
            &counter.unwrap_or_default(),
        ],
        args: &[
            Arg::Text(what.field),
            Arg::Number(what.term),
            Arg::Number(what.number),
            Arg::Text(what.value),
            Arg::Text(server.publishes()),
        ],
    };
    match call.through(server, time, sent).await? {
        Value::Int(1) => Ok(true),
        Value::Int(0) => Ok(false),
        other => Err(unexpected(&other)),
    }
}

/// Asks who leads. See `lua/election/leader.lua`.
pub(crate) async fn leader(
    server: &Server,
    key: &LockKey,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<Option<LeaderReply>, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/election/leader.lua")));
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &[key.key(), &key.proclaimed().unwrap_or_default()],
        args: &[],
    };
    let answer = call.through(server, time, sent).await?;
    if answer == Value::Nil {
        return Ok(None);
    }
    read(&answer).map(Some).ok_or_else(|| unexpected(&answer))
}

fn read(answer: &Value) -> Option<LeaderReply> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let (field, ttl, proclaimed) = match &parts[..] {
        [Value::BulkString(field), Value::Int(ttl)] => (field, ttl, None),
        [
            Value::BulkString(field),
            Value::Int(ttl),
            Value::BulkString(proclaimed),
        ] => (field, ttl, parse(proclaimed)),
        _ => return None,
    };
    Some(LeaderReply {
        field: String::from_utf8(field.clone()).ok()?,
        ttl: u64::try_from(*ttl).ok().map(Duration::from_millis),
        proclaimed,
    })
}

/// Parses "term number value". A text of another form was not written by lockdog.
fn parse(proclaimed: &[u8]) -> Option<(NonZeroU64, String)> {
    let mut words = str::from_utf8(proclaimed).ok()?.splitn(3, ' ');
    let term: u64 = words.next()?.parse().ok()?;
    let _number = words.next()?;
    let value = words.next()?;
    let term = NonZeroU64::new(term).filter(|term| term.get() < EXACT)?;
    Some((term, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_value_is_read_and_all_else_is_nothing() {
        let proclaimed =
            |text: &str| parse(text.as_bytes()).map(|(term, value)| (term.get(), value));
        assert_eq!(
            proclaimed("17 1 10.0.0.7:9000"),
            Some((17, "10.0.0.7:9000".to_owned()))
        );
        assert_eq!(proclaimed("17 2 a b  c"), Some((17, "a b  c".to_owned())));
        assert_eq!(proclaimed("17 2 "), Some((17, String::new())));
        for other in [
            "",
            "17",
            "17 2",
            "x 2 a",
            "0 1 a",
            "-1 1 a",
            "9007199254740992 1 a",
        ] {
            assert_eq!(proclaimed(other), None, "{other}");
        }
        assert!(parse(&[b'1', b' ', b'1', b' ', 0xff]).is_none());
    }

    #[test]
    fn only_the_answers_of_the_script_are_read() {
        let field = || Value::BulkString(b"u:1.1".to_vec());
        let proclaimed = Value::BulkString(b"17 1 me".to_vec());
        let all = read(&Value::Array(vec![field(), Value::Int(900), proclaimed])).unwrap();
        assert_eq!(all.field, "u:1.1");
        assert_eq!(all.ttl, Some(Duration::from_millis(900)));
        assert_eq!(all.proclaimed.unwrap().0.get(), 17);
        let silent = read(&Value::Array(vec![field(), Value::Int(-1)])).unwrap();
        assert!(silent.ttl.is_none() && silent.proclaimed.is_none());
        for other in [Value::Nil, Value::Int(1), Value::Array(vec![field()])] {
            assert!(read(&other).is_none(), "{other:?}");
        }
    }
}
