//! Adds permits to a semaphore of either kind, even if the caller's future is dropped.

use std::time::Duration;

use crate::error::Result;
use crate::key::LockKey;
use crate::object::{AsyncCommand, Object};
use crate::script::Remembered;
use crate::script::permit::{Addition, add};
use crate::server::{Failure, Sent, TimeBox};
use crate::session::Core;

/// Adds permits that no request has.
pub(crate) struct Adding(pub(crate) Addition);

impl AsyncCommand<bool> for Adding {
    async fn send(
        &self,
        core: &Core,
        key: &LockKey,
        time: TimeBox,
        sent: &mut Sent,
    ) -> Result<bool, Failure> {
        add(&core.server, key, &self.0, time, sent).await
    }
}

/// Adds permits, or takes free ones away if the number is below zero.
pub(crate) async fn add_permits(semaphore: &Object, by: i32) -> Result<()> {
    let timeout = semaphore.core().server.command_timeout();
    let adding = Adding(Addition {
        by,
        only_if_exists: false,
        call: Remembered::new(ADDED_FOR, timeout),
    });
    let reserved = semaphore.reserve()?;
    let added = semaphore.complete(reserved, "add_permits", ADDED_FOR, adding);
    added.await.map(|_| ())
}

/// How long the client repeats such a command.
pub(crate) const ADDED_FOR: Duration = Duration::from_secs(50);
