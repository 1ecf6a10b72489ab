//! A leader election: a fair lock whose holder has a term and publishes a value. Redisson has none.

use super::fair;
use super::fenced::{COUNTER, OF_COUNTER};
use super::{Kind, LazyScript, NON_REENTRANT_FAIR, PLAIN, Script, Scripts};

/// Like the non-reentrant fair lock, but each hold has a fencing token, the term.
pub(crate) static ELECTION: Kind = Kind {
    name: "election",
    scripts: Scripts {
        acquire: &ACQUIRE,
        unlock: &UNLOCK,
        settle: &UNLOCK,
        renew: &RENEW,
        transfer: Some(&TRANSFER),
        force_unlock: &FORCE_UNLOCK,
        ..NON_REENTRANT_FAIR.scripts
    },
    counter: Some(COUNTER),
    commands: &[fair::OF_QUEUE, OF_COUNTER],
    publishes_value: true,
    ..NON_REENTRANT_FAIR
};

/// The channel on which the leaders of an election publish values. It has no holds.
pub(crate) static NEWS: Kind = Kind {
    name: "news of an election",
    channel: Some(NEWS_PREFIX),
    // It has no holder, so these scripts are never sent.
    ..PLAIN
};

/// The prefix of the key with the leader's value, which is also the prefix of the channel.
pub(crate) const NEWS_PREFIX: &str = "lockdog_leader";

static ACQUIRE: LazyScript = LazyScript::new(|| {
    let text = include_str!("../../../lua/election/acquire.lua");
    Script::calling("fair", &fair::ACQUIRE, text)
});
static UNLOCK: LazyScript = LazyScript::new(|| {
    let text = include_str!("../../../lua/election/unlock.lua");
    Script::calling("fair", &fair::UNLOCK, text)
});
static RENEW: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/election/renew.lua")));
static TRANSFER: LazyScript = LazyScript::new(|| {
    let text = include_str!("../../../lua/election/transfer.lua");
    Script::calling("fair", &fair::TRANSFER, text)
});
static FORCE_UNLOCK: LazyScript = LazyScript::new(|| {
    let text = include_str!("../../../lua/election/force_unlock.lua");
    Script::calling("fair", &fair::FORCE_UNLOCK, text)
});
