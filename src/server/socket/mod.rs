//! The socket of one connection.

mod batch;
mod batches;
mod caller_count;
mod gathering;
#[cfg(test)]
#[path = "../../../tests/on_servers/socket.rs"]
mod on_servers;
mod queue;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};

use batches::Batches;
use caller_count::CallerCount;
use gathering::Gathering;

/// Sends commands, and several of one moment as one.
///
/// The server executes the commands in the order in which their futures were first polled. A command whose
/// future was dropped before it was written is never sent.
pub(super) struct Socket {
    multiplexed: MultiplexedConnection,
    callers: Arc<CallerCount>,
    gathering: Option<Gathering>,
    /// `None`: each command is sent by itself.
    batches: Option<Batches>,
}

impl Socket {
    /// A socket of a pool's connection: it sends each command by itself. The pool decides which runtime drives the
    /// connection and how many commands wait in its queue. If the callers of one moment filled that, a caller that is
    /// not polled would block the others.
    pub(super) fn pooled(multiplexed: MultiplexedConnection) -> Self {
        Self {
            multiplexed,
            callers: Arc::default(),
            gathering: None,
            batches: None,
        }
    }

    /// A socket that sends each command by itself. The current runtime drives it.
    pub(super) fn unbatched(multiplexed: MultiplexedConnection) -> Self {
        Self {
            gathering: Gathering::new(),
            ..Self::pooled(multiplexed)
        }
    }

    /// A socket that sends batches. The current runtime drives it.
    pub(super) fn batched(multiplexed: MultiplexedConnection) -> Self {
        let socket = Self::unbatched(multiplexed);
        let batches = Batches::new(socket.multiplexed.clone(), socket.callers.clone());
        Self {
            batches: Some(batches),
            ..socket
        }
    }

    /// Sends one command and waits for its answer, without a time limit.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        // It is counted until its answer.
        let caller = self.callers.add();
        // Each command asks this, so with few callers it is all that batches cost.
        if let Some(batches) = &self.batches
            && batches.are_due(&caller)
        {
            if let Some(script) = batch::script_of(command) {
                if let Some(answer) = batches.send(script, command).await {
                    return answer;
                }
            } else {
                // The commands that wait for a batch began before this one. It may be the settlement of one
                // of them, which must not overtake it.
                batches.flush();
            }
        }
        // A clone is a handle on the same socket. Sending needs `&mut`, so each command uses its own
        // clone.
        let mut multiplexed = self.multiplexed.clone();
        let mut sending = pin!(multiplexed.send_packed_command(command));
        // A caller without others has nobody to wait for.
        let mut gathering = self.gathering.as_ref().filter(|_| caller.position() > 1);
        poll_fn(|context| {
            let polled = sending.as_mut().poll(context);
            // As a rule the first poll gives the command to the connection.
            if let Some(gathering) = gathering.take() {
                gathering.begin();
            }
            polled
        })
        .await
    }

    /// Like [`Socket::send`], with `ASKING` before the command.
    pub(super) async fn send_asking(&self, command: &Cmd) -> RedisResult<Value> {
        if let Some(batches) = &self.batches {
            batches.flush();
        }
        // One write, so that no other command comes between the two.
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let answers = self
            .multiplexed
            .clone()
            .send_packed_commands(&both, 1, 1)
            .await?;
        Ok(answers.into_iter().next().unwrap_or(Value::Nil))
    }
}
