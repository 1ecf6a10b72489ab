//! Asking a server that is thought to be silent whether it answers again.

use std::time::Duration;

use crate::server::{Failure, Private};
use crate::session::Core;

/// Asks one question at a time while the server is under suspicion, and nothing otherwise.
pub(super) async fn keep_probing(core: &Core, own: &Private) {
    loop {
        core.server.until_suspect().await;
        let mut pause = SHORTEST_PAUSE;
        while let Err(failure) = probe(core, own).await {
            tracing::debug!(?failure, "the server does not answer yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        core.server.answered();
        // What they met with is over.
        core.waiters.wake_all();
    }
}

/// Any answer is one, except that of a state that passes: asked for a lock, the server would say the
/// same.
async fn probe(core: &Core, own: &Private) -> Result<(), Failure> {
    let limit = core.server.command_timeout();
    let connection = own.connection(core.server.source(), limit).await;
    let answer = match &connection {
        Ok(connection) => connection.send(&redis::cmd("PING"), limit).await.map(drop),
        Err(failure) => Err(failure.clone()),
    };
    match answer {
        Err(failure) if failure.is_ambiguous() => {
            if let Ok(silent) = &connection {
                own.abandon(silent);
            }
            Err(failure)
        }
        Err(failure @ Failure::Unsent(_)) => Err(failure),
        Err(failure) if failure.passes() => Err(failure),
        Ok(()) | Err(_) => Ok(()),
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
