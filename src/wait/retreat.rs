//! A pause of a client that had a lock for a while.

use crate::clock::Moment;

/// This client had the lock for a while and pauses, so that other clients get it. Without the pause they
/// would rarely get it: they are notified of a release later than the client that made it.
#[derive(Clone, Copy)]
pub(crate) struct Retreat {
    pub(crate) until: Moment,
    /// This many releases by other clients end the pause early. Zero if no other client is known to
    /// wait.
    pub(crate) releases: u32,
    /// The client will receive the message of the release that began the pause. That message does not
    /// count.
    pub(super) own: bool,
}
