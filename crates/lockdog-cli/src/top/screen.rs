//! The terminal: its keys one by one, and a screen of its own.

use std::io::{self, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::failed::Failed;

/// Gives the terminal back as it was when it is dropped.
pub(super) struct Screen {
    before: Termios,
}

impl Screen {
    pub(super) fn open() -> Result<Self, Failed> {
        let gone = |error| Failed::new(format_args!("the terminal cannot be used: {error}"));
        let before = tcgetattr(io::stdin()).map_err(gone)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw).map_err(gone)?;
        let screen = Self { before };
        say(ENTER).map_err(|error| Failed::new(format_args!("the terminal is gone: {error}")))?;
        Ok(screen)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            _ => (80, 24),
        }
    }

    /// Replaces what is on the screen. Lines that are too long are cut.
    pub(super) fn show(&mut self, lines: &[String], columns: usize) -> Result<(), Failed> {
        let mut text = String::from(HOME);
        for (row, line) in lines.iter().enumerate() {
            if row > 0 {
                text.push_str("\r\n");
            }
            text.extend(line.chars().take(columns));
            text.push_str(REST_OF_LINE);
        }
        text.push_str(REST_OF_SCREEN);
        say(&text).map_err(|error| Failed::new(format_args!("the terminal is gone: {error}")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = say(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The other screen, without a cursor. A line with wide characters may be longer than its number of characters says,
/// so lines do not wrap.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";
