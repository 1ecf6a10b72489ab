//! How a key was handled.

use std::fmt;

use crate::error::Position;

/// How one key of the configuration was handled. It shows no value that may be secret.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Note {
    /// The key with its section, for example `singleServerConfig.database`.
    pub key: String,
    /// The line, from 1 on.
    pub line: usize,
    /// The column in characters, from 1 on.
    pub column: usize,
    /// How it was handled.
    pub kind: NoteKind,
    /// For [`NoteKind::Mapped`], the setting of the `ClientBuilder`. For the others, the reason.
    pub text: String,
}

/// How a key was handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NoteKind {
    /// It is a setting of the client.
    Mapped,
    /// lockdog has no such setting, for the reason in the text.
    Ignored,
    /// Locks do not depend on it.
    Irrelevant,
    /// lockdog behaves differently from what this key says. The text says how.
    Differs,
}

impl Note {
    pub(crate) fn new(
        key: impl Into<String>,
        at: Position,
        kind: NoteKind,
        text: impl Into<String>,
    ) -> Self {
        Self {
            key: key.into(),
            line: at.line,
            column: at.column,
            kind,
            text: text.into(),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            line,
            column,
            kind,
            text,
        } = self;
        write!(f, "line {line}, column {column}: {key}: {kind}: {text}")
    }
}

impl fmt::Display for NoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mapped => "mapped",
            Self::Ignored => "ignored",
            Self::Irrelevant => "irrelevant",
            Self::Differs => "differs",
        })
    }
}
