//! The read/write lock, Redisson's `RReadWriteLock`: one kind for each of its two modes.

use super::{Kind, LazyScript, Mode, PLAIN, Script, Scripts};

/// Several owners may hold it at the same time.
pub(crate) static READ: Kind = Kind {
    name: "read lock",
    scripts: Scripts {
        renew: &RENEW,
        ..WRITE.scripts
    },
    mode: Some(Mode::Read),
    ..WRITE
};

/// One owner holds it. The same owner may have a read hold too.
pub(crate) static WRITE: Kind = Kind {
    name: "write lock",
    scripts: Scripts {
        acquire: &ACQUIRE,
        acquire_all: None,
        contend: None,
        unlock: &UNLOCK,
        settle: &UNLOCK,
        transfer: None,
        force_unlock: &UNLOCK,
        // A quorum refuses the lock, so its script for members is never sent.
        ..PLAIN.scripts
    },
    channel: Some("redisson_rwlock"),
    mode: Some(Mode::Write),
    commands: &[&[
        "time",
        "get lockdog_writer:{KEY}",
        "set lockdog_writer:{KEY} x px x",
        "hset KEY f x y",
        "hlen KEY",
        "hrandfield KEY 1",
    ]],
    ..PLAIN
};

static ACQUIRE: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/read_write/acquire.lua")));
static UNLOCK: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/read_write/unlock.lua")));
static RENEW: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/read_write/renew.lua")));
