//! The plain lock, Redisson's `RLock`.

use super::{Kind, LazyScript, QueueSide, Script, Scripts};

pub(crate) static PLAIN: Kind = Kind {
    name: "lock",
    scripts: Scripts {
        acquire: &ACQUIRE,
        acquire_all: Some(&ACQUIRE_ALL),
        contend: Some(&CONTEND),
        acquire_member: &ACQUIRE_MEMBER,
        unlock: &UNLOCK,
        settle: &SETTLE,
        touch: &TOUCH,
        renew: &RENEW,
        transfer: Some(&TRANSFER),
        force_unlock: &FORCE_UNLOCK,
    },
    channel: Some("redisson_lock__channel"),
    queue: QueueSide::Client,
    is_latch: false,
    reentrant: true,
    counter: None,
    permits: None,
    mode: None,
    commands: &[],
    publishes_value: false,
};

static ACQUIRE: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/lock/acquire.lua")));
static CONTEND: LazyScript = LazyScript::new(|| contending(&ACQUIRE));
static ACQUIRE_ALL: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/multi_lock/acquire.lua")));
static ACQUIRE_MEMBER: LazyScript = LazyScript::new(|| {
    let text = include_str!("../../../lua/red_lock/acquire.lua");
    Script::calling("plain", &ACQUIRE, text)
});
static UNLOCK: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/lock/unlock.lua")));
static SETTLE: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/lock/settle.lua")));
static TOUCH: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/lock/touch.lua")));
static RENEW: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/lock/renew.lua")));
static TRANSFER: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/lock/transfer.lua")));
static FORCE_UNLOCK: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/lock/force_unlock.lua")));

/// The script that acquires with this one for a waiting client.
pub(super) fn contending(acquire: &Script) -> Script {
    let text = include_str!("../../../lua/lock/contend.lua");
    Script::of_several(&[("acquire", acquire)], text)
}

/// Acquires and unlocks for several callers in one command.
pub(crate) static BATCH: LazyScript = LazyScript::new(|| {
    let text = include_str!("../../../lua/lock/batch.lua");
    Script::of_several(&[("acquire", &ACQUIRE), ("unlock", &UNLOCK)], text)
});
