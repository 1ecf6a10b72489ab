//! The failures of a command, and what they mean.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;

use crate::error::{Error, passes};

/// How a command failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The connection broke after the command may have been sent. The command may have run, or may
    /// still run.
    Broken(Arc<str>),
    /// The server answered with an error. The command did nothing.
    Refused { code: String, message: String },
    /// No answer in time. The command may have run, or may still run.
    Silent {
        waited: Duration,
        /// The server that was asked, if the deployment has several servers.
        server: Option<Arc<str>>,
    },
    /// There was no connection to send it on. The command did not run.
    Unsent(Arc<str>),
    /// The client was shut down before it was sent. The command did not run.
    Closed,
}

/// The format of log lines. The first word must not change, because users search for it.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(cause) => write!(f, "broken: {cause}"),
            Self::Refused { code, message } => write!(f, "refused: {code} {message}"),
            Self::Silent { waited, server } => {
                write!(f, "silent: no answer in {waited:?}")?;
                match server {
                    Some(server) => write!(f, "; server={server}"),
                    None => Ok(()),
                }
            }
            Self::Unsent(cause) => write!(f, "unsent: {cause}"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// How to handle a failure while there is time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Remedy {
    /// A retry would not help.
    GiveUp,
    /// Retry on another connection.
    Reconnect,
    /// Retry a little later.
    Wait,
}

impl Failure {
    /// Classifies redis-rs's error about a command that was given to a connection.
    pub(crate) fn of_command(error: RedisError, waited: Duration) -> Self {
        if let Some(refused) = Self::refused(&error) {
            return refused;
        }
        if error.is_timeout() {
            return Self::silent(waited);
        }
        Self::Broken(without_arguments(&error.to_string()).into())
    }

    /// Classifies redis-rs's error about an attempt to connect with this password.
    pub(crate) fn of_connect(error: &RedisError, password: Option<&str>) -> Self {
        let text = error.to_string();
        let unsent = || Self::Unsent(without_arguments(&text).into());
        let failure = Self::refused(error).unwrap_or_else(unsent);
        failure.without(password)
    }

    /// The error of a user's pool that gave no connection.
    #[cfg(feature = "deadpool")]
    pub(super) fn of_pool(text: &str) -> Self {
        Self::Unsent(without_arguments(text).into())
    }

    /// Removes the text if it contains the password: a server may quote it in a message that this
    /// client does not know.
    fn without(self, password: Option<&str>) -> Self {
        let beginning = |password: &str| -> String {
            // Servers quote only the beginning of a long argument.
            password.chars().take(LONGEST_BEGINNING).collect()
        };
        let Some(secret) = password.map(beginning).filter(|it| !it.is_empty()) else {
            return self;
        };
        match self {
            Self::Refused { code, message } if message.contains(&secret) => Self::Refused {
                code,
                message: WITHHELD.to_owned(),
            },
            Self::Unsent(cause) if cause.contains(&secret) => Self::Unsent(WITHHELD.into()),
            failure => failure,
        }
    }

    /// The server's error reply, if the server gave one.
    fn refused(error: &RedisError) -> Option<Self> {
        let message = error.detail().unwrap_or_default();
        let code = if error.kind() == redis::ErrorKind::AuthenticationFailed {
            "WRONGPASS"
        } else {
            error.code()?
        };
        let (code, message) = unwrapped(code, message).unwrap_or((code, message));
        Some(Self::Refused {
            code: code.to_owned(),
            message: without_arguments(message).to_owned(),
        })
    }

    /// No answer in time, from a server that need not be named.
    pub(crate) fn silent(waited: Duration) -> Self {
        let server = None;
        Self::Silent { waited, server }
    }

    /// Adds the server's address to the failure. Used at the end of a call, because the parsers of
    /// server errors expect the original text.
    pub(super) fn at(self, server: &str) -> Self {
        let named = |cause: Arc<str>| format!("{server}: {cause}").into();
        match self {
            Self::Broken(cause) => Self::Broken(named(cause)),
            Self::Unsent(cause) => Self::Unsent(named(cause)),
            Self::Refused { code, message } => Self::Refused {
                code,
                message: format!("{message}; server={server}"),
            },
            Self::Silent { waited, .. } => Self::Silent {
                waited,
                server: Some(server.into()),
            },
            Self::Closed => Self::Closed,
        }
    }

    /// Another sender has taken over the right to send the command.
    pub(super) fn taken_over() -> Self {
        Self::Refused {
            code: "TAKENOVER".to_owned(),
            message: "the future was not polled in time, and another call took its turn".to_owned(),
        }
    }

