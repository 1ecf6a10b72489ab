#![doc = include_str!("../README.md")]

mod document;
mod duration;
mod error;
mod nearest;
mod note;
/// Tests of private items beside Redisson's own classes.
#[cfg(test)]
#[path = "../tests/on_servers/mod.rs"]
mod on_servers;
mod own;
mod reader;
mod redisson;
mod settings;
/// Tests of private items that need no other program.
#[cfg(test)]
#[path = "../tests/inside/mod.rs"]
mod tests;
mod value;
mod variables;

use std::path::Path;

pub use duration::{DurationError, parse_duration};
pub use error::{ConfigError, ConfigErrorKind};
pub use note::{Note, NoteKind};
pub use reader::{Config, Format, Reader};

/// Reads the configuration of Redisson, or of lockdog, in this file. Variables come from the environment.
/// [`Reader`] has more choices.
///
/// # Errors
///
/// A [`ConfigError`] if the file cannot be read, is neither YAML nor JSON, has a value of the wrong type or
/// out of bounds, needs a variable that is not set, or has a key that must not be ignored. It is one line
/// with the place and what to do, and quotes no value. Errors of the servers, and of certificates that do
/// not belong together, come from [`ClientBuilder::build`](lockdog::ClientBuilder::build).
pub fn from_file(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
    Reader::new().read(path)
}

/// Reads the configuration of Redisson, or of lockdog, in this text. Variables come from the environment.
///
/// # Errors
///
/// As for [`from_file`].
pub fn from_str(text: &str) -> Result<Config, ConfigError> {
    Reader::new().parse(text)
}
