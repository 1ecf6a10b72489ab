//! The order in which the server executes the commands about the counts of holds.

use std::collections::{HashMap, HashSet};

/// By the fields of the holds.
#[derive(Default)]
pub(super) struct CountOrder {
    /// The last executed command about each hold's count.
    executed: HashMap<String, u64>,
    /// The latest of the executed commands about each hold's count.
    latest: HashMap<String, u64>,
    /// The holds whose counts are not what the latest command asked for: an earlier one came later, and a late
    /// inner acquire shows too large a count, a late inner unlock too small a one (invariant 3); or the server
    /// refused to lower the count.
    stepped_back: HashSet<String>,
}

impl CountOrder {
    /// Notes an executed command. Returns whether it came after one that was sent later.
    pub(super) fn execute(&mut self, field: &str, serial: u64) -> bool {
        let last = self.executed.insert(field.to_owned(), serial);
        let latest = self.latest.entry(field.to_owned()).or_insert(serial);
        if serial < *latest {
            self.stepped_back.insert(field.to_owned());
        }
        *latest = serial.max(*latest);
        last.is_some_and(|last| last > serial)
    }

    /// After an executed command the count is what it asked for.
    pub(super) fn note_set(&mut self, field: &str, serial: u64) {
        if self.latest.get(field) == Some(&serial) {
            self.stepped_back.remove(field);
        }
    }

    /// The server refused to lower a count. Without memory it lowers none, and the client does not ask again. The
    /// next acquire lowers nothing either.
    pub(super) fn note_refused(&mut self, field: &str, error: &str) {
        if error.starts_with("OOM") {
            self.stepped_back.insert(field.to_owned());
        }
    }

    /// Whether no command about the hold's count was overtaken by a later one, or is still under way.
    /// `last_sent`: the last command that was sent about it.
    pub(super) fn is_kept(&self, field: &str, last_sent: Option<u64>) -> bool {
        self.executed.get(field).copied() == last_sent && !self.stepped_back.contains(field)
    }
}
