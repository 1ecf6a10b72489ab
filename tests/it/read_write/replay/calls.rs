//! Recorded calls, read from their Java and made through our API.

use std::time::Duration;

use lockdog::report::Ttl;
use lockdog::{Client, Error, Lock, Owner};

use super::SLOWER;
use crate::support::Redis;

/// One call of a thread.
pub(super) struct Call {
    name: String,
    reads: bool,
    owner: Owner,
    what: What,
}

enum What {
    Acquire {
        lease: Option<Duration>,
        /// `None`: without limit.
        wait: Option<Duration>,
    },
    Unlock,
    ForceUnlock,
    IsLocked,
    IsHeld,
    HoldCount,
    /// A call that our API does not have: the test sends the same command itself.
    Plain(Vec<&'static str>),
}

impl Call {
    pub(super) fn parse(text: &str, owner: Owner) -> Self {
        let (name, call) = match text.strip_prefix("getReadWriteLock(\"") {
            Some(rest) => rest.split_once("\").").expect("a call follows"),
            None => ("doc", text),
        };
        let call = call.replace("Lock().", "Lock.");
        let (object, call) = call.split_once('.').expect("a method follows");
        let (method, args) = call.split_once('(').expect("a call has parentheses");
        let args = args.strip_suffix(')').expect("a call has parentheses");
        let args: Vec<&str> = args.split(", ").filter(|arg| !arg.is_empty()).collect();
        let what = match (method, &args[..]) {
            ("lock", []) => acquire(None, None),
            ("lock", [lease, unit]) => acquire(Some(time(lease, unit)), None),
            ("tryLock", []) => acquire(None, Some(Duration::ZERO)),
            ("tryLock", [wait, unit]) => acquire(None, Some(time(wait, unit))),
            ("tryLock", [wait, lease, unit]) => {
                acquire(Some(time(lease, unit)), Some(time(wait, unit)))
            }
            ("unlock", []) => What::Unlock,
            ("forceUnlock", []) => What::ForceUnlock,
            ("isLocked", []) => What::IsLocked,
            ("isHeldByCurrentThread", []) => What::IsHeld,
            ("getHoldCount", []) => What::HoldCount,
            ("expire", ["Duration.ofSeconds(9)"]) => What::Plain(vec!["PEXPIRE", "doc", "45000"]),
            ("delete", []) => What::Plain(vec!["DEL", "doc"]),
            other => panic!("{text} is not known: {other:?}"),
        };
        Self {
            name: name.to_owned(),
            reads: object != "writeLock",
            owner,
            what,
        }
    }

    pub(super) async fn make(self, client: &Client, redis: &Redis) -> String {
        let rw = client.read_write_lock(&self.name);
        let lock: Lock = match self.reads {
            true => rw.read().into(),
            false => rw.write().into(),
        };
        let owner = &self.owner;
        let answer = match self.what {
            What::Acquire { lease, wait } => return acquired(&lock, owner, lease, wait).await,
            What::Unlock => lock.unlock().owner(owner).await.map(|_| String::new()),
            What::ForceUnlock => lock.force_unlock().await.map(|it| it.to_string()),
            What::IsLocked => lock.is_locked().await.map(|it| it.to_string()),
            What::IsHeld => lock.is_held_by(owner).await.map(|it| it.to_string()),
            What::HoldCount => {
                let count = owner.scope(lock.hold_count()).await;
                count.map(|it| it.to_string())
            }
            What::Plain(command) => {
                redis.cmd(&command).await;
                Ok("true".to_owned())
            }
        };
        answer.unwrap_or_else(|error| match error {
            Error::Lost(_) | Error::NotHeld(_) => "not held".to_owned(),
            other => panic!("{other}"),
        })
    }
}

/// As in ported code, the guard is forgotten.
async fn acquired(
    lock: &Lock,
    owner: &Owner,
    lease: Option<Duration>,
    wait: Option<Duration>,
) -> String {
    let guard = match wait {
        None => {
            let mut request = lock.lock().owner(owner);
            if let Some(lease) = lease {
                request = request.lease(lease);
            }
            match request.await {
                Ok(guard) => guard,
                Err(Error::WouldDeadlock { .. }) => return "would deadlock".to_owned(),
                Err(error) => panic!("{error}"),
            }
        }
        Some(wait) => {
            let mut request = lock.try_lock().owner(owner).wait(wait);
            if let Some(lease) = lease {
                request = request.lease(lease);
            }
            match request.await.expect("the servers answer") {
                Some(guard) => guard,
                None => return "false".to_owned(),
            }
        }
    };
    assert!(matches!(
        lock.remaining_ttl().await,
        Ok(Some(Ttl::Expires(_)))
    ));
    guard.forget();
    match wait {
        None => String::new(),
        Some(_) => "true".to_owned(),
    }
}

fn acquire(lease: Option<Duration>, wait: Option<Duration>) -> What {
    What::Acquire { lease, wait }
}

fn time(amount: &str, unit: &str) -> Duration {
    let amount = amount.parse().expect("a number");
    let time = match unit {
        "SECONDS" => Duration::from_secs(amount),
        "MILLISECONDS" => Duration::from_millis(amount),
        other => panic!("{other} is no unit"),
    };
    time * SLOWER
}
