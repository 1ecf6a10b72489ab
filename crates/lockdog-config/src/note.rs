//! What became of a key.

use std::fmt;

use crate::error::Position;

/// What became of one key of the configuration. It shows no value that may be secret.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Note {
    /// The key with its section, for example `singleServerConfig.database`.
    pub key: String,
    /// The line, from 1 on.
    pub line: usize,
    /// The column in characters, from 1 on.
    pub column: usize,
    /// What became of it.
    pub kind: NoteKind,
    /// For [`NoteKind::Mapped`], the setting of the `ClientBuilder`. For the others, the reason.
    pub text: String,
}

/// What became of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NoteKind {
    /// It is a setting of the client.
    Mapped,
    /// lockdog has no such setting, for the reason in the text.
    Ignored,
    /// Locks do not depend on it.
    Irrelevant,
    /// lockdog acts otherwise than this key says. Read the text once.
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
