//! What a waiter knows of its place in a queue on the server.

/// What a waiter knows of its place in a queue on the server.
#[derive(Default)]
pub(super) struct PlaceInQueue {
    is_taken: bool,
    is_in_doubt: bool,
    /// A hand-over had no answer in time. It may grant the lock at any later moment.
    is_hand_over_missed: bool,
}

impl PlaceInQueue {
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

    /// A hand-over to it had no answer.
    pub(super) fn miss_hand_over(&mut self) {
        self.is_hand_over_missed = true;
    }

    /// Whether a hand-over may grant the lock although the last query did not find that.
    pub(super) fn is_hand_over_missed(&self) -> bool {
        self.is_hand_over_missed
    }

    /// It has no place any more.
    pub(super) fn lose(&mut self) {
        *self = Self {
            is_hand_over_missed: self.is_hand_over_missed,
            ..Self::default()
        };
    }

    /// A new hold waits from now on.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// Whether the waiter has to query by itself, even without the contender's role: to get a place, or to find
    /// whether a command without an answer was granted.
    pub(super) fn asks_at_once(&self) -> bool {
        !self.is_taken || self.is_in_doubt || self.is_hand_over_missed
    }
}
