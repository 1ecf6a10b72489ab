//! The socket of one connection.

mod batch;
mod batches;
mod caller_count;
#[cfg(test)]
#[path = "../../../tests/on_servers/socket.rs"]
mod on_servers;
mod queue;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};

use batches::Batches;

/// Sends commands, and several of one moment as one.
///
/// The server executes the commands in the order in which their futures were first polled. A command whose
/// future was dropped before it was written is never sent.
pub(super) struct Socket {
    multiplexed: MultiplexedConnection,
    /// `None`: each command is sent by itself.
    batches: Option<Batches>,
}

impl Socket {
    /// A socket that sends each command by itself.
    pub(super) fn unbatched(multiplexed: MultiplexedConnection) -> Self {
        Self {
            multiplexed,
            batches: None,
        }
    }

    /// A socket that sends batches. The current runtime drives it.
    pub(super) fn batched(multiplexed: MultiplexedConnection) -> Self {
        let batches = Batches::new(multiplexed.clone());
        Self {
            multiplexed,
            batches: Some(batches),
        }
    }

    /// Sends one command and waits for its answer, without a time limit.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let mut _counted = None;
        if let Some(batches) = &self.batches {
            let caller = batches.count_caller();
            // Each command asks this, so with few callers it is all that batches cost.
            if batches.are_due(&caller) {
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
            // It is counted until its answer.
            _counted = Some(caller);
        }
        // A clone is a handle on the same socket. Sending needs `&mut`, so each command uses its own
        // clone.
        self.multiplexed.clone().send_packed_command(command).await
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
