//! Following a master that may be switched.

use std::sync::Arc;
use std::time::Duration;

use crate::session::{Core, Job};

/// Keeps looking who the master is, and what became of the holds when it was switched.
pub(super) async fn keep_following(core: &Arc<Core>) {
    let mut switches = core.server.switches();
    let every = (core.settings.watchdog_lease / 6).clamp(OFTEN, SELDOM);
    let following = async {
        loop {
            tokio::select! {
                switched = switches.changed() => if switched.is_err() { return },
                () = tokio::time::sleep(SELDOM) => {
                    core.holds.forget_gone();
                    continue;
                }
            }
            follow(core);
            // What was answered by the last master just before may be on its way here still.
            for _ in 0..LOOKS {
                tokio::time::sleep(SELDOM / LOOKS).await;
                release_again(core);
            }
        }
    };
    tokio::join!(core.server.watch(every), following);
}

/// What the last master knew that was not replicated in time is gone: what it granted and what it was
/// told to release.
fn follow(core: &Core) {
    core.server.disconnect();
    let now = core.clock.now();
    for hold in core.holds.all() {
        core.holds.change(&hold, |state| state.doubt(now));
    }
    release_again(core);
    core.waiters.wake_all();
}

/// What was unlocked may stand at the new master still. Nothing else can be met: no field is used twice.
fn release_again(core: &Core) {
    let until = core.clock.now() + core.settings.watchdog_lease.max(A_MINUTE);
    for hold in core.holds.gone() {
        let mut state = hold.state();
        state.remains_until = until;
        // It is not to be remembered once more.
        state.granted = false;
        drop(state);
        core.owe(Job::regardless(hold));
    }
}

const LOOKS: u32 = 4;
const A_MINUTE: Duration = Duration::from_secs(60);
/// Between two questions who the master is.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(1);
