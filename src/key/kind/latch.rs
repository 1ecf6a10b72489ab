//! The count-down latch, Redisson's `RCountDownLatch`.

use super::{Kind, PLAIN};

/// It has a number and a channel, and no holds.
pub(crate) static LATCH: Kind = Kind {
    name: "latch",
    channel: Some("redisson_countdownlatch__channel__"),
    is_latch: true,
    reentrant: false,
    commands: &[&[
        "get KEY",
        "set lockdog_ledger:{KEY}:x x px x",
        "decrby KEY x",
    ]],
    // A latch has no holder, so these scripts are never sent.
    ..PLAIN
};
