//! The calls that the client's thread sends until they are answered, whatever becomes of their callers.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Core;
use crate::clock::Moment;

/// Counts the calls without an answer.
#[derive(Default)]
pub(crate) struct UnansweredCalls {
    count: watch::Sender<usize>,
    /// The client ends, and waits for them no longer.
    given_up: CancellationToken,
}

/// One of them. It counts until it is dropped.
pub(crate) struct UnansweredCall {
    core: Arc<Core>,
}

impl Core {
    /// Waits for the calls without an answer, until `deadline`. Returns how many are left, for which the client
    /// waits no longer.
    pub(crate) async fn finish_calls(&self, deadline: Moment) -> usize {
        let UnansweredCalls { count, given_up } = &self.unanswered_calls;
        let mut counted = count.subscribe();
        tokio::select! {
            // The sender lives in `self`.
            _ = counted.wait_for(|count| *count == 0) => {}
            () = given_up.cancelled() => {}
            () = self.clock.sleep_until(deadline) => {}
        }
        given_up.cancel();
        *count.borrow()
    }
}

impl UnansweredCall {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        core.unanswered_calls.count.send_modify(|count| *count += 1);
        Self { core }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Drop for UnansweredCall {
    fn drop(&mut self) {
        let calls = &self.core.unanswered_calls;
        calls.count.send_modify(|count| *count -= 1);
    }
}
