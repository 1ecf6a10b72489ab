//! What the mode of a read/write lock changes for a caller that waits, and for a query.

use std::time::Duration;

use super::Lock;
use super::acquire::LockCall;
use super::contender::LockContender;
use super::holder;
use super::preference::Preference;
use crate::background::ensure_runtime;
use crate::clock::Moment;
use crate::error::Result;
use crate::key::Mode;
use crate::lock_request::FromGuard;
use crate::script;
use crate::server::Sent;
use crate::wait::READERS_PATIENCE;

impl LockContender<'_> {
    /// How long it lets writers of its client go first.
    pub(super) fn patience(&self) -> Duration {
        match self.caller.options.preference {
            Preference::Writers => READERS_PATIENCE,
            Preference::Readers => Duration::ZERO,
        }
    }

    /// Until when the owner's own read hold is valid, if the call wants to write and does not upgrade. Until
    /// then the server would refuse it.
    pub(super) fn reads_until(&self, now: Moment) -> Option<Moment> {
        let LockCall {
            key,
            owner,
            options,
            ..
        } = *self.caller;
        if key.mode() != Some(Mode::Write) || options.upgrades {
            return None;
        }
        let reads = self.caller.core().holds.partner_of(key, owner)?;
        let deadline = reads.state().deadline;
        (deadline > now).then_some(deadline)
    }
}

impl<G: FromGuard> Lock<G> {
    /// The fields of the readers, with their counts.
    pub(super) async fn readers(&self) -> Result<Vec<(String, u32)>> {
        let (core, key) = (self.session().core(), self.key()?);
        ensure_runtime()?;
        core.ensure_open()?;
        let time = core.server.time_box(core.clock.now());
        let mut sent = Sent::default();
        let answer = script::readers(&core.server, key, time, &mut sent).await;
        core.server.abandon_unanswered(&answer, &sent);
        Ok(holder::of_hash(answer?, None))
    }
}
