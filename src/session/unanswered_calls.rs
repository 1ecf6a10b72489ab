//! The calls that the client's thread sends until they are answered, even if their callers are gone.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::Core;
use super::lane::Lane;
use crate::clock::Moment;
use crate::error::{Error, Result};

/// Counts the calls without an answer.
pub(crate) struct UnansweredCalls {
    /// At most this many.
    limit: u32,
    count: watch::Sender<usize>,
    /// The turns to send. Each lane has its own, so a silent server delays its own calls only.
    lanes: Mutex<HashMap<Lane, Weak<Semaphore>>>,
    /// The client ends, and waits for them no longer.
    given_up: CancellationToken,
}

/// One of them. It counts until it is dropped.
pub(crate) struct UnansweredCall {
    core: Arc<Core>,
}

impl UnansweredCalls {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            count: watch::Sender::default(),
            lanes: Mutex::default(),
            given_up: CancellationToken::new(),
        }
    }

    /// Waits for a turn to send, in the order of the calls. Never returns `None`.
    pub(crate) async fn turn(&self, lane: Lane) -> Option<OwnedSemaphorePermit> {
        let turns = {
            let mut lanes = self.lanes.lock();
            let known = lanes.get(&lane).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                lanes.retain(|_, turns| turns.strong_count() > 0);
                let turns = Arc::new(Semaphore::new(AT_ONCE));
                lanes.insert(lane, Arc::downgrade(&turns));
                turns
            })
        };
        // It is never closed.
        turns.acquire_owned().await.ok()
    }
}

impl Core {
    /// Waits for the calls without an answer, until `deadline`. Returns how many are left, for which the client
    /// waits no longer.
    pub(crate) async fn finish_calls(&self, deadline: Moment) -> usize {
        let UnansweredCalls {
            count, given_up, ..
        } = &self.unanswered_calls;
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
    /// Fails if there are too many.
    pub(crate) fn new(core: Arc<Core>) -> Result<Self> {
        let UnansweredCalls { count, limit, .. } = &core.unanswered_calls;
        let limit = *limit;
        let has_room = count.send_if_modified(|count| {
            let has_room = *count < limit as usize;
            *count += usize::from(has_room);
            has_room
        });
        match has_room {
            true => Ok(Self { core }),
            false => Err(Error::TooManyWaiters { limit }),
        }
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

/// This many together are enough to fill a connection.
const AT_ONCE: usize = 256;
