//! What a change of a quorum's state requires after its mutex is released.

use super::query::Request;
use crate::error::LostReason;

/// What a change of the state triggers in user code: wakers of waiters, and the subscriber of the log.
/// Both may access this same hold, so this runs after the mutex is released.
#[derive(Default)]
pub(super) struct Deferred {
    /// A step was made, so waiters must be notified.
    pub(super) is_any: bool,
    pub(super) lost: Option<DeferredLoss>,
    /// Extensions began to fail: the outcome of each instance, and the margin. `Some(None)`: they
    /// succeed again.
    pub(super) jeopardy: Option<Option<(String, usize)>>,
    /// Dropping these releases the claims in the background.
    pub(super) given_back: Vec<Request>,
}

/// A loss that has to be reported.
pub(super) struct DeferredLoss {
    pub(super) reason: LostReason,
    /// The outcome of each instance.
    pub(super) instances: String,
    /// Its guards were forgotten, and its fixed lease has ended.
    pub(super) is_expiry: bool,
}
