//! Following masters that may be switched.

use std::sync::Arc;
use std::time::Duration;

use crate::hold::Hold;
use crate::session::{Core, Job};

/// Keeps looking who the masters are, and what became of the holds when one was switched.
pub(super) async fn keep_following(core: &Arc<Core>) {
    let every = (core.settings.watchdog_lease / 6).clamp(OFTEN, SELDOM);
    tokio::join!(core.server.watch(every), follow(core));
}

async fn follow(core: &Core) {
    let mut switches = core.server.switches();
    // After so many switches, what they changed was looked at.
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
            // What was answered by the last master just before may have been on its way still.
            release_again(core, since, followed);
        }
    }
}

/// What the last master knew that was not replicated in time is gone: what it granted and what it was
/// told to release.
fn look(core: &Core, since: u64) {
    let now = core.clock.now();
    for hold in core.holds.all() {
        if core.server.was_switched(hold.key().key(), since) {
            core.holds.change(&hold, |state| state.suspect(now));
        }
    }
    // In a cluster waiters are woken when they hear the new master.
    if !core.server.is_cluster() {
        core.server.disconnect();
        core.waiters.wake_all();
    }
}

/// What was unlocked or settled may stand at the new master still. Nothing else can be met: no field is
/// used twice. Each is released once after each switch of its server up to `followed`: the next master
/// may know as little of that as this one knew of the first release.
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
/// Between two questions who the master is.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(1);
