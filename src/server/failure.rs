//! What a command can come to other than an answer, and what that means.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;

use crate::error::{Error, passes};

/// How a command failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The connection broke after the command may have left: it may have run, or run later.
    Broken(Arc<str>),
    /// The server answered with an error: the command did nothing.
    Refused { code: String, message: String },
    /// No answer in time: it may have run, or run later.
    Silent(Duration),
    /// There was no connection to send it on: it did not run.
    Unsent(Arc<str>),
}

/// What to do about a failure while there is time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Remedy {
    /// Nothing helps.
    GiveUp,
    /// Take another connection and send it again.
    Reconnect,
    /// Send it again a little later.
    Wait,
}

impl Failure {
    /// Sorts out what redis-rs says of a command that was handed to a connection.
    pub(crate) fn of_command(error: RedisError, waited: Duration) -> Self {
        if let Some(refused) = Self::refused(&error) {
            return refused;
        }
        if error.is_timeout() {
            return Self::Silent(waited);
        }
        Self::Broken(error.to_string().into())
    }

    /// Sorts out what redis-rs says of an attempt to connect.
    pub(crate) fn of_connect(error: &RedisError) -> Self {
        Self::refused(error).unwrap_or_else(|| Self::Unsent(error.to_string().into()))
    }

    /// What the server said, where it is the server that said something.
    fn refused(error: &RedisError) -> Option<Self> {
        let message = error.detail().unwrap_or_default().to_owned();
        let code = if error.kind() == redis::ErrorKind::AuthenticationFailed {
            "WRONGPASS"
        } else {
            match error.code()? {
                "ERR" => code_within(&message),
                code => code,
            }
        };
        let code = code.to_owned();
        Some(Self::Refused { code, message })
    }

    /// The command may have run, or may run yet.
    pub(crate) fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Silent(_))
    }

    /// The server has no memory for what the command would write.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "OOM")
    }

    pub(crate) fn remedy(&self) -> Remedy {
        match self {
            Self::Broken(_) | Self::Unsent(_) => Remedy::Reconnect,
            Self::Refused { code, .. } if code == "READONLY" => Remedy::Reconnect,
            Self::Refused { code, message } if passes(code, message) => Remedy::Wait,
            Self::Refused { .. } | Self::Silent(_) => Remedy::GiveUp,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Broken(cause) | Failure::Unsent(cause) => Self::Unavailable { cause },
            Failure::Refused { code, message } => Self::Refused { code, message },
            Failure::Silent(waited) => Self::Timeout { waited },
        }
    }
}

/// Scripts wrap what their commands are told: Redis 6.2 everything, later ones a missing permission.
fn code_within(message: &str) -> &str {
    if message.starts_with("The user executing the script can't") {
        return "NOPERM";
    }
    if !message.starts_with("Error running script") {
        return "ERR";
    }
    let is_code =
        |word: &&str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    message
        .split([' ', ':', '-'])
        .find(is_code)
        .unwrap_or("ERR")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_inside_a_script_is_found() {
        let wrapped = "Error running script (call to f_6b1bf486): @user_script:16: \
                       @user_script: 16: -OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(code_within(wrapped), "OOM");
        let wrapped = "Error running script (call to f_6b1bf486): @user_script:5: WRONGTYPE \
                       Operation against a key holding the wrong kind of value";
        assert_eq!(code_within(wrapped), "WRONGTYPE");
        assert_eq!(code_within("unknown command"), "ERR");
        assert_eq!(
            code_within("The user executing the script can't run this command or subcommand"),
            "NOPERM"
        );
    }
}
