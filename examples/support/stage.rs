//! Prints what happens: in colours on a terminal, as plain text elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::Failure;

pub(crate) struct Stage {
    colours: bool,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            colours: wanted && std::io::stdout().is_terminal(),
        }
    }

    pub(crate) fn title(&self, text: &str) {
        self.say(BOLD, &format!("\n{text}"));
    }

    /// What one of them does or says.
    pub(crate) fn voice(&self, voice: &Voice, text: &str) {
        self.say(voice.colour, &format!("  {:7} | {text}", voice.name));
    }

    pub(crate) fn wrong(&self, text: &str) {
        self.say(RED, &format!("\nNOT AS EXPECTED: {text}"));
    }

    fn say(&self, colour: &str, text: &str) {
        let mut out = std::io::stdout().lock();
        // A closed output does not stop the story.
        let _ = if self.colours {
            writeln!(out, "{colour}{text}{PLAIN}")
        } else {
            writeln!(out, "{text}")
        };
    }
}

/// A party whose words the stage prints.
pub(crate) struct Voice {
    pub(crate) name: &'static str,
    pub(crate) colour: &'static str,
}

/// Stops the program unless this is so.
pub(crate) fn check(so: bool, what: &str) -> Result<(), Failure> {
    if so { Ok(()) } else { Err(what.into()) }
}

/// As `12.3 ms`.
pub(crate) fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

pub(crate) const BLUE: &str = "\x1b[34m";
pub(crate) const GREY: &str = "\x1b[90m";
pub(crate) const YELLOW: &str = "\x1b[33m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
const RED: &str = "\x1b[1;31m";
