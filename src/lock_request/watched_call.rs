//! Notifies observers of the end of a call that acquires.

use crate::clock::Moment;
use crate::error::Result;
use crate::observe::{ClientEvent, How, LockRef};
use crate::session::Core;

/// One call that acquires. If it is dropped before its end, it was cancelled.
pub(crate) struct WatchedCall<'a>(Option<OpenCall<'a>>);

/// A call of a client that has observers.
struct OpenCall<'a> {
    core: &'a Core,
    lock: LockRef<'a>,
    began: Moment,
}

impl<'a> WatchedCall<'a> {
    pub(crate) fn begin(core: &'a Core, lock: impl FnOnce() -> LockRef<'a>) -> Self {
        match core.observers().is_none() {
            true => Self(None),
            false => Self::begin_at(core, core.clock.now(), lock),
        }
    }

    /// As [`WatchedCall::begin`], for a call that has read the clock.
    pub(crate) fn begin_at(
        core: &'a Core,
        began: Moment,
        lock: impl FnOnce() -> LockRef<'a>,
    ) -> Self {
        let is_watched = !core.observers().is_none();
        Self(is_watched.then(|| OpenCall {
            core,
            lock: lock(),
            began,
        }))
    }

    /// Reports the end of the call. `how` says in which way it acquired.
    pub(crate) fn end<T>(mut self, outcome: &Result<Option<T>>, how: impl FnOnce(&T) -> How) {
        let Some(OpenCall { core, lock, began }) = self.0.take() else {
            return;
        };
        let waited = core.clock.now().since(began);
        core.observers().notify(|| match outcome {
            Ok(Some(acquired)) => ClientEvent::Acquired {
                lock,
                how: how(acquired),
                waited,
            },
            Ok(None) => ClientEvent::Busy { lock, waited },
            Err(error) => ClientEvent::Failed {
                lock,
                waited,
                error,
            },
        });
    }
}

impl Drop for WatchedCall<'_> {
    fn drop(&mut self) {
        if let Some(OpenCall { core, lock, began }) = self.0.take() {
            let waited = core.clock.now().since(began);
            core.observers()
                .notify(|| ClientEvent::Cancelled { lock, waited });
        }
    }
}
