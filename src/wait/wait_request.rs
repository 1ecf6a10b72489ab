//! What a caller asks of a queue that it enters.

use super::waiter_kind::WaiterKind;
use crate::clock::Moment;
use crate::hold::Terms;
use crate::owner::Owner;

/// What a waiter waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitRequest {
    pub(crate) owner: Owner,
    /// The terms of the hold that it wants. `None` if the lock cannot be handed to it: it wants other
    /// locks at the same time, or only waits for the end of a release.
    pub(crate) terms: Option<Terms>,
    /// When the waiter will have left, unless it waits forever.
    pub(crate) deadline: Option<Moment>,
    pub(crate) kind: WaiterKind,
}
