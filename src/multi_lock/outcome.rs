//! The outcome of a round.

use std::ops::Range;
use std::time::Duration;

use crate::error::Error;
use crate::session::Claim;

/// The outcome of a round. Unless all members are held, the round holds none.
pub(super) enum MultiRound {
    /// A confirmed claim on each member, in their order.
    Taken(Vec<Claim>),
    Blocked(Blocked),
    /// Another party ended a hold while it was being acquired. The call asks again.
    Again,
    /// All members were granted, but some grants had expired by then.
    TooLate,
}

/// A member that another owner holds.
pub(super) struct Blocked {
    pub(super) member: usize,
    /// The TTL of that owner's lock, if it has one.
    pub(super) ttl: Option<Duration>,
    /// Other members were acquired in this round and released again. A member that the owner held before
    /// and re-entered does not count: no other owner could have had it.
    pub(super) collided: bool,
}

/// A failure, and the members that it is about.
pub(super) struct Trouble {
    pub(super) about: Range<usize>,
    pub(super) error: Error,
    /// The server had a whole command timeout to answer.
    pub(super) had_full_timeout: bool,
}
