//! What a round came to.

use std::ops::Range;
use std::time::Duration;

use crate::error::Error;
use crate::session::Claim;

/// What a round came to; without all, nothing of it is held.
pub(super) enum MultiRound {
    /// A claim on each member, in their order, for good.
    Taken(Vec<Claim>),
    Blocked(Blocked),
    /// A hold was given up by others while it was being acquired: as if it had not been asked for.
    Again,
    /// All was granted, and part of it over again by then.
    TooLate,
}

/// A member that somebody else has.
pub(super) struct Blocked {
    pub(super) member: usize,
    /// How long that one's lock lives on, if it has an end.
    pub(super) ttl: Option<Duration>,
    /// Others were acquired and given back for it. What its owner had before, and got once more, is
    /// nobody's loss.
    pub(super) collided: bool,
}

/// A failure, and the members that it is about.
pub(super) struct Trouble {
    pub(super) about: Range<usize>,
    pub(super) error: Error,
    /// The server had a whole command timeout.
    pub(super) was_patient: bool,
}
