//! The faults that a test injects into a server and its connections.

use std::time::Duration;

use crate::reply::Refusal;

/// The active faults.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The delay of everything that the server sends.
    pub(crate) delay: Duration,
    /// How many more scripts run without a reply.
    pub(crate) lost_replies: u32,
    pub(crate) loses_messages: bool,
    refusals: Vec<Refused>,
}

#[derive(Debug)]
struct Refused {
    command: String,
    error: String,
    left: u32,
}

impl Faults {
    pub(crate) fn refuse(&mut self, command: &str, error: &str, times: u32) {
        let command = command.to_lowercase();
        self.refusals.retain(|refused| refused.command != command);
        if times > 0 {
            self.refusals.push(Refused {
                command,
                error: error.to_owned(),
                left: times,
            });
        }
    }

    /// The error for this call of a command, if the command must be refused.
    pub(crate) fn refusal(&mut self, command: &str) -> Option<Refusal> {
        if self.refusals.is_empty() {
            return None;
        }
        let at = self.refusals.iter().position(|it| it.command == command)?;
        let refused = &mut self.refusals[at];
        refused.left -= 1;
        let error = refused.error.clone();
        if refused.left == 0 {
            self.refusals.remove(at);
        }
        Some(Refusal::new(error))
    }

    /// Whether this reply is lost. Faults survive a restart, because they belong to the test and not to
    /// the server.
    pub(crate) fn takes_reply(&mut self) -> bool {
        let takes = self.lost_replies > 0;
        self.lost_replies -= u32::from(takes);
        takes
    }
}
