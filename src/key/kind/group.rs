//! The lock of several values of a group, Redisson's `getMultiLock(group, values)`.

use super::{Kind, LazyScript, PLAIN, Script, Scripts};

/// All values are in one hash, each with its owner. A hold has a set of them: all or none.
pub(crate) static GROUP: Kind = Kind {
    name: "group lock",
    scripts: Scripts {
        acquire: &ACQUIRE,
        acquire_all: None,
        contend: None,
        unlock: &UNLOCK,
        settle: &UNLOCK,
        touch: &TOUCH,
        renew: &RENEW,
        transfer: None,
        force_unlock: &FORCE_UNLOCK,
        // A quorum refuses the lock, so its script for members is never sent.
        ..PLAIN.scripts
    },
    commands: &[&["time", "hmget KEY f", "hset KEY f x y", "hrandfield KEY 1"]],
    ..PLAIN
};

static ACQUIRE: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/group/acquire.lua")));
static UNLOCK: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/group/unlock.lua")));
static TOUCH: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/group/touch.lua")));
static RENEW: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/group/renew.lua")));
static FORCE_UNLOCK: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/group/force_unlock.lua")));
