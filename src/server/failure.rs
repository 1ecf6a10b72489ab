//! What a command can come to other than an answer, and what that means.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;

use crate::error::Error;

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
        if let Some(code) = server_code(&error) {
            let message = error.detail().unwrap_or_default().to_owned();
            let (code, message) = unwrapped(&message).unwrap_or((code, message));
            return Self::Refused { code, message };
        }
        if error.is_timeout() {
            return Self::Silent(waited);
        }
        Self::Broken(error.to_string().into())
    }

    /// Sorts out what redis-rs says of an attempt to connect.
    pub(crate) fn of_connect(error: &RedisError) -> Self {
        match server_code(error) {
            Some(code) => Self::Refused {
                code,
                message: error.detail().unwrap_or_default().to_owned(),
            },
            None => Self::Unsent(error.to_string().into()),
        }
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

/// Whether an error answer is about a state of the server that passes by itself.
pub(crate) fn passes(code: &str, message: &str) -> bool {
    matches!(
        code,
        "ASK"
            | "BUSY"
            | "CLUSTERDOWN"
            | "LOADING"
            | "MASTERDOWN"
            | "MOVED"
            | "NOREPLICAS"
            | "READONLY"
            | "TRYAGAIN"
    ) || message.contains("max number of clients")
}

/// The code of an error that the server gave, which redis-rs tells only roughly.
fn server_code(error: &RedisError) -> Option<String> {
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return Some("WRONGPASS".to_owned());
    }
    error.code().map(str::to_owned)
}

/// The error inside an error: servers before 7.0 wrap what a command in a script met, as in
/// `ERR Error running script (call to f_..): @user_script:18: @user_script: 18: -OOM no memory`.
fn unwrapped(message: &str) -> Option<(String, String)> {
    let (_, inner) = message
        .strip_prefix("Error running script")?
        .rsplit_once("@user_script:")?;
    let (_line, error) = inner.trim_start().split_once(' ')?;
    let (code, message) = error.trim_start_matches('-').split_once(' ')?;
    let is_code = code.bytes().all(|byte| byte.is_ascii_uppercase());
    is_code.then(|| (code.to_owned(), message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::unwrapped;

    #[test]
    fn the_error_inside_a_scripts_error_is_found() {
        let script = "Error running script (call to f_0): @user_script:18: @user_script: 18: ";
        for error in ["-OOM command not allowed", "WRONGTYPE Operation against"] {
            let (code, message) = unwrapped(&format!("{script}{error}")).unwrap();
            assert!(
                error.ends_with(&format!("{code} {message}")),
                "{code} {message}"
            );
        }
        let own = "Error running script (call to f_0): @user_script:1: user_script:1: no way";
        assert_eq!(unwrapped(own), None);
        assert_eq!(unwrapped("unknown command"), None);
    }
}
