//! Why a command could not be done: one line that says what to do, and the exit code.

use std::env;
use std::fmt::Display;

use lockdog::Error;

/// The end of a command that could not be done.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) code: u8,
    pub(crate) text: String,
}

impl Failed {
    /// It could not be done: server, permission, name.
    pub(crate) fn new(text: impl Display) -> Self {
        Self {
            code: CANNOT,
            text: one_line(&text.to_string()),
        }
    }

    /// The command line is wrong.
    pub(crate) fn usage(text: impl Display) -> Self {
        Self {
            code: USAGE,
            ..Self::new(text)
        }
    }

    /// A signal ended it.
    pub(crate) fn signalled(number: u8) -> Self {
        Self {
            code: 128 + number,
            text: String::new(),
        }
    }
}

/// Adds what the user can do. The errors of the library have no secrets.
impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let advice = match &error {
            Error::Unavailable { .. } | Error::Timeout { .. } => {
                "start the server, or name another one with --url, LOCKDOG_URL or --config"
            }
            Error::Refused { code, .. } => match code.as_str() {
                "NOAUTH" if env::var_os("LOCKDOG_HELD").is_some() => {
                    "`lockdog run` passes no password on, so LOCKDOG_URL has none here; use --password-file, or \
                     --pass-credentials of the outer run"
                }
                "NOAUTH" | "WRONGPASS" => {
                    "give the password by LOCKDOG_PASSWORD or --password-file"
                }
                "NOPERM" => "grant it to the user; `lockdog doctor` shows the line",
                "WRONGTYPE" => "the key of this name is no lock; `lockdog inspect` shows its type",
                _ => "`lockdog doctor` checks the server",
            },
            Error::NoQuorum(_) => "see `lockdog doctor` for each server",
            _ => "",
        };
        let end = if advice.is_empty() { "" } else { "; " };
        Self::new(format_args!("{error}{end}{advice}"))
    }
}

/// The user may not run a command, or may not use a key or a channel.
pub(crate) fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Refused { code, .. } if code == "NOPERM")
}

/// Some errors quote what a server said. The characters that control a terminal, end a line or turn its direction
/// become spaces.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if is_clean(c) { c } else { ' ' })
        .collect()
}

/// Whether it neither controls a terminal, nor ends a line, nor turns its direction.
pub(crate) fn is_clean(c: char) -> bool {
    !c.is_control() && !TURNING.contains(&c) && !matches!(c, '\u{2028}' | '\u{2029}')
}

/// They show what follows from right to left, or end that.
const TURNING: [char; 12] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
    '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
];

/// The answer is yes, or it is done.
pub(crate) const YES: u8 = 0;
/// The answer is no: the lock is free, not found or not released, or there are problems.
pub(crate) const NO: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const CANNOT: u8 = 125;
/// The command cannot be executed, or was not found.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
/// No program reads the output any more, as with `| head`: 128 and the number of PIPE, which ends other programs then.
pub(crate) const UNREAD: u8 = 141;
