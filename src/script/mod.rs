//! One typed call for each transition. Only this module sends `EVALSHA`. The lock's kind decides
//! which script a transition uses.

mod diagnosis;
pub(crate) mod election;
mod force_unlock;
pub(crate) mod group;
mod hand_over;
pub(crate) mod latch;
mod linger;
mod lock;
mod more_keys;
mod multi_lock;
pub(crate) mod permit;
mod queue_query;
mod read_write;
mod red_lock;
mod renew;
pub(crate) mod semaphore;
mod timed_command;
mod touch;

use std::num::NonZeroU64;
use std::time::Duration;

use redis::{Cmd, Value};
use uuid::Uuid;

use crate::key::{PermitId, Script};
use crate::observe::CommandKind;
use crate::server::{Connection, Failure, Sent, Server, TimeBox};

pub(crate) use diagnosis::permitted;
pub(crate) use force_unlock::force_unlock;
pub(crate) use hand_over::{HandOver, TransferReply};
pub(crate) use linger::{linger, linger_on};
pub(crate) use lock::{
    AcquireItem, AcquireReply, Listing, LoweredHold, SettleReply, UnlockReply, Woken, acquire,
    settle, transfer, unlock,
};
pub(crate) use multi_lock::{BatchReply, acquire_all};
pub(crate) use queue_query::{QueryMode, QueueQuery, QueueReply, query_queue};
pub(crate) use read_write::{ModeOptions, Sharing, readers};
#[cfg(test)]
pub(crate) use red_lock::InstanceReply;
/// Acquires as a member of a quorum. A lock by itself uses [`acquire`].
pub(crate) use red_lock::acquire as acquire_member;
pub(crate) use red_lock::{InstanceChecks, MarkReply, RegisterState, mark, provision};
pub(crate) use renew::{RenewReply, renew};
use timed_command::TimedCommand;
pub(crate) use touch::acknowledge;

impl Script {
    /// The command that runs the script: by its digest, or with the `whole` text for a server that
    /// does not know it yet.
    fn command(&self, whole: bool, keys: &[&str], args: &[Arg<'_>]) -> Cmd {
        let (name, script) = if whole {
            ("EVAL", self.text())
        } else {
            ("EVALSHA", self.digest())
        };
        let texts = keys.iter().map(|key| key.len());
        let texts = texts.chain(args.iter().map(Arg::room)).sum::<usize>();
        let mut command =
            Cmd::with_capacity(3 + keys.len() + args.len(), script.len() + texts + 16);
        command.arg(name).arg(script).arg(keys.len()).arg(keys);
        for arg in args {
            match arg {
                Arg::Text(text) => command.arg(*text),
                Arg::Bytes(bytes) => command.arg(*bytes),
                Arg::Number(number) => command.arg(*number),
            };
        }
        command
    }
}

/// An argument of a script, in addition to its keys.
#[derive(Clone, Copy)]
enum Arg<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Number(u64),
}

impl Arg<'_> {
    /// Its approximate size in bytes.
    fn room(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Number(_) => 8,
        }
    }
}

/// The id of a call that the server remembers, so that repetitions count once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remembered {
    pub(crate) request: PermitId,
    /// For how long the server remembers it: longer than the client sends its command, and longer than a
    /// command may be in flight.
    pub(crate) kept: Duration,
}

impl Remembered {
    /// For a call that the client repeats for this time, and then once more for a command timeout.
    pub(crate) fn new(sent_for: Duration, command_timeout: Duration) -> Self {
        // Longer than the last sending, so that the server still knows a call that the network delivers
        // late.
        let beyond = command_timeout.saturating_mul(4);
        Self {
            request: PermitId::from_bytes(*Uuid::new_v4().as_bytes()),
            kept: sent_for.saturating_add(beyond.max(sent_for / 5).max(SHORTEST_MEMORY)),
        }
    }
}

const SHORTEST_MEMORY: Duration = Duration::from_secs(10);

/// A script call. Running it several times has the effect of once.
struct ScriptCall<'a> {
    kind: CommandKind,
    script: &'static Script,
    keys: &'a [&'a str],
    args: &'a [Arg<'a>],
}

impl ScriptCall<'_> {
    /// Runs it on the callers' connection. `sent` records what may have run if this future is
    /// dropped.
    async fn through(
        &self,
        server: &Server,
        time: TimeBox,
        sent: &mut Sent,
    ) -> Result<Value, Failure> {
        let key = self.keys.first().copied().unwrap_or_default();
        let script = |whole, _: &Connection| self.command(whole);
        call(server, self.kind, key, script, time, sent).await
    }

    /// Runs it once on one connection.
    async fn on(
        &self,
        server: &Server,
        connection: &Connection,
        limit: Duration,
    ) -> Result<Value, Failure> {
        let timed = TimedCommand::begin(server, self.kind);
        let answer = self.once_on(connection, limit).await;
        timed.end(&answer);
        answer
    }

    async fn once_on(&self, connection: &Connection, limit: Duration) -> Result<Value, Failure> {
        match connection.send(&self.command(false), limit).await {
            Err(Failure::Refused { code, .. }) if code == "NOSCRIPT" => {
                connection.send(&self.command(true), limit).await
            }
            answer => answer,
        }
    }

    fn command(&self, whole: bool) -> Cmd {
        self.script.command(whole, self.keys, self.args)
    }
}

/// Runs a command on the callers' connection, and reports to the observers how long it took. `command` makes
/// the command for a connection, with the `whole` script or with its digest.
async fn call(
    server: &Server,
    kind: CommandKind,
    key: &str,
    command: impl Fn(bool, &Connection) -> Cmd,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<Value, Failure> {
    let timed = TimedCommand::begin_at(server, kind, || time.now);
    // Boxed: a call waits for other things most of the time, and would have room for its command all the time.
    let answer = Box::pin(server.call(key, command, time, sent)).await;
    timed.end(&answer);
    answer
}

/// Parses a number that a script wrote as text: the protocol would truncate a Lua number.
fn number(value: &Value) -> Option<u64> {
    let Value::BulkString(digits) = value else {
        return None;
    };
    let number: u64 = str::from_utf8(digits).ok()?.parse().ok()?;
    // Lua numbers (doubles) are exact up to this value.
    (number < EXACT).then_some(number)
}

/// Parses a fencing token.
fn token(value: &Value) -> Option<NonZeroU64> {
    NonZeroU64::new(number(value)?)
}

const EXACT: u64 = 1 << 53;

/// For an answer that no script of lockdog gives, for example one of a proxy. It proves nothing about the lock.
fn unexpected(value: &Value) -> Failure {
    let text: String = format!("{value:?}").chars().take(100).collect();
    Failure::Broken(format!("unexpected answer: {text}").into())
}
