//! The fair lock, Redisson's `getFairLock`, and the non-reentrant fair lock.

use super::{Kind, LazyScript, PLAIN, QueueSide, Script, Scripts};

/// Like the plain lock, but the server has a queue of the waiters of all clients, and grants the lock in
/// the order of that queue. Each waiter has a channel of its own, whose name begins with `channel`.
pub(crate) static FAIR: Kind = Kind {
    name: "fair lock",
    scripts: Scripts {
        acquire: &ACQUIRE,
        acquire_all: None,
        contend: None,
        unlock: &UNLOCK,
        settle: &UNLOCK,
        transfer: Some(&TRANSFER),
        force_unlock: &FORCE_UNLOCK,
        // `acquire_member` is never sent: a quorum has no order of its waiters.
        ..PLAIN.scripts
    },
    queue: QueueSide::Server,
    commands: &[OF_QUEUE],
    ..PLAIN
};

/// Refuses an owner that already holds it.
pub(crate) static NON_REENTRANT_FAIR: Kind = Kind {
    name: "non-reentrant fair lock",
    reentrant: false,
    ..FAIR
};

// Without LPUSH and RPUSH: the server refuses no argument of theirs, so a try would write.
pub(super) const OF_QUEUE: &[&str] = &[
    "time",
    "lindex redisson_lock_queue:{KEY} 0",
    "llen redisson_lock_queue:{KEY}",
    "lpop redisson_lock_queue:{KEY}",
    "lrange redisson_lock_queue:{KEY} 0 -1",
    "lrem redisson_lock_queue:{KEY} 0 x",
    "zadd lockdog_fair:{KEY} x f",
    "zcard lockdog_fair:{KEY}",
    "zmscore redisson_lock_timeout:{KEY} f",
    "zrange redisson_lock_timeout:{KEY} 0 -1",
    "zrem redisson_lock_timeout:{KEY} f",
    "zscore redisson_lock_timeout:{KEY} f",
];

// An election runs these too.
pub(super) static ACQUIRE: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/fair/acquire.lua")));
pub(super) static UNLOCK: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/fair/unlock.lua")));
pub(super) static TRANSFER: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/fair/transfer.lua")));
pub(super) static FORCE_UNLOCK: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/fair/force_unlock.lua")));
