//! What the command writes: data on stdout, notes on stderr.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process;

use serde_json::{Value, json};

use crate::args::{Colour, Common};
use crate::failed::{CANNOT, UNREAD, is_clean, one_line};

/// How the user wants the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) verbose: u8,
    quiet: bool,
    colour: bool,
}

impl Output {
    pub(crate) fn new(common: &Common) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let colour = match common.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto if is_set("NO_COLOR") => false,
            Colour::Auto
                if std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| value != "0") =>
            {
                true
            }
            Colour::Auto => io::stdout().is_terminal(),
        };
        Self {
            json: common.is_json(),
            verbose: common.verbose,
            quiet: common.quiet,
            colour,
        }
    }

    /// One line of data.
    #[expect(
        clippy::unused_self,
        reason = "an `Output` shows that the writer knows the format"
    )]
    pub(crate) fn line(self, text: impl Display) {
        write(&format!("{text}\n"));
    }

    /// One object of data, on one line, with the version of its fields.
    pub(crate) fn object(self, mut object: Value) {
        object["schema"] = json!(1);
        self.line(escaped(object.to_string()));
    }

    /// Something that is no data.
    pub(crate) fn note(self, text: impl Display) {
        if !self.quiet {
            complain(text);
        }
    }

    /// The text in this colour, if colours are wanted.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        match self.colour {
            true => format!("\x1b[{}m{text}\x1b[0m", paint as u8),
            false => text.to_owned(),
        }
    }
}

/// JSON need not escape all characters that control a terminal, or that some programs take for the end of a line.
fn escaped(json: String) -> String {
    if json.chars().all(is_clean) {
        return json;
    }
    // None of them needs two escapes.
    let characters = json.chars().map(|c| match is_clean(c) {
        true => c.to_string(),
        false => format!("\\u{:04x}", u32::from(c)),
    });
    characters.collect()
}

/// The codes of colours and styles of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Paint {
    Bold = 1,
    Red = 31,
    Green = 32,
    Yellow = 33,
}

/// An error, whatever the user wants to see.
pub(crate) fn complain(text: impl Display) {
    // Nothing can be done about a stderr that is closed.
    let _ = writeln!(io::stderr(), "lockdog: {}", one_line(&text.to_string()));
}

/// A name or a field that others chose must not control the user's terminal.
pub(crate) fn clean(text: &str) -> String {
    one_line(text)
}

/// Ends the process if its output cannot be written. The exit code is then no answer, because what the command would
/// still have done or found is missing.
pub(crate) fn write(text: &str) {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    match written.and_then(|()| stdout.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            process::exit(i32::from(UNREAD));
        }
        Err(error) => {
            complain(format_args!("the output cannot be written: {error}"));
            process::exit(i32::from(CANNOT));
        }
    }
}
