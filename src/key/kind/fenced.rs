//! The fenced lock, Redisson's `RFencedLock`.

use super::plain::contending;
use super::{CLOCK, Counter, Kind, LazyScript, PLAIN, Script, Scripts};

/// Like the plain lock, but each hold has a token, which is at least the server's clock in microseconds.
pub(crate) static FENCED: Kind = Kind {
    name: "fenced lock",
    scripts: Scripts {
        acquire: &ACQUIRE,
        acquire_all: None,
        contend: Some(&CONTEND),
        transfer: Some(&TRANSFER),
        ..PLAIN.scripts
    },
    counter: Some(COUNTER),
    commands: &[&["time"], OF_COUNTER],
    ..PLAIN
};

/// Its tokens are 1, 2, 3 and so on, as Redisson's.
pub(crate) static FENCED_FROM_ONE: Kind = Kind {
    name: "fenced lock from one",
    counter: Some(Counter {
        from: "one",
        ..COUNTER
    }),
    commands: &[OF_COUNTER],
    ..FENCED
};

/// The counter is Redisson's.
pub(super) const COUNTER: Counter = Counter {
    prefix: "redisson_lock_token",
    from: CLOCK,
};

pub(super) const OF_COUNTER: &[&str] = &[
    "get redisson_lock_token:{KEY}",
    "set redisson_lock_token:{KEY} x px x",
];

static ACQUIRE: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/fenced/acquire.lua")));
static CONTEND: LazyScript = LazyScript::new(|| contending(&ACQUIRE));
static TRANSFER: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/fenced/transfer.lua")));
