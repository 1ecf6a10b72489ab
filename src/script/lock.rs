//! The transitions of a lock.

use std::num::NonZeroU64;
use std::time::Duration;

use redis::Value;
use smallvec::{SmallVec, smallvec};

use super::more_keys::{more_keys, with_more};
use super::read_write::Sharing;
use super::{Arg, HandOver, ScriptCall, TransferReply, semaphore, token, unexpected};
use crate::hold::LedgerView;
use crate::key::{LockKey, QueueSide, QueueTimeouts};
use crate::lease;
use crate::observe::CommandKind;
use crate::server::{Connection, Failure, Sent, Server, TimeBox};

/// A hold to be acquired.
pub(crate) struct AcquireItem<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) field: String,
    pub(crate) target: u32,
    /// For a lock whose holds have a mode.
    pub(crate) sharing: Option<Sharing>,
    /// For a client that waits.
    pub(crate) listing: Option<&'a Listing>,
}

/// How the server lists a client that waits. See `lua/lock/contend.lua`.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) list: String,
    pub(crate) client: String,
    /// How long it has waited.
    pub(crate) waited: Duration,
    /// It leaves a free lock to the other clients, and waits for this time as if another owner had the lock.
    pub(crate) yields: Option<Duration>,
}

/// The result of an acquire.
#[derive(Debug)]
pub(crate) enum AcquireReply {
    /// Contains the hold's fencing token, if its kind issues tokens.
    Granted(Option<NonZeroU64>),
    /// Another owner has the lock. Contains its TTL, if it has one.
    Busy(Option<Duration>),
    /// As `Busy`, and the server did not allow the script to list the client.
    Unlisted(Option<Duration>),
    /// This was a re-entry, and the hold is gone; or an upgrade, and the read hold is gone.
    Gone,
    /// Another owner waits to take over from its read hold.
    WouldDeadlock,
}

/// The result of an unlock.
#[derive(Debug)]
pub(crate) enum UnlockReply {
    /// The lock is free.
    Released(Woken),
    /// The hold's count is the target; or the hold ended, and its lock stays for a time.
    Kept,
    /// The hold does not exist.
    Missing,
}

/// Whom an unlock woke.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Woken {
    /// Every client that waits.
    All,
    /// One of the waiting list.
    One,
    /// Every client that waits, because the server did not allow the script to use the list.
    NotListed,
}

/// The result of a settle.
#[derive(Debug)]
pub(crate) enum SettleReply {
    /// The count is the target.
    Done,
    /// The hold ended, and its lock stays for a time.
    Kept,
    /// The hold does not exist.
    Missing,
}

