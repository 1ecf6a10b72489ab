//! The connection that brings the locks' messages: who opens it, and where it is read.
//!
//! A message has to wake a waiter. Read on the waiter's own runtime, it does so without a hop from
//! one thread to another, which is a fifth of the way from an unlock to the next acquire. So a
//! waiter opens the connection where it runs, and the watchdog's thread takes it over: it keeps the
//! list of channels, and opens a connection itself where no waiter does. A runtime of one thread is
//! left alone: it may be driven now and then only, and would keep messages from everybody else.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Waiters;
use crate::server::Server;

/// What becomes of the one connection for messages.
#[derive(Default)]
pub(crate) struct Messages {
    stage: Mutex<Stage>,
    changed: Notify,
}

#[derive(Default)]
enum Stage {
    /// There is none.
    #[default]
    Nothing,
    /// A waiter opens it.
    Opening,
    /// A waiter opened it; the watchdog's thread is to take it.
    Open(Line),
    /// The watchdog's thread has it, or opens it.
    Kept,
}

/// A connection for messages that is being read.
pub(crate) struct Line {
    pub(crate) sink: PubSubSink,
    /// Cancelled when nobody reads it any more.
    pub(crate) ended: CancellationToken,
    _stops_reading: DropGuard,
}

/// A waiter's right to open the connection. Dropped unused, somebody else has to.
pub(super) struct Opening {
    waiters: Arc<Waiters>,
}

impl Messages {
    /// Waits for the connection that a waiter is opening, `limit` at most; `None` if no waiter does:
    /// then it is for the caller to open one.
    pub(crate) async fn take(&self, limit: Duration) -> Option<Line> {
        let opened = async {
            while self.is_opening() {
                self.changed.notified().await;
            }
        };
        let in_time = tokio::time::timeout(limit, opened).await;
        if in_time.is_err() {
            tracing::debug!("no connection for messages in time");
        }
        match std::mem::replace(&mut *self.stage.lock(), Stage::Kept) {
            Stage::Open(line) => Some(line),
            Stage::Nothing | Stage::Opening | Stage::Kept => None,
        }
    }

    fn is_opening(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Opening)
    }

    /// The connection is gone: the next waiter may open one.
    pub(crate) fn gone(&self) {
        *self.stage.lock() = Stage::Nothing;
    }

    /// Ends what was opened and not taken, and leaves the rest to the watchdog's thread.
    pub(super) fn close(&self) {
        *self.stage.lock() = Stage::Kept;
    }

    /// For a waiter that wants to hear something: its right to open the connection, if there is none.
    pub(super) fn begin(&self, waiters: &Arc<Waiters>) -> Option<Opening> {
        let runtime = Handle::current();
        let has_threads = runtime.runtime_flavor() == RuntimeFlavor::MultiThread
            && runtime.metrics().num_workers() > 1;
        if !has_threads {
            return None;
        }
        let mut stage = self.stage.lock();
        if !matches!(*stage, Stage::Nothing) {
            return None;
        }
        *stage = Stage::Opening;
        Some(Opening {
            waiters: waiters.clone(),
        })
    }
}

impl Opening {
    /// Opens the connection and reads it, on the runtime that this is called on.
    pub(super) async fn open(self, server: &Server, limit: Duration) {
        if let Some(connection) = open(server, limit).await {
            self.hand_over(connection);
        }
    }

    fn hand_over(&self, connection: PubSub) {
        let (sink, stream) = connection.split();
        let ended = CancellationToken::new();
        let stop = CancellationToken::new();
        let line = Line {
            sink,
            ended: ended.clone(),
            _stops_reading: stop.clone().drop_guard(),
        };
        let waiters = self.waiters.clone();
        // Ends with the line, which the watchdog's thread owns, or with this runtime.
        let tells = ended.drop_guard();
        #[expect(clippy::disallowed_methods, reason = "the line stops it")]
        tokio::spawn(async move {
            let _tells_that_it_ended = tells;
            stop.run_until_cancelled(waiters.hand_on(stream)).await;
        });
        let mut stage = self.waiters.messages.stage.lock();
        if matches!(*stage, Stage::Opening) {
            *stage = Stage::Open(line);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let messages = &self.waiters.messages;
        let mut stage = messages.stage.lock();
        if matches!(*stage, Stage::Opening) {
            *stage = Stage::Nothing;
        }
        drop(stage);
        messages.changed.notify_one();
    }
}

/// Opens a connection for messages; `None` if there is none within `limit`.
pub(crate) async fn open(server: &Server, limit: Duration) -> Option<PubSub> {
    // Boxed: it is large, and part of every acquire otherwise.
    match tokio::time::timeout(limit, Box::pin(server.open_pubsub(limit))).await {
        Ok(Ok(connection)) => return Some(connection),
        Ok(Err(failure)) => tracing::debug!(?failure, "no connection for messages"),
        Err(_) => tracing::debug!("no connection for messages in time"),
    }
    None
}

impl Waiters {
    /// Lets the contender of a lock try at each message of its channel, whatever the message says.
    /// Ends with the connection.
    pub(crate) async fn hand_on(&self, mut stream: PubSubStream) {
        while let Some(message) = stream.next().await {
            if let Some(key) = self.subscriptions.key_of(message.get_channel_name()) {
                self.hear(&key);
            }
        }
    }
}
