//! Acquiring several locks together.

use std::num::NonZeroU64;
use std::time::Duration;

use redis::Value;

use super::permit::{self, PermitReply};
use super::semaphore::{self, SemaphoreReply};
use super::{AcquireItem, AcquireReply, Arg, ScriptCall, acquire, unexpected};
use crate::key::Script;
use crate::key::kind::PermitKind;
use crate::lease;
use crate::observe::CommandKind;
use crate::server::{Failure, Sent, Server, TimeBox};

/// The result of acquiring several holds, of locks or of permits of one semaphore. A hold is given by its index in the list.
#[derive(Debug)]
pub(crate) enum BatchReply {
    Granted {
        /// The fencing token of a hold that has a command of its own, if its kind issues tokens.
        token: Option<NonZeroU64>,
        /// How many permits are left; 0 for locks.
        free: u64,
        /// How many permits each hold has; 1 for locks.
        permits: u32,
    },
    /// Another owner has this lock, or too few permits are free. Contains the TTL of that hold or of the
    /// next permit to expire, if it has one.
    Busy(usize, Option<Duration>),
    /// This was a re-entry, and the hold is gone.
    Gone(usize),
}

/// Raises the counts of all holds to their targets, or of none. The kinds of all holds share the
/// script. If a kind has no such script, its hold is the only one in the list. If they are permits, all of
/// them are of one semaphore. See `lua/multi_lock/acquire.lua`. An error contains the hold that it is about, if the server names it.
pub(crate) async fn acquire_all(
    server: &Server,
    wanted: &[AcquireItem<'_>],
    lease: Duration,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<BatchReply, (Option<usize>, Failure)> {
    let Some(first) = wanted.first() else {
        return Ok(GRANTED);
    };
    let Some(script) = first.key.kind().scripts.acquire_all else {
        return alone(server, first, lease, time, sent).await;
    };
    match first.key.kind().permits {
        Some(PermitKind::Leased) => {
            return permits(server, script, wanted, lease, time, sent).await;
        }
        Some(PermitKind::Counted) => return counted(server, script, first, time, sent).await,
        None => {}
    }
    let keys: Vec<&str> = wanted.iter().map(|hold| hold.key.key()).collect();
    let mut args = Vec::with_capacity(1 + 2 * wanted.len());
    args.push(Arg::Number(lease::millis(lease)));
    for hold in wanted {
        args.push(Arg::Text(&hold.field));
        args.push(Arg::Number(hold.target.into()));
    }
    let call = ScriptCall {
        kind: CommandKind::Acquire,
        script,
        keys: &keys,
        args: &args,
    };
    let answer = call.through(server, time, sent).await;
    let answer = answer.map_err(|failure| {
        server.note_slots(&failure);
        about(failure, wanted.len())
    })?;
    match answer {
        Value::Nil => return Ok(GRANTED),
        Value::Array(ref answers) => {
            if let [Value::Int(which), Value::Int(ttl)] = answers[..]
                && let Some(which) = place(which, wanted.len())
            {
                match ttl {
                    -3 => return Ok(BatchReply::Gone(which)),
                    -1 => return Ok(BatchReply::Busy(which, None)),
                    0.. => {
                        let ttl = Duration::from_millis(ttl as u64);
                        return Ok(BatchReply::Busy(which, Some(ttl)));
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    Err((None, unexpected(&answer)))
}

const GRANTED: BatchReply = BatchReply::Granted {
    token: None,
    free: 0,
    permits: 1,
};

/// As [`acquire_all`], for permits of one semaphore.
async fn permits(
    server: &Server,
    script: &'static Script,
    wanted: &[AcquireItem<'_>],
    lease: Duration,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<BatchReply, (Option<usize>, Failure)> {
    let Some(AcquireItem { key, .. }) = wanted.first() else {
        return Ok(GRANTED);
    };
    let ids: Vec<&str> = wanted.iter().map(|permit| &*permit.field).collect();
    let acquired = permit::acquire(server, script, key, &ids, lease, time, sent).await;
    Ok(match acquired.map_err(|failure| (None, failure))? {
        PermitReply::Granted { free } => BatchReply::Granted {
            token: None,
            free,
            permits: 1,
        },
        PermitReply::TooFew { next } => BatchReply::Busy(0, next),
    })
}

/// As [`acquire_all`], for one hold that has any number of permits.
async fn counted(
    server: &Server,
    script: &'static Script,
    AcquireItem {
        key, field, target, ..
    }: &AcquireItem<'_>,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<BatchReply, (Option<usize>, Failure)> {
    let acquired = semaphore::acquire(server, script, key, field, *target, time, sent).await;
    Ok(match acquired.map_err(|failure| (Some(0), failure))? {
        SemaphoreReply::Granted { free, permits } => BatchReply::Granted {
            token: None,
            free,
            permits,
        },
        SemaphoreReply::TooFew => BatchReply::Busy(0, None),
        SemaphoreReply::Ended => BatchReply::Gone(0),
    })
}

/// As [`acquire_all`], for one hold of a kind that has no script for several.
async fn alone(
    server: &Server,
    item: &AcquireItem<'_>,
    lease: Duration,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<BatchReply, (Option<usize>, Failure)> {
    let acquired = acquire(server, item, lease, time, sent).await;
    match acquired.map_err(|failure| (Some(0), failure))? {
        AcquireReply::Granted(token) => Ok(BatchReply::Granted {
            token,
            free: 0,
            permits: 1,
        }),
        // The client refuses a call that would deadlock before it sends a command. So the reason for the
        // deadlock is new, and it is transient.
        AcquireReply::WouldDeadlock => Ok(BatchReply::Busy(0, None)),
        AcquireReply::Busy(ttl) | AcquireReply::Unlisted(ttl) => Ok(BatchReply::Busy(0, ttl)),
        AcquireReply::Gone => Ok(BatchReply::Gone(0)),
    }
}

/// Removes the name of a key from the end of a refusal. Only the server's address may follow the
/// name.
fn about(failure: Failure, holds: usize) -> (Option<usize>, Failure) {
    let Failure::Refused { code, message } = failure else {
        return (None, failure);
    };
    let named = message.rsplit_once(" KEYS[").and_then(|(words, key)| {
        let (which, server) = key.split_once(']')?;
        let is_end = server.is_empty() || server.starts_with("; server=");
        let which = which.parse().ok().filter(|_| is_end)?;
        Some((format!("{words}{server}"), place(which, holds)?))
    });
    match named {
        Some((message, which)) => (Some(which), Failure::Refused { code, message }),
        None => (None, Failure::Refused { code, message }),
    }
}

/// The index for a number from Lua, which counts from 1.
fn place(number: i64, holds: usize) -> Option<usize> {
    let which = usize::try_from(number).ok()?.checked_sub(1)?;
    (which < holds).then_some(which)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_key_only_if_it_is_one_of_the_keys() {
        let refused = |message: &str| {
            let code = "WRONGTYPE".to_owned();
            let message = message.to_owned();
            let (which, failure) = about(Failure::Refused { code, message }, 2);
            let Failure::Refused { message, .. } = failure else {
                panic!("it stays a refusal");
            };
            (which, message)
        };
        assert_eq!(refused("no hash KEYS[2]"), (Some(1), "no hash".to_owned()));
        assert_eq!(
            refused("no hash KEYS[1]; server=a:1"),
            (Some(0), "no hash; server=a:1".to_owned())
        );
        for other in [
            "no hash",
            "no hash KEYS[3]",
            "no KEYS[0]",
            "KEYS[x]",
            "no KEYS[1] a hash",
            " KEYS[1",
        ] {
            assert_eq!(refused(other), (None, other.to_owned()));
        }
    }
}