/// Raises a hold's count to `target`. See `lua/lock/acquire.lua`.
pub(crate) async fn acquire(
    server: &Server,
    item: &AcquireItem<'_>,
    lease: Duration,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<AcquireReply, Failure> {
    let AcquireItem {
        key, field, target, ..
    } = item;
    let counter = key.counter();
    let before_fields;
    let mut args: SmallVec<[Arg<'_>; 4]> = smallvec![
        Arg::Text(field),
        Arg::Number((*target).into()),
        Arg::Number(lease::millis(lease)),
    ];
    if counter.is_some() {
        args.push(from(key));
    } else if let (Some(sharing), Some(mode)) = (&item.sharing, key.mode()) {
        before_fields = key.before_fields();
        args.extend(sharing.args(mode, &before_fields));
    }
    for value in key.values() {
        args.push(Arg::Text(value));
    }
    let mut script = key.kind().scripts.acquire;
    if let (Some(listing), Some(contend)) = (item.listing, key.kind().scripts.contend) {
        script = contend;
        args.extend([
            Arg::Text(&listing.list),
            Arg::Text(&listing.client),
            Arg::Number(u64::try_from(listing.waited.as_micros()).unwrap_or(u64::MAX)),
            Arg::Number(listing.yields.is_some().into()),
        ]);
    }
    let mut more = more_keys(key, field);
    if let Some(counter) = &counter {
        more.push(counter.clone());
    }
    let call = ScriptCall {
        kind: CommandKind::Acquire,
        script,
        keys: &with_more(key, &more),
        args: &args,
    };
    let busy = |answer: i64| match answer {
        -4 => Some(item.listing?.yields),
        -1 => Some(None),
        ttl => Some(Some(Duration::from_millis(u64::try_from(ttl).ok()?))),
    };
    let answer = call.through(server, time, sent).await?;
    let known = match &answer {
        Value::Nil if counter.is_none() => Some(AcquireReply::Granted(None)),
        Value::Int(-3) => Some(AcquireReply::Gone),
        Value::Int(-6) => Some(AcquireReply::WouldDeadlock),
        Value::Int(answer) => busy(*answer).map(AcquireReply::Busy),
        Value::Array(unlisted) if item.listing.is_some() => match unlisted[..] {
            [Value::Int(answer)] => busy(answer).map(AcquireReply::Unlisted),
            _ => None,
        },
        other if counter.is_some() => token(other).map(|token| AcquireReply::Granted(Some(token))),
        _ => None,
    };
    known.ok_or_else(|| unexpected(&answer))
}

/// What an unlock and a settlement say about a hold.
pub(crate) struct LoweredHold<'a> {
    pub(crate) key: &'a LockKey,
    pub(crate) field: &'a str,
    /// The count that the hold keeps.
    pub(crate) target: u32,
    /// For a semaphore with a ledger.
    pub(crate) view: LedgerView,
    /// The longest lease that was sent for the hold.
    pub(crate) lease: Duration,
    pub(crate) queue_timeouts: QueueTimeouts,
    /// The waiting list of the lock, if a final unlock may use it.
    pub(crate) list: Option<String>,
}

/// What the arguments and keys of a [`LoweredHold`] refer to.
struct LoweredTexts {
    more: SmallVec<[String; 3]>,
    channel: String,
    /// The part of the timeout keys' names before the field, if the hold has a mode.
    before_fields: String,
}

impl LoweredHold<'_> {
    fn texts(&self) -> LoweredTexts {
        let key = self.key;
        LoweredTexts {
            more: more_keys(key, self.field),
            channel: key.channel().unwrap_or_default(),
            before_fields: key.mode().map_or_else(String::new, |_| key.before_fields()),
        }
    }

    /// The arguments of its script. `may_wait`: the field may have a place in the server's queue, which the
    /// script has to remove.
    fn args<'a>(
        &'a self,
        texts: &'a LoweredTexts,
        publishes: &'a str,
        may_wait: bool,
    ) -> SmallVec<[Arg<'a>; 8]> {
        let mut args = smallvec![
            Arg::Text(self.field),
            Arg::Number(self.target.into()),
            Arg::Text(&texts.channel),
            Arg::Text(publishes),
        ];
        if let Some(mode) = self.key.mode() {
            args.push(Arg::Text(mode.name()));
            args.push(Arg::Text(&texts.before_fields));
            args.push(Arg::Number(lease::millis(self.lease)));
        }
        if self.key.kind().queue == QueueSide::Server {
            args.push(Arg::Number(lease::millis(self.queue_timeouts.fair_wait)));
            args.push(Arg::Number(u64::from(may_wait)));
        }
        for value in self.key.values() {
            args.push(Arg::Text(value));
        }
        args
    }
}

