//! The permit-expirable semaphore, Redisson's `RPermitExpirableSemaphore`.

use super::{Kind, LazyScript, PLAIN, PermitKind, QueueSide, Script, Scripts};

/// Several owners may hold it at the same time, each with permits of its own.
pub(crate) static PERMIT: Kind = Kind {
    name: "permit",
    scripts: Scripts {
        acquire_all: Some(&ACQUIRE),
        contend: None,
        unlock: &RELEASE,
        settle: &RELEASE,
        touch: &TOUCH,
        renew: &RENEW,
        transfer: None,
        // A semaphore is no `Lock`, so its permits are acquired by `acquire_all` only, and no client frees it
        // by force. The other scripts are never sent.
        ..PLAIN.scripts
    },
    channel: Some("redisson_sc"),
    queue: QueueSide::Client,
    is_latch: false,
    reentrant: false,
    counter: None,
    permits: Some(PermitKind::Leased),
    mode: None,
    commands: &[
        OF_PERMITS,
        &[
            "zrange {KEY}:timeout 0 0",
            "zcard {KEY}:timeout",
            "persist {KEY}:timeout",
        ],
    ],
    publishes_value: false,
};

/// The commands that both kinds of semaphores need.
pub(super) const OF_PERMITS: &[&str] = &[
    "time",
    "get KEY",
    "set lockdog_ledger:{KEY}:x x px x",
    "incrby KEY x",
    "decrby KEY x",
    "zadd KEY x f",
    "zrem KEY f",
    "zscore KEY f",
    "zrangebyscore KEY 1 2",
    "zcount KEY 1 2",
];

static ACQUIRE: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/permit/acquire.lua")));
static RELEASE: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/permit/release.lua")));
/// Writes the number of free permits. A plain semaphore needs the same.
pub(super) static TOUCH: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/permit/touch.lua")));
static RENEW: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/permit/renew.lua")));
