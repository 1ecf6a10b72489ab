//! Looking at how the servers are set up that the client meets.

use std::time::Duration;

use crate::diagnosis;
use crate::session::Core;

/// Looks once at each server that answers at an address of the client's. Never ends.
pub(super) async fn keep_checking(core: &Core) {
    let Some(expected) = &core.settings.expected else {
        return std::future::pending().await;
    };
    loop {
        // A server that has just come back has other things to do first.
        let now = core.clock.now();
        let next = core.clock.look_again(now + SELDOM, now, PAUSE);
        core.clock.sleep_until(next).await;
        let limit = core.server.command_timeout();
        Box::pin(diagnosis::check_new_servers(&core.server, expected, limit)).await;
    }
}

const PAUSE: Duration = Duration::from_secs(1);
/// Where time passes as fast as there is nothing to do.
const SELDOM: Duration = Duration::from_secs(60);
