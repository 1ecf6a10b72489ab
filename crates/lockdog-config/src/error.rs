//! Why a configuration was not read.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a configuration was not read. Its text is one line with the file, the line, the column and the key
/// where they are known, and says what to do. It quotes no value of the file, because a value may be a
/// password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    file: Option<PathBuf>,
    at: Option<Position>,
    key: Option<String>,
    kind: ConfigErrorKind,
    why: String,
}

/// What is wrong with a configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The file cannot be read.
    Read,
    /// It is neither YAML nor JSON, or exceeds a limit of the reader.
    Syntax,
    /// A value has another type than its key needs, or is out of bounds.
    Value,
    /// Redisson has this key or value and lockdog does not. Ignoring it could cost a lock.
    Refused,
    /// A variable is not set and has no default.
    Variable,
    /// There is no such key. Redisson 4 refuses unknown keys, too.
    Unknown,
}

/// A place in the text. Both numbers begin at 1; the column counts characters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl ConfigError {
    pub(crate) fn new(kind: ConfigErrorKind, why: impl Into<String>) -> Self {
        Self {
            file: None,
            at: None,
            key: None,
            kind,
            why: why.into(),
        }
    }

    pub(crate) fn syntax(at: Position, why: impl Into<String>) -> Self {
        Self::new(ConfigErrorKind::Syntax, why).at(at)
    }

    pub(crate) fn at(mut self, at: Position) -> Self {
        self.at.get_or_insert(at);
        self
    }

    pub(crate) fn of_key(mut self, key: &str) -> Self {
        self.key.get_or_insert_with(|| key.to_owned());
        self
    }

    pub(crate) fn of_file(mut self, file: &Path) -> Self {
        self.file.get_or_insert_with(|| file.to_owned());
        self
    }

    /// What is wrong.
    pub fn kind(&self) -> ConfigErrorKind {
        self.kind
    }

    /// The file, if [`from_file`](crate::from_file) or [`Reader::read`](crate::Reader::read) read it.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The line, from 1 on.
    pub fn line(&self) -> Option<usize> {
        self.at.map(|at| at.line)
    }

    /// The column in characters, from 1 on.
    pub fn column(&self) -> Option<usize> {
        self.at.map(|at| at.column)
    }

    /// The key with its section, for example `singleServerConfig.database`.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.at) {
            (Some(file), Some(at)) => {
                write!(f, "{}:{}:{}: ", file.display(), at.line, at.column)?;
            }
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, Some(at)) => write!(f, "line {}, column {}: ", at.line, at.column)?,
            (None, None) => {}
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.why)
    }
}

impl std::error::Error for ConfigError {}
