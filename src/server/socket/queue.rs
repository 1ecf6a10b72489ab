//! The commands that wait for a batch, and the batches without an answer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::sync::oneshot;

use super::batch::{self, BatchAnswer, BatchItem, BatchRefusal};
use crate::panics;

/// The commands that wait for a batch, and the batches that wait for an answer.
#[derive(Default)]
pub(super) struct BatchQueue {
    waiting: VecDeque<WaitingItem>,
    /// In the order of their sending, which is that of their answers.
    sent: VecDeque<SentBatch>,
    /// The server did not know the script, so the next batch has its text.
    unknown_script: bool,
    /// No task drives the queue any more, or the server refuses every batch: the queue takes no further command.
    closed: bool,
}

struct WaitingItem {
    item: BatchItem,
    answer: oneshot::Sender<ItemAnswer>,
}

/// A command that was added.
pub(super) struct Pushed {
    pub(super) answered: oneshot::Receiver<ItemAnswer>,
    /// The task that drives the queue must be notified.
    pub(super) is_news: bool,
}

/// What a caller gets.
pub(super) enum ItemAnswer {
    Answered(RedisResult<Value>),
    /// Its part of the batch did nothing. The caller has to send the command by itself.
    Alone,
}

/// A batch that was given to the connection.
struct SentBatch {
    callers: Vec<oneshot::Sender<ItemAnswer>>,
    /// It is a single command, whose answer is that of its caller.
    is_single: bool,
    answer: Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>,
}

/// The answer to a batch, and its callers.
pub(super) struct AnsweredBatch {
    batch: SentBatch,
    answer: RedisResult<Value>,
}

impl BatchQueue {
    /// Adds a command. `None` if the queue takes none.
    pub(super) fn push(&mut self, item: BatchItem) -> Option<Pushed> {
        if self.closed {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        let is_first = self.waiting.is_empty() && self.sent.len() < MOST_UNANSWERED;
        self.waiting.push_back(WaitingItem { item, answer });
        // Otherwise the one that drives the queue already knows of the others, or waits for the answer to a batch.
        let is_news = is_first || self.waiting.len() == MOST_PARTS;
        Some(Pushed { answered, is_news })
    }

    /// How many commands wait for a batch.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many commands have no answer, sent or not.
    pub(super) fn unanswered(&self) -> usize {
        let sent: usize = self.sent.iter().map(|batch| batch.callers.len()).sum();
        self.waiting.len() + sent
    }

    /// Gives the waiting commands to the connection: as full batches, and the rest while fewer than `most` batches have
    /// no answer.
    pub(super) fn flush(&mut self, multiplexed: &MultiplexedConnection, most: usize) {
        while self.is_due(most) {
            let next = self.waiting.len().min(MOST_PARTS);
            let (mut items, mut callers) = (Vec::with_capacity(next), Vec::with_capacity(next));
            for waiting in self.waiting.drain(..next) {
                // The caller has left, and counts on it that an unsent command is never sent.
                if !waiting.answer.is_closed() {
                    items.push(waiting.item);
                    callers.push(waiting.answer);
                }
            }
            if !items.is_empty() {
                self.send(multiplexed, items, callers);
            }
        }
    }

    fn is_due(&self, most: usize) -> bool {
        let is_full = self.waiting.len() >= MOST_PARTS;
        is_full || (!self.waiting.is_empty() && self.sent.len() < most)
    }

    fn send(
        &mut self,
        multiplexed: &MultiplexedConnection,
        mut items: Vec<BatchItem>,
        callers: Vec<oneshot::Sender<ItemAnswer>>,
    ) {
        let is_single = items.len() == 1;
        let command = match items.pop() {
            Some(item) if is_single => item.command(),
            last => {
                items.extend(last);
                batch::command(&items, std::mem::take(&mut self.unknown_script))
            }
        };
        let mut multiplexed = multiplexed.clone();
        let sending = async move { multiplexed.send_packed_command(&command).await };
        // Without a budget: a poll that only yields would leave the command unsent.
        let mut answer = tokio::task::unconstrained(sending).boxed();
        // The first poll gives the command to the connection, behind all earlier ones. The task that drives
        // the queue polls it again.
        let answer = match answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(answer) => std::future::ready(answer).boxed(),
            Poll::Pending => answer,
        };
        self.sent.push_back(SentBatch {
            callers,
            is_single,
            answer,
        });
    }

