//! Follows the failovers of masters.

use std::sync::Arc;
use std::time::Duration;

use crate::hold::Hold;
use crate::observe::ClientEvent;
use crate::session::{Core, Job};

/// Finds out who the masters are, and checks the holds after a failover.
pub(super) async fn keep_following(core: &Arc<Core>) {
    let every = (core.settings.watchdog_lease / 6).clamp(OFTEN, SELDOM);
    tokio::join!(core.server.watch(every), follow(core));
}

async fn follow(core: &Core) {
    let mut switches = core.server.switches();
    // The number of switches whose effects were checked.
    let mut followed = *switches.borrow_and_update();
    let mut since = followed;
    let mut repeats = 0;
    loop {
        let pause = if repeats > 0 {
            SELDOM / REPEATS
        } else {
            SELDOM
        };
        tokio::select! {
            switched = switches.changed() => {
                if switched.is_err() {
                    return;
                }
                let before = followed;
                followed = *switches.borrow_and_update();
                let server = &core.server.address();
                core.observers().notify(|| ClientEvent::MasterSwitched { server });
                suspect_holds(core, before);
                if repeats == 0 {
                    since = before;
                }
                repeats = REPEATS;
            }
            () = tokio::time::sleep(pause) => match repeats {
                0 => core.holds.forget_gone(),
                _ => repeats -= 1,
            }
        }
        if repeats > 0 {
            // Answers of the old master may still be in flight, so this is repeated for a while.
            release_again(core, since, followed);
        }
    }
}

/// Marks the holds that the new master may not know: it lost the grants that the old one did not replicate in
/// time.
fn suspect_holds(core: &Core, since: u64) {
    let now = core.clock.now();
    for hold in core.holds.all() {
        // A hold without a lease is not renewed, so no answer would show that the server knows it.
        let has_lease = hold.key().kind().has_lease();
        if has_lease && core.server.was_switched(hold.key().key(), since) {
            core.holds.change(&hold, |state| state.suspect(now));
        }
    }
    // In a cluster, waiters are woken when the client has subscribed at the new master.
    if !core.server.is_cluster() {
        core.server.disconnect();
        core.waiters.wake_all();
    }
}

/// Repeats unlocks and settlements whose field may still exist on the new master, because the old one did not
/// replicate the release in time. This can affect no other hold, because no field is reused. Each hold is
/// released once after each switch of its server up to `followed`, because the next master may not get the
/// repeated release either.
fn release_again(core: &Core, since: u64, followed: u64) {
    let until = core.clock.now() + core.settings.watchdog_lease.max(A_MINUTE);
    let was_switched = |hold: &Hold| {
        let since = since.max(hold.state().released_after);
        core.server.was_switched(hold.key().key(), since)
    };
    for hold in core.holds.gone(was_switched) {
        let mut state = hold.state();
        state.remains_until = until;
        state.released_after = followed;
        drop(state);
        core.settle_in_background(Job::without_turn(hold));
    }
}

/// How often the watchdog looks for further holds to release again after a switch, within a second.
const REPEATS: u32 = 4;
const A_MINUTE: Duration = Duration::from_secs(60);
/// The pause between two checks for a new master.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(1);
