//! What configurations mean, and what is refused.

mod damage;
mod own;
mod rules;
mod secrets;
mod sections;
mod tls;
mod variables;

use std::collections::HashSet;

use crate::document;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::note::{Note, NoteKind};
use crate::redisson as format;
use crate::settings::Settings;

/// What a configuration of Redisson means, without variables.
pub(crate) fn read(text: &str) -> Result<(Settings, Vec<Note>), ConfigError> {
    read_with(text, &|_| None)
}

pub(crate) fn read_with(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(Settings, Vec<Note>), ConfigError> {
    let root = document::load(text)?.expect("it has keys");
    format::read(&root, &variable, &HashSet::new(), false)
}

/// The settings of a file that is read without an error.
pub(crate) fn meaning(text: &str) -> Settings {
    match read(text) {
        Ok((settings, _)) => settings,
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// The error of a file, which is one line.
pub(crate) fn failure(text: &str) -> ConfigError {
    let Err(error) = read(text) else {
        panic!("it was read:\n{text}")
    };
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

/// The kind and the text of the note on a key.
fn note(notes: &[Note], key: &str) -> (NoteKind, String) {
    let mut found = notes.iter().filter(|note| note.key == key);
    let note = found.next().unwrap_or_else(|| panic!("no note on {key}"));
    assert!(found.next().is_none(), "two notes on {key}");
    (note.kind, note.text.clone())
}

fn is(
    error: &ConfigError,
    kind: ConfigErrorKind,
    key: &str,
    line: usize,
    column: usize,
    word: &str,
) {
    let place = (error.kind(), error.key(), error.line(), error.column());
    let expected = (kind, Some(key), Some(line), Some(column));
    assert_eq!(place, expected, "{error}");
    assert!(error.to_string().contains(word), "{error} has no {word:?}");
}