/// Lowers a hold's count to its target. See `lua/lock/unlock.lua`.
pub(crate) async fn unlock(
    server: &Server,
    hold: &LoweredHold<'_>,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<UnlockReply, Failure> {
    let &LoweredHold {
        key,
        field,
        target,
        view,
        ..
    } = hold;
    if key.kind().is_counted() {
        let is_known = semaphore::release(server, key, field, target, view, time, sent).await?;
        return Ok(match is_known {
            true => UnlockReply::Released(Woken::All),
            false => UnlockReply::Missing,
        });
    }
    let texts = hold.texts();
    let mut args = hold.args(&texts, server.publishes(), false);
    if key.kind().scripts.contend.is_some() {
        args.push(Arg::Text(hold.list.as_deref().unwrap_or_default()));
    }
    let call = ScriptCall {
        kind: CommandKind::Unlock,
        script: key.kind().scripts.unlock,
        keys: &with_more(key, &texts.more),
        args: &args,
    };
    match call.through(server, time, sent).await? {
        Value::Int(1) => Ok(UnlockReply::Released(Woken::All)),
        Value::Int(2) => Ok(UnlockReply::Released(Woken::One)),
        Value::Int(3) => Ok(UnlockReply::Released(Woken::NotListed)),
        Value::Int(0) => Ok(UnlockReply::Kept),
        Value::Nil => Ok(UnlockReply::Missing),
        other => Err(unexpected(&other)),
    }
}

/// Ends one hold and begins the next. See `lua/lock/transfer.lua`.
pub(crate) async fn transfer(
    server: &Server,
    key: &LockKey,
    hand_over: &HandOver<'_>,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<TransferReply, Failure> {
    if key.kind().is_counted() {
        return semaphore::transfer(server, key, hand_over, time, sent).await;
    }
    let counter = key.counter();
    let channel = key.channel().unwrap_or_default();
    let mut more_keys = more_keys(key, hand_over.ends);
    more_keys.extend(counter.clone());
    let mut args: SmallVec<[Arg<'_>; 8]> = smallvec![
        Arg::Text(hand_over.ends),
        Arg::Text(hand_over.begins),
        Arg::Number(lease::millis(hand_over.lease)),
        Arg::Text(&channel),
        Arg::Text(server.publishes()),
    ];
    if key.kind().queue == QueueSide::Server {
        args.push(Arg::Number(lease::millis(
            hand_over.queue_timeouts.fair_wait,
        )));
    } else if counter.is_some() {
        args.push(from(key));
    }
    if key.kind().scripts.contend.is_some() {
        args.push(Arg::Text(hand_over.list.unwrap_or_default()));
    }
    let call = ScriptCall {
        kind: CommandKind::Transfer,
        script: hand_over.script,
        keys: &with_more(key, &more_keys),
        args: &args,
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
        Some((listening @ (-3 | -1..), token)) => Ok(TransferReply::Handed {
            ended_first: listening != -3,
            // Below zero only if it is not known.
            listening: (listening >= 0).then(|| u32::try_from(listening).unwrap_or(u32::MAX)),
            token,
        }),
        _ => Err(unexpected(&answer)),
    }
}

/// Where the tokens begin, if its kind issues tokens.
fn from(key: &LockKey) -> Arg<'static> {
    Arg::Text(key.kind().counter.map_or("", |counter| counter.from))
}

/// Sets a hold's count to its target if the hold exists. See `lua/lock/settle.lua`.
pub(crate) async fn settle(
    server: &Server,
    connection: &Connection,
    hold: &LoweredHold<'_>,
    limit: Duration,
) -> Result<SettleReply, Failure> {
    let &LoweredHold {
        key,
        field,
        target,
        view,
        ..
    } = hold;
    if key.kind().is_counted() {
        let call = semaphore::settle(server, connection, key, field, target, view, limit);
        return Ok(match call.await? {
            true => SettleReply::Done,
            false => SettleReply::Missing,
        });
    }
    let texts = hold.texts();
    let call = ScriptCall {
        kind: CommandKind::Settle,
        script: key.kind().scripts.settle,
        keys: &with_more(key, &texts.more),
        args: &hold.args(&texts, server.publishes(), true),
    };
    match call.on(server, connection, limit).await? {
        // The script of an unlock that is used to settle answers 0 if claims are left.
        Value::Int(0 | 1) => Ok(SettleReply::Done),
        Value::Nil => Ok(SettleReply::Missing),
        other => Err(unexpected(&other)),
    }
}
