//! The semaphore, Redisson's `RSemaphore`.

use super::permit::{OF_PERMITS, TOUCH};
use super::{Kind, LazyScript, PLAIN, PermitKind, QueueSide, Script, Scripts};

/// Several owners may hold it at the same time, each with any number of permits.
pub(crate) static SEMAPHORE: Kind = Kind {
    name: "semaphore",
    scripts: Scripts {
        acquire_all: Some(&ACQUIRE),
        contend: None,
        unlock: &RELEASE,
        settle: &RELEASE,
        touch: &TOUCH,
        transfer: Some(&TRANSFER),
        // As with permits that have leases, the other scripts are never sent: a hold without a lease is not
        // renewed either.
        ..PLAIN.scripts
    },
    channel: Some("redisson_sc"),
    is_latch: false,
    reentrant: false,
    counter: None,
    queue: QueueSide::Client,
    permits: Some(PermitKind::Counted),
    mode: None,
    commands: &[
        OF_PERMITS,
        &[
            "zremrangebyscore lockdog_ledger:{KEY} x x",
            "persist lockdog_ledger:{KEY}",
        ],
    ],
    publishes_value: false,
};

static ACQUIRE: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/semaphore/acquire.lua")));
static RELEASE: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/semaphore/release.lua")));
static TRANSFER: LazyScript =
    LazyScript::new(|| Script::new(include_str!("../../../lua/semaphore/transfer.lua")));
