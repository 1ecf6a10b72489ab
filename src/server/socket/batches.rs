//! Collects the commands of many callers into batches, and drives these.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::batch::{BatchItem, BatchScript};
use super::caller_count::{CallerCount, CountedCaller};
use super::gathering::let_others_run;
use super::queue::{BatchQueue, ItemAnswer, MOST_UNANSWERED, Pushed};
use crate::panics;

/// The batches of one connection. A task of the runtime that opened the connection drives them, never a
/// caller's future: that may not be polled any more.
pub(super) struct Batches {
    shared: Arc<Shared>,
    /// Ends with the connection.
    task: AbortHandle,
}

struct Shared {
    multiplexed: MultiplexedConnection,
    queue: Mutex<BatchQueue>,
    callers: Arc<CallerCount>,
    /// Whether a command waits. Changed under the queue's lock, and read without it for each command.
    has_waiting: AtomicBool,
    /// Notified when a command waits or a batch was sent.
    changed: Notify,
}

impl Shared {
    /// Adds a command. `None` if the queue takes none.
    fn push(&self, item: BatchItem) -> Option<Pushed> {
        let mut queue = self.queue.lock();
        let pushed = queue.push(item)?;
        self.has_waiting.store(true, Ordering::Release);
        Some(pushed)
    }

    /// Gives the waiting commands to the connection: see [`BatchQueue::flush`]. Returns how many commands of batches
    /// have no answer then.
    fn flush(&self, most: usize) -> usize {
        let mut queue = self.queue.lock();
        queue.flush(&self.multiplexed, most);
        self.has_waiting
            .store(queue.waiting() > 0, Ordering::Release);
        queue.unanswered()
    }

    /// Closes the queue, because no task drives it any more. Returns its callers. The caller of this function drops
    /// them without the queue's lock, which wakes them.
    fn close(&self) -> Vec<oneshot::Sender<ItemAnswer>> {
        let mut queue = self.queue.lock();
        self.has_waiting.store(false, Ordering::Release);
        queue.close()
    }
}

impl Batches {
    pub(super) fn new(multiplexed: MultiplexedConnection, callers: Arc<CallerCount>) -> Self {
        let shared = Arc::new(Shared {
            multiplexed,
            queue: Mutex::default(),
            callers,
            has_waiting: AtomicBool::new(false),
            changed: Notify::new(),
        });
        let driver = Driver(shared.clone());
        #[expect(clippy::disallowed_methods, reason = "the drop of `Batches` ends it")]
        let task = tokio::spawn(async move { driver.run().await });
        Self {
            shared,
            task: task.abort_handle(),
        }
    }

    /// Whether the command of this caller has to be in a batch, or to wait until the others are sent.
    pub(super) fn are_due(&self, caller: &CountedCaller<'_>) -> bool {
        // A few callers send their commands immediately: a batch would save less than its task costs. But no
        // command overtakes those that wait already.
        caller.position() > FEW_CALLERS || self.has_waiting()
    }

    /// Whether a command waits for a batch.
    pub(super) fn has_waiting(&self) -> bool {
        self.shared.has_waiting.load(Ordering::Acquire)
    }

    /// Sends a command in a batch, and returns its answer; `None` if the caller has to send it by itself.
    ///
    /// # Cancel safety
    ///
    /// If dropped before the batch was sent, the command is never sent. If dropped later, it may run.
    pub(super) async fn send(
        &self,
        script: &'static BatchScript,
        command: &Cmd,
    ) -> Option<RedisResult<Value>> {
        let pushed = self.shared.push(BatchItem::new(script, command)?)?;
        if pushed.is_news {
            self.shared.changed.notify_one();
        }
        match pushed.answered.await {
            Ok(ItemAnswer::Answered(answer)) => Some(answer),
            Ok(ItemAnswer::Alone) => None,
            // The task that drives the batches has ended, with the connection's runtime.
            Err(_) => Some(Err(closed())),
        }
    }

    /// Sends all commands that wait, before a command that must not overtake them.
    pub(super) fn flush(&self) {
        if !self.has_waiting() {
            return;
        }
        self.shared.flush(usize::MAX);
        // The task has to wait for their answers.
        self.shared.changed.notify_one();
    }
}

#[cfg(test)]
impl Batches {
    /// Ends the task that drives the batches.
    pub(super) fn end(&self) {
        self.task.abort();
    }

    /// How many commands wait for a batch.
    pub(super) fn waiting(&self) -> usize {
        self.shared.queue.lock().waiting()
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Drives the batches of a connection.
struct Driver(Arc<Shared>);

impl Driver {
    async fn run(&self) {
        let Self(shared) = self;
        let mut quiet = 0;
        loop {
            let answered = poll_fn(|context| shared.queue.lock().poll_answer(context));
            tokio::select! {
                biased;
                answered = answered => {
                    let state = answered.give();
                    shared.queue.lock().note(state);
                }
                () = shared.changed.notified() => {}
            }
            // The callers that are about to run add their commands first.
            let_others_run().await;
            let unanswered = shared.flush(MOST_UNANSWERED);
            quiet = match unanswered as u64 {
                ..=FEW_CALLERS => quiet + 1,
                _ => 0,
            };
            if quiet >= LONG_QUIET {
                // More callers are counted than send commands: the futures of the others are not polled any more.
                shared.callers.restart();
                quiet = 0;
            }
        }
    }
}

/// No caller waits for batches that no task drives.
impl Drop for Driver {
    fn drop(&mut self) {
        for caller in self.0.close() {
            // This wakes the caller, which runs its own code.
            panics::catch(|| drop(caller));
        }
    }
}

fn closed() -> redis::RedisError {
    let closed = std::io::ErrorKind::BrokenPipe;
    std::io::Error::new(closed, "the connection's runtime has ended").into()
}

/// Up to this many callers at a time send their commands by themselves. With 16, batches cost a fifth of the rate;
/// with 64 and more they gain.
const FEW_CALLERS: u64 = 32;
/// After this many turns of the task in a row with at most [`FEW_CALLERS`] commands without an answer, there are few
/// callers.
const LONG_QUIET: u32 = 64;
