//! The connection for the locks' messages: which task opens it, and where it is read.
//!
//! A message has to wake a waiter. If the waiter's own runtime reads the message, it need not pass from
//! one thread to another, which would take a fifth of the time from an unlock to the next acquire. So a
//! waiter opens the connection on its own runtime, in a task, so that no other waiter depends on the
//! waiter's future (design: invariant 14). The watchdog's thread then takes the connection over: it
//! keeps the list of channels, and opens a connection itself if no waiter does. A waiter on a
//! single-threaded runtime does not open one: such a runtime may be driven only now and then, and would
//! delay the messages of all waiters.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Waiters;
use crate::server::Server;

/// The state of the one connection for messages.
#[derive(Default)]
pub(crate) struct Messages {
    stage: Mutex<Stage>,
    changed: Notify,
}

#[derive(Default)]
enum Stage {
    /// There is no connection.
    #[default]
    Nothing,
    /// A waiter's task is opening it, and stops when this is dropped.
    Opening { _stops: DropGuard },
    /// A waiter opened it, and the watchdog's thread has not taken it yet.
    Open(MessageConnection),
    /// The watchdog's thread has it, or is opening it.
    Kept,
}

/// A connection for messages that is being read.
pub(crate) struct MessageConnection {
    pub(crate) sink: PubSubSink,
    /// Cancelled when the reader has ended.
    pub(crate) ended: CancellationToken,
    _stops_reading: DropGuard,
}

/// A waiter's right to open the connection. If it is dropped unused, another party has to open one.
pub(super) struct SubscriberOpening {
    waiters: Arc<Waiters>,
    /// Cancelled when the stage has changed.
    stop: CancellationToken,
}

impl Messages {
    /// Waits for the connection that a waiter is opening, at most for `limit`. Returns `None` if no
    /// waiter is opening one: then the caller has to open it.
    pub(crate) async fn take(&self, limit: Duration) -> Option<MessageConnection> {
        let opened = async {
            while self.is_opening() {
                self.changed.notified().await;
            }
        };
        let in_time = tokio::time::timeout(limit, opened).await;
        if in_time.is_err() {
            tracing::debug!(target: "lockdog::wait", "no connection for messages in time");
        }
        match std::mem::replace(&mut *self.stage.lock(), Stage::Kept) {
            Stage::Open(connection) => Some(connection),
            Stage::Nothing | Stage::Opening { .. } | Stage::Kept => None,
        }
    }

    fn is_opening(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Opening { .. })
    }

    /// The connection is gone: the next waiter may open one.
    pub(crate) fn gone(&self) {
        *self.stage.lock() = Stage::Nothing;
    }

    /// Closes a connection that was opened but not taken, and leaves the rest to the watchdog's thread.
    pub(super) fn close(&self) {
        *self.stage.lock() = Stage::Kept;
    }

    /// Gives a waiter that needs messages the right to open the connection, if there is no connection and the client
    /// is open: after the end of the watchdog's thread no party would take the connection over or close it.
    pub(super) fn begin(&self, waiters: &Arc<Waiters>) -> Option<SubscriberOpening> {
        let runtime = Handle::current();
        let has_threads = runtime.runtime_flavor() == RuntimeFlavor::MultiThread
            && runtime.metrics().num_workers() > 1;
        if !has_threads {
            return None;
        }
        let mut stage = self.stage.lock();
        // Checked while the stage is locked: the shutdown sets the flag and then ends the stage.
        let is_closed = waiters.closed.load(Ordering::Acquire);
        if is_closed || !matches!(*stage, Stage::Nothing) {
            return None;
        }
        let stop = CancellationToken::new();
        *stage = Stage::Opening {
            _stops: stop.clone().drop_guard(),
        };
        Some(SubscriberOpening {
            waiters: waiters.clone(),
            stop,
        })
    }
}

impl SubscriberOpening {
    /// Opens and reads the connection in a task on the current runtime. The task continues if the
    /// caller is dropped.
    pub(super) fn begin(self, server: &Server) {
        let open = open(server, server.command_timeout());
        let stop = self.stop.clone();
        let opening = async move {
            if let Some(connection) = open.await {
                self.hand_over(connection);
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the stage and a time limit stop it"
        )]
        tokio::spawn(async move { stop.run_until_cancelled(opening).await });
    }

    fn hand_over(&self, connection: PubSub) {
        let (sink, stream) = connection.split();
        let ended = CancellationToken::new();
        let stop = CancellationToken::new();
        let opened = MessageConnection {
            sink,
            ended: ended.clone(),
            _stops_reading: stop.clone().drop_guard(),
        };
        let waiters = self.waiters.clone();
        // Ends with the connection, which the watchdog's thread owns, or with this runtime.
        let guard = ended.drop_guard();
        #[expect(clippy::disallowed_methods, reason = "the drop of `opened` stops it")]
        tokio::spawn(async move {
            let _cancels_when_it_ends = guard;
            stop.run_until_cancelled(waiters.handle_messages(stream))
                .await;
        });
        let mut stage = self.waiters.messages.stage.lock();
        if !self.stop.is_cancelled() {
            *stage = Stage::Open(opened);
        }
    }
}

impl Drop for SubscriberOpening {
    fn drop(&mut self) {
        let messages = &self.waiters.messages;
        let mut stage = messages.stage.lock();
        if !self.stop.is_cancelled() {
            *stage = Stage::Nothing;
        }
        drop(stage);
        messages.changed.notify_one();
    }
}

/// Opens a connection for messages; `None` if that fails or takes longer than `limit`.
pub(crate) fn open(
    server: &Server,
    limit: Duration,
) -> impl Future<Output = Option<PubSub>> + Send + use<> {
    let opened = server.open_pubsub(limit);
    async move {
        match tokio::time::timeout(limit, opened).await {
            Ok(Ok(connection)) => return Some(connection),
            Ok(Err(failure)) => tracing::debug!(
                target: "lockdog::wait",
                %failure, "no connection for messages"
            ),
            Err(_) => tracing::debug!(
                target: "lockdog::wait",
                "no connection for messages in time"
            ),
        }
        None
    }
}

impl Waiters {
    /// Wakes the contenders of a channel's locks at each message of that channel, also if the text of the
    /// message is unknown. Ends with the connection.
    pub(crate) async fn handle_messages(&self, mut stream: PubSubStream) {
        while let Some(message) = stream.next().await {
            let channel = message.get_channel_name();
            for key in self.subscriptions.locks_on(channel) {
                self.handle_message_text(&key, channel, message.get_payload_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::clock::Clock;

    /// The thread has lost its connection. It says so after the shutdown has begun, and ends soon after that.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_waiter_opens_no_connection_for_a_client_that_is_shut_down() {
        let poll_cap = Duration::from_secs(60);
        let waiters = Waiters::new(Uuid::nil(), Clock::default(), poll_cap, 1_000, true);
        let waiters = Arc::new(waiters);
        assert!(waiters.messages.begin(&waiters).is_some());
        waiters.close();
        waiters.messages.gone();
        assert!(waiters.messages.begin(&waiters).is_none());
    }
}
