//! Locks that Redisson makes of several others.

use std::time::Duration;

use serde_json::{Value, json};

use super::{FromAnswer, JavaError, JavaThread, PendingCall, millis};

/// A lock of several, for one thread. Its calls are those of [`JavaThread`] for a plain lock.
pub(crate) struct JavaSeveral {
    thread: JavaThread,
    several: Value,
}

impl JavaThread {
    /// `new RedissonMultiLock(...)` of these locks, by the number of the client and the name. The
    /// first client is number 0, those added with [`Builder::and`](super::Builder::and) follow.
    pub(crate) fn multi(&self, members: &[(usize, &str)]) -> JavaSeveral {
        JavaSeveral {
            thread: self.clone(),
            several: json!({ "several": "multi", "members": members }),
        }
    }
}

impl JavaSeveral {
    pub(crate) fn start_lock(&self) -> PendingCall<()> {
        self.call("lock", json!({}))
    }

    pub(crate) fn start_lock_for(&self, lease: Duration) -> PendingCall<()> {
        self.call("lock", json!({ "leaseMs": millis(lease) }))
    }

    pub(crate) fn start_try_lock(
        &self,
        wait: Duration,
        lease: Option<Duration>,
    ) -> PendingCall<bool> {
        let mut arguments = json!({ "waitMs": millis(wait) });
        if let Some(lease) = lease {
            arguments["leaseMs"] = millis(lease).into();
        }
        self.call("tryLock", arguments)
    }

    pub(crate) async fn try_lock(&self) -> bool {
        self.call("tryLock", json!({})).value().await
    }

    pub(crate) fn start_unlock(&self) -> PendingCall<()> {
        self.call("unlock", json!({}))
    }

    pub(crate) async fn unlock(&self) -> Result<(), JavaError> {
        self.start_unlock().answer().await.result
    }

    /// `isHeldByCurrentThread()`.
    pub(crate) async fn is_held(&self) -> bool {
        self.call("isHeldByCurrentThread", json!({})).value().await
    }

    /// See [`JavaThread::cell`]; the string is on the first client's server.
    pub(crate) fn start_cell(&self, key: &str, rounds: u32, pause: Duration) -> PendingCall<()> {
        let arguments = json!({ "key": key, "rounds": rounds, "pauseMs": millis(pause) });
        self.call("cell", arguments)
    }

    fn call<T: FromAnswer>(&self, call: &str, mut arguments: Value) -> PendingCall<T> {
        for field in ["several", "members"] {
            arguments[field] = self.several[field].clone();
        }
        self.thread.call(call, arguments)
    }
}
