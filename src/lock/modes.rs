//! What the mode of a read/write lock changes for a caller that waits.

use std::time::Duration;

use super::acquire::LockCall;
use super::contender::LockContender;
use super::preference::Preference;
use crate::clock::Moment;
use crate::key::Mode;
use crate::wait::READERS_PATIENCE;

impl LockContender<'_> {
    /// How long it lets writers of its client go first.
    pub(super) fn patience(&self) -> Duration {
        match self.caller.way.preference {
            Preference::Writers => READERS_PATIENCE,
            Preference::Readers => Duration::ZERO,
        }
    }

    /// Until when its owner reads the lock that it wants to write, unless it upgrades. Until then there is no
    /// point in asking.
    pub(super) fn own_reads(&self, now: Moment) -> Option<Moment> {
        let LockCall {
            key, owner, way, ..
        } = *self.caller;
        if key.mode() != Some(Mode::Write) || way.upgrades {
            return None;
        }
        let reads = self.caller.core().holds.partner_of(key, owner)?;
        let deadline = reads.state().deadline;
        (deadline > now).then_some(deadline)
    }
}
