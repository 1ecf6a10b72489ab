//! What a change of a quorum's state leads to once the state is not locked any more.

use super::query::Request;
use crate::error::LostReason;

/// What a change of the state leads to in code that is not ours: wakers of those who wait, and the
/// subscriber of the log. Either may look at this very hold.
#[derive(Default)]
pub(super) struct Deferred {
    /// Something was done.
    pub(super) is_any: bool,
    /// Why it was lost, and what became of each instance.
    pub(super) lost: Option<(LostReason, String)>,
    /// Extensions began to fail: what each instance is, and the margin; or they succeed again.
    pub(super) jeopardy: Option<Option<(String, usize)>>,
    /// Dropped, it is given back in the background.
    pub(super) given_back: Vec<Request>,
}
