//! The time limit of one call, and the state of its sendings.

use std::sync::Arc;

use smallvec::SmallVec;

use super::addressee::Addressee;
use super::connection::Connection;
use super::node::Node;
use super::permit::SendingPermit;
use crate::clock::Moment;

/// When a call begins, and when it must end.
#[derive(Clone, Copy)]
pub(crate) struct TimeBox {
    pub(crate) now: Moment,
    pub(crate) until: Moment,
}

/// The state of one call's sendings. It is kept outside the call, so that it survives the call's
/// cancellation.
#[derive(Clone, Default)]
pub(crate) struct Sent {
    /// The moment before the first sending.
    pub(crate) first: Option<Moment>,
    /// The moment before the last sending.
    pub(crate) last: Option<Moment>,
    /// The connection of the last sending.
    pub(crate) on: Option<Connection>,
    /// A sending was not answered: it may have run, or may still run.
    pub(crate) unanswered: bool,
    /// An earlier sending was not answered, but the last one was.
    pub(crate) repeated: bool,
    /// A redirection (`MOVED`) named the server of the last sending, not the slot map.
    pub(crate) moved: bool,
    /// The last attempt reached a sending, so its failure is one of `on`.
    pub(super) was_sent: bool,
    /// The server at which the call failed, even if nothing was sent to it.
    pub(super) failed_at: Option<Arc<Node>>,
    /// Receives the server before each sending, for parties that need it while the call is in flight.
    pub(super) addressee: Option<Addressee>,
    /// A client that shuts down sends it too.
    pub(super) in_shutdown: bool,
    /// Checked before each sending.
    pub(super) permits: SmallVec<[SendingPermit; 1]>,
}

impl Sent {
    /// Nothing was sent yet. Each sending needs these permits.
    pub(crate) fn with(permits: impl IntoIterator<Item = SendingPermit>) -> Self {
        Self {
            permits: permits.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Nothing was sent yet. A client that shuts down waits for this call.
    pub(crate) fn in_shutdown_too() -> Self {
        Self {
            in_shutdown: true,
            ..Self::default()
        }
    }

    /// Each sending first writes its server to `addressee`.
    pub(crate) fn to(mut self, addressee: Option<Addressee>) -> Self {
        self.addressee = addressee;
        self
    }

    /// Adds a permit that each further sending needs.
    pub(crate) fn needs(&mut self, permit: SendingPermit) {
        self.permits.push(permit);
    }

    /// Whether the answer is that of the only sending, so that nothing else can have happened. A
    /// refused reconnect says nothing about the sending before it.
    pub(crate) fn is_answered(&self) -> bool {
        !self.repeated && !self.unanswered
    }
}