    /// The server says that it is a replica.
    pub(crate) fn of_replica() -> Self {
        Self::Refused {
            code: "READONLY".to_owned(),
            message: "the server is a replica".to_owned(),
        }
    }

    /// A text for humans.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Refused { code, message } => format!("{code} {message}"),
            Self::Silent { .. } => "no answer in time".to_owned(),
            Self::Broken(cause) | Self::Unsent(cause) => cause.to_string(),
            Self::Closed => "the client is shut down".to_owned(),
        }
    }

    /// The command may have run, or may still run.
    pub(crate) fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Silent { .. })
    }

    /// The connection that gave it gets no further command: it is broken or silent, or its server is no master any
    /// more. A new connection to the same address may lead to the new master.
    pub(crate) fn ends_connection(&self) -> bool {
        self.is_ambiguous() || self.is_of_replica()
    }

    /// The server is no master, or no master any more.
    fn is_of_replica(&self) -> bool {
        let is = |code: &str| matches!(code, "MASTERDOWN" | "READONLY");
        matches!(self, Self::Refused { code, .. } if is(code))
    }

    /// The server loads data: its own after a start, or as a replica those of its new master.
    pub(crate) fn is_of_loading(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "LOADING")
    }

    /// The server has no memory for what the command would write.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "OOM")
    }

    /// The server does not know the user, or refused the password.
    pub(super) fn is_of_login(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "WRONGPASS" || code == "NOAUTH")
    }

    /// The user lacks the permission.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "NOPERM")
    }

    /// The server refused it because of a transient state.
    pub(crate) fn passes(&self) -> bool {
        matches!(self, Self::Refused { code, message } if passes(code, message))
    }

    /// The server may have lost its data, or another server may have taken its place.
    pub(super) fn is_doubtful(&self) -> bool {
        let Self::Refused { code, .. } = self else {
            return false;
        };
        matches!(
            &**code,
            "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "MOVED" | "READONLY"
        )
    }

    /// The server's redirection: host (empty if it is the server's own), port, and whether it is valid
    /// for this command only.
    pub(super) fn redirection(&self) -> Option<(&str, u16, bool)> {
        let Self::Refused { code, message } = self else {
            return None;
        };
        let asking = match &**code {
            "ASK" => true,
            "MOVED" => false,
            _ => return None,
        };
        let (_slot, address) = message.split_once(' ')?;
        let (host, port) = address.rsplit_once(':')?;
        // `?` means that the node has no configured host name.
        let port = port.trim().parse().ok()?;
        (host != "?").then_some((host, port, asking))
    }

    /// Another server may have the key now.
    pub(super) fn may_be_a_change(&self) -> bool {
        !matches!(self, Self::Refused { .. }) || self.passes()
    }

    /// The keys of the command are in several slots.
    pub(crate) fn is_of_slots(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "CROSSSLOT")
    }

    /// Each of the command's keys may succeed in a command of its own, here or on another server.
    pub(crate) fn is_of_place(&self) -> bool {
        let is = |code: &str| matches!(code, "ASK" | "CROSSSLOT" | "MOVED" | "TRYAGAIN");
        matches!(self, Self::Refused { code, .. } if is(code))
    }

    pub(crate) fn remedy(&self) -> Remedy {
        match self {
            Self::Broken(_) | Self::Unsent(_) => Remedy::Reconnect,
            Self::Refused { .. } if self.is_of_replica() => Remedy::Reconnect,
            Self::Refused { .. } if self.passes() => Remedy::Wait,
            Self::Refused { .. } | Self::Silent { .. } | Self::Closed => Remedy::GiveUp,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Broken(cause) | Failure::Unsent(cause) => Self::Unavailable { cause },
            Failure::Refused { code, message } => Self::Refused { code, message },
            Failure::Silent { waited, server } => Self::timeout(waited).at(server.as_deref()),
            Failure::Closed => Self::Closed,
        }
    }
}

/// The error inside a script's error. Servers since 7.0 wrap only a missing permission. Older ones
/// wrap every error, as in `ERR Error running script (call to f_..): @user_script: 18: -OOM no
/// memory`, or as `@user_script: 18: ..` if the script caught it and returned it.
fn unwrapped<'a>(code: &'a str, message: &'a str) -> Option<(&'a str, &'a str)> {
    let inner = if code == SCRIPT {
        message
    } else if message.starts_with("Error running script") {
        message.rsplit_once(SCRIPT)?.1
    } else {
        return is_denial(message).then_some(("NOPERM", message));
    };
    let (_line, error) = inner.trim_start().split_once(' ')?;
    if is_denial(error) {
        return Some(("NOPERM", error));
    }
    let (code, message) = error.trim_start_matches('-').split_once(' ')?;
    let is_code = code.bytes().all(|byte| byte.is_ascii_uppercase());
    is_code.then_some((code, message))
}

