//! Servers, networks, clocks and holders that fail while a lock on many servers is acquired, held
//! and released.
//!
//! Each test proves that its fault took place, and then: no owner was inside beside a holder, a loser
//! was notified by its deadline, the lock can be acquired again, and no key is left.

mod cancelled;
mod clocks;
mod crowd;
mod ended;
mod fencing;
mod fixture;
mod frozen;
mod holders;
mod killed;
mod partitions;
mod passing;
mod refusals;
mod restarted;
mod slow;
mod stopped;
mod story;

use std::time::Duration;

const NAME: &str = "orders:42";

/// A hold outlasts a stall of three seconds before its first extension, and the lease runs out in a test.
const LEASE: Duration = Duration::from_millis(4_800);

/// How long a restarted server does not count, for locks whose longest lease is [`LEASE`].
const QUARANTINE: Duration = Duration::from_millis(4_848 + 2_000);

/// The plain acquire of a member, by its script's digest or text.
fn is_acquire(args: &[String]) -> bool {
    const TEXT: &str = include_str!("../../../lua/lock/acquire.lua");
    is_script(args, TEXT)
}

/// The release of a member whose acquire was not answered.
fn is_settlement(args: &[String]) -> bool {
    const TEXT: &str = include_str!("../../../lua/lock/settle.lua");
    is_script(args, TEXT)
}

fn is_script(args: &[String], text: &'static str) -> bool {
    let digest = redis::Script::new(text);
    args.get(1)
        .is_some_and(|given| given == digest.get_hash() || given == text)
}
