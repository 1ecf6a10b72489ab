//! What one call may take, and what became of its sendings.

use std::sync::Arc;

use smallvec::SmallVec;

use super::connection::Connection;
use super::node::Node;
use super::permit::Permit;
use crate::clock::Moment;

/// When a call begins, and when it has to be over.
#[derive(Clone, Copy)]
pub(crate) struct TimeBox {
    pub(crate) now: Moment,
    pub(crate) until: Moment,
}

/// What became of one call's sendings, kept outside the call so that it survives its cancellation.
#[derive(Clone, Default)]
pub(crate) struct Sent {
    /// The moment before the first sending.
    pub(crate) first: Option<Moment>,
    /// The connection of the last sending.
    pub(crate) on: Option<Connection>,
    /// A sending is without an answer: it may have run, or may run yet.
    pub(crate) unanswered: bool,
    /// An earlier sending is without an answer, though the last one has one.
    pub(crate) repeated: bool,
    /// Another server named the one that the last sending went to (`MOVED`), not the map of slots.
    pub(crate) moved: bool,
    /// The last attempt came as far as a sending, and its failure is one of `on`.
    pub(super) was_sent: bool,
    /// The server that the call failed at, whether or not something was sent to it.
    pub(super) failed_at: Option<Arc<Node>>,
    /// Asked for before each sending.
    pub(super) permits: SmallVec<[Permit; 1]>,
}

impl Sent {
    /// Nothing yet, and nothing without these permits.
    pub(crate) fn with(permits: impl IntoIterator<Item = Permit>) -> Self {
        Self {
            permits: permits.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Each further sending needs this permit, too.
    pub(crate) fn needs(&mut self, permit: Permit) {
        self.permits.push(permit);
    }

    /// The answer is that of the only sending: what it says is all that happened. A refused
    /// reconnect says nothing of the sending before it.
    pub(crate) fn is_answered(&self) -> bool {
        !self.repeated && !self.unanswered
    }
}
