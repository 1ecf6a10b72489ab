//! What a waiter knows of its place in a queue on the server.

/// What a waiter knows of its place in a queue on the server.
#[derive(Default)]
pub(super) struct LinePlace {
    is_taken: bool,
    is_in_doubt: bool,
}

impl LinePlace {
    /// Whether it has a place, as far as it knows.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// An answer said that it has a place. `is_certain`: no earlier command can still be granted.
    pub(super) fn take(&mut self, is_certain: bool) {
        self.is_taken = true;
        self.is_in_doubt = !is_certain;
    }

    /// A command had no answer, so it may be granted.
    pub(super) fn doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// It has no place any more.
    pub(super) fn lose(&mut self) {
        *self = Self::default();
    }

    /// Whether the waiter has to ask itself, in turn or not: for a place, or whether a command without an
    /// answer was granted.
    pub(super) fn asks_at_once(&self) -> bool {
        !self.is_taken || self.is_in_doubt
    }
}
