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
    let mut looks = 0;
    loop {
        let pause = if looks > 0 { SELDOM / LOOKS } else { SELDOM };
        tokio::select! {
            switched = switches.changed() => {
                if switched.is_err() {
                    return;
                }
                let before = followed;
                followed = *switches.borrow_and_update();
                let server = &core.server.address();
                core.observers().tell(|| ClientEvent::MasterSwitched { server });
                look(core, before);
                if looks == 0 {
                    since = before;
                }
                looks = LOOKS;
            }
            () = tokio::time::sleep(pause) => match looks {
                0 => core.holds.forget_gone(),
                _ => looks -= 1,
            }
        }
        if looks > 0 {
            // Answers of the old master may still be in flight, so this is repeated for a while.
            release_again(core, since, followed);
        }
    }
}

/// What the old master did not replicate in time is lost: its grants and its releases.
fn look(core: &Core, since: u64) {
    let now = core.clock.now();
    for hold in core.holds.all() {
        // What has no lease is not renewed, so the server cannot say that it knows it.
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

/// Repeats unlocks and settlements whose field may still exist on the new master. This can affect no
/// other hold, because no field is reused. Each is released once after each switch of its server up to
/// `followed`, because the next master may miss that release just as this one missed the first.
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

const LOOKS: u32 = 4;
const A_MINUTE: Duration = Duration::from_secs(60);
/// The pause between two checks for a new master.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(1);