/// Whether this is the text that servers use inside scripts instead of `NOPERM`: before 7.0, and since 7.0.
fn is_denial(message: &str) -> bool {
    let starts = |text| message.starts_with(text);
    starts("The user executing the script can't") || starts("ACL failure in script:")
}

/// The server's text without the arguments of an unknown command. The arguments of `HELLO` and `AUTH`
/// contain a password, and those of a script a lock's name.
fn without_arguments(text: &str) -> &str {
    let end = text.find("with args beginning with");
    end.map_or(text, |end| text[..end].trim_end_matches([',', ' ']))
}

/// How many of a password's first characters are searched for.
const LONGEST_BEGINNING: usize = 12;
const WITHHELD: &str = "the answer is withheld because it contains the password";

/// How servers before 7.0 refer to a script.
const SCRIPT: &str = "@user_script:";

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, RedisError, ServerErrorKind};

    use super::{Failure, unwrapped};

    #[test]
    fn a_failure_shows_no_argument_and_no_password() {
        let server = |detail: &str| -> RedisError {
            let kind = ErrorKind::Server(ServerErrorKind::ResponseError);
            (kind, "refused", detail.to_owned()).into()
        };
        let client = |detail: &str| -> RedisError {
            (ErrorKind::Client, "failed", detail.to_owned()).into()
        };
        let echo = "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'ann' 'hunter2'";
        for password in [None, Some(""), Some("hunter2")] {
            for error in [server(echo), client(echo)] {
                let failure = Failure::of_connect(&error, password);
                let text = format!("{failure:?}");
                assert!(text.contains("unknown command 'HELLO'\""), "{text}");
                assert!(!text.contains("ann") && !text.contains("hunter2"), "{text}");
            }
        }
        let commands = [server(echo), client(echo)];
        for failure in commands.map(|it| Failure::of_command(it, std::time::Duration::ZERO)) {
            let text = format!("{failure:?}");
            assert!(
                text.contains("HELLO") && !text.contains("hunter2"),
                "{text}"
            );
        }
        // In another text, and truncated.
        let long = "hunter2-hunter2-hunter2";
        for error in [
            server("no such option 'hunter2-hunt'"),
            client("hunter2-hunter"),
        ] {
            let text = format!("{:?}", Failure::of_connect(&error, Some(long)));
            assert!(
                text.contains("withheld") && !text.contains("hunter2"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_inner_error_of_a_script_error_is_found() {
        let script = "Error running script (call to f_0): @user_script:18: @user_script: 18: ";
        let met = |error| unwrapped("ERR", error).map(|(code, _)| code.to_owned());
        let oom = format!("{script}-OOM command not allowed");
        assert_eq!(met(&oom).as_deref(), Some("OOM"));
        let wrong_type = format!("{script}WRONGTYPE Operation against");
        assert_eq!(met(&wrong_type).as_deref(), Some("WRONGTYPE"));
        let own = "Error running script (call to f_0): @user_script:1: user_script:1: no way";
        assert_eq!(met(own), None);
        assert_eq!(met("unknown command"), None);
        let given_back = unwrapped("@user_script:", "45: -OOM command not allowed");
        assert_eq!(given_back, Some(("OOM", "command not allowed")));
    }

    #[test]
    fn a_permission_missing_in_a_script_is_a_permission_error() {
        let denied = "The user executing the script can't run this command or subcommand";
        let since = "ACL failure in script: User ann has no permissions to run the 'time' command";
        let script = "Error running script (call to f_0): @user_script:18: @user_script: 18: ";
        for (code, message, inner) in [
            ("ERR", denied.to_owned(), denied),
            ("ERR", since.to_owned(), since),
            ("ERR", format!("{script}{denied}"), denied),
            ("@user_script:", format!("103: {denied}"), denied),
        ] {
            assert_eq!(unwrapped(code, &message), Some(("NOPERM", inner)));
        }
        let caught = unwrapped("@user_script:", "18: -READONLY You can't write");
        assert_eq!(caught, Some(("READONLY", "You can't write")));
    }
}
