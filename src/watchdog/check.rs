//! Checks the configuration of the servers that the client connects to.

use std::time::Duration;

use crate::diagnosis;
use crate::session::Core;

/// Checks, once for each, every server that answers at one of the client's addresses. Never ends.
pub(super) async fn keep_checking(core: &Core) {
    let Some(expected) = &core.settings.expected else {
        return std::future::pending().await;
    };
    loop {
        // A server that has just restarted first serves the calls that waited for it.
        let now = core.clock.now();
        let next = core.clock.wake_up_at(now + SELDOM, now, PAUSE);
        core.clock.sleep_until(next).await;
        let limit = core.server.command_timeout();
        Box::pin(diagnosis::check_new_servers(&core.server, expected, limit)).await;
    }
}

const PAUSE: Duration = Duration::from_secs(1);
/// The pause in virtual time, which advances quickly while there is nothing to do.
const SELDOM: Duration = Duration::from_secs(60);