    /// The next batch that has its answer.
    pub(super) fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<AnsweredBatch> {
        let Some(first) = self.sent.front_mut() else {
            return Poll::Pending;
        };
        let Poll::Ready(answer) = first.answer.as_mut().poll(context) else {
            return Poll::Pending;
        };
        match self.sent.pop_front() {
            Some(batch) => Poll::Ready(AnsweredBatch { batch, answer }),
            None => Poll::Pending,
        }
    }

    /// Notes what the answer to a batch says of further ones.
    pub(super) fn note(&mut self, state: Option<BatchRefusal>) {
        self.unknown_script |= state == Some(BatchRefusal::UnknownScript);
        self.closed |= state == Some(BatchRefusal::Always);
    }

    /// Closes the queue, because no task drives it any more. Returns its callers. The caller of this function drops
    /// them without the queue's lock, which wakes them.
    pub(super) fn close(&mut self) -> Vec<oneshot::Sender<ItemAnswer>> {
        self.closed = true;
        let waiting = self.waiting.drain(..).map(|waiting| waiting.answer);
        let sent = self.sent.drain(..).flat_map(|batch| batch.callers);
        waiting.chain(sent).collect()
    }
}

impl AnsweredBatch {
    /// Gives each caller its answer. Returns why the server refused the batch, if it did. This wakes callers,
    /// so no lock may be held.
    pub(super) fn give(self) -> Option<BatchRefusal> {
        let Self { batch, answer } = self;
        let mut callers = batch.callers.into_iter();
        if batch.is_single {
            if let Some(caller) = callers.next() {
                send(caller, ItemAnswer::Answered(answer));
            }
            return None;
        }
        let answer = match answer {
            Ok(answer) => batch::read(answer, callers.len()),
            Err(error) => {
                // Each part may have run, or may still run.
                for caller in callers {
                    send(caller, ItemAnswer::Answered(Err(error.clone())));
                }
                return None;
            }
        };
        match answer {
            BatchAnswer::Each(answers) => {
                for (caller, answer) in callers.zip(answers) {
                    let answer =
                        answer.map_or(ItemAnswer::Alone, |it| ItemAnswer::Answered(Ok(it)));
                    send(caller, answer);
                }
                None
            }
            BatchAnswer::RefusedAll(refusal) => {
                for caller in callers {
                    send(caller, ItemAnswer::Answered(Ok(refusal.clone())));
                }
                None
            }
            BatchAnswer::Refused(refusal) => {
                for caller in callers {
                    send(caller, ItemAnswer::Alone);
                }
                Some(refusal)
            }
            BatchAnswer::Unexpected => {
                for caller in callers {
                    send(caller, ItemAnswer::Answered(Err(unexpected())));
                }
                None
            }
        }
    }
}

fn send(caller: oneshot::Sender<ItemAnswer>, answer: ItemAnswer) {
    // The caller may have left. Its command is settled like any other without an answer. And this wakes it,
    // which runs its own code: a panic there must not cost the other callers their answers.
    let _ = panics::catch(|| caller.send(answer).is_ok());
}

/// For an answer that the script never gives, for example one of a proxy.
fn unexpected() -> redis::RedisError {
    (redis::ErrorKind::Parse, "unexpected answer to a batch").into()
}

/// How many commands one batch has at most, so that it never occupies the server for long.
const MOST_PARTS: usize = 64;
/// How many batches are sent before the first of them is answered, if they are not full. More would make them smaller,
/// and fewer would leave the server without work while the callers prepare their next commands. A full batch gains
/// nothing by waiting, and a server that is far away would be without work for most of each round trip.
pub(super) const MOST_UNANSWERED: usize = 2;
