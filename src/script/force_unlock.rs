//! Frees a lock from its holder.

use std::time::Duration;

use redis::Value;

use super::more_keys::{more_keys, values, with_more};
use super::{Arg, LoweredHold, ScriptCall, UnlockReply, unexpected, unlock};
use crate::hold::LedgerView;
use crate::key::{LockKey, QueueTimeouts};
use crate::observe::CommandKind;
use crate::server::{Failure, Sent, Server, TimeBox};

/// Frees the lock from the holder with this field. See `lua/lock/force_unlock.lua`.
pub(crate) async fn force_unlock(
    server: &Server,
    key: &LockKey,
    field: &str,
    time: TimeBox,
) -> Result<bool, Failure> {
    if key.mode().is_some() {
        return force_unlock_in_mode(server, key, field, time).await;
    }
    let more = more_keys(key, field);
    let channel = key.channel().unwrap_or_default();
    let args = [field, &channel, server.publishes()].map(Arg::Text);
    let args: Vec<Arg<'_>> = args.into_iter().chain(values(key)).collect();
    let call = ScriptCall {
        kind: CommandKind::Force,
        script: key.kind().scripts.force_unlock,
        keys: &with_more(key, &more),
        args: &args,
    };
    let mut sent = Sent::default();
    let answer = call.through(server, time, &mut sent).await;
    server.abandon_unanswered(&answer, &sent);
    match answer? {
        Value::Int(1) => Ok(true),
        // If an earlier sending was not answered, that one may have freed the lock.
        Value::Int(0) => Ok(sent.repeated),
        other => Err(unexpected(&other)),
    }
}

/// As [`force_unlock`], for a hold that has a mode. See `lua/read_write/unlock.lua`.
async fn force_unlock_in_mode(
    server: &Server,
    key: &LockKey,
    field: &str,
    time: TimeBox,
) -> Result<bool, Failure> {
    let mut sent = Sent::default();
    // The client does not know the holder's lease. With zero, the script lowers the lock's TTL only if
    // this hold has determined it.
    let lowered = LoweredHold {
        key,
        field,
        target: 0,
        view: LedgerView::UNKNOWN,
        lease: Duration::ZERO,
        queue_timeouts: QueueTimeouts::default(),
        list: None,
    };
    let freed = unlock(server, &lowered, time, &mut sent).await;
    server.abandon_unanswered(&freed, &sent);
    Ok(match freed? {
        UnlockReply::Released(_) => true,
        UnlockReply::Kept => false,
        // If an earlier sending was not answered, that one may have freed the lock.
        UnlockReply::Missing => sent.repeated,
    })
}
