//! Reports to the observers how long a command took.

use crate::clock::Moment;
use crate::observe::{ClientEvent, CommandKind};
use crate::server::Server;

/// A command in flight. If it is dropped, no party reads the answer, and the observers get no event.
pub(super) struct TimedCommand<'a> {
    server: &'a Server,
    kind: CommandKind,
    /// `None`: there is no observer.
    began: Option<Moment>,
}

impl<'a> TimedCommand<'a> {
    pub(super) fn begin(server: &'a Server, kind: CommandKind) -> Self {
        Self::begin_at(server, kind, || server.clock().now())
    }

    /// For a caller that knows the time. On a machine on which a read of the clock enters the kernel, the read
    /// takes longer than the rest of the work for an event.
    pub(super) fn begin_at(
        server: &'a Server,
        kind: CommandKind,
        now: impl FnOnce() -> Moment,
    ) -> Self {
        let is_watched = !server.observers().is_none();
        Self {
            server,
            kind,
            began: is_watched.then(now),
        }
    }

    pub(super) fn end<T, E>(self, answer: &Result<T, E>) {
        let Some(began) = self.began else { return };
        self.server.observers().notify(|| ClientEvent::Command {
            kind: self.kind,
            took: self.server.clock().now().since(began),
            failed: answer.is_err(),
        });
    }
}
