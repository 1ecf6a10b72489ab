//! Permits that never end by themselves.

use std::pin::pin;

use super::Core;
use super::acquire::PendingAcquire;
use super::batch_acquire::BatchAcquire;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::TurnGuard;
use crate::key::PermitId;
use crate::script::permit;
use crate::server::{Sent, TimeBox};

impl BatchAcquire {
    /// Makes the permits endless that were just granted with a lease, before the grants are accepted. So if
    /// the caller's future is not polled any more, the background releases them like each grant that is not
    /// accepted. Returns false if one of them is gone, or if a turn was taken over.
    ///
    /// # Cancel safety
    ///
    /// The permits are released in the background.
    pub(super) async fn make_endless(&self, core: &Core, until: Moment) -> Result<bool, Error> {
        let Some(first) = self.parts().first() else {
            return Ok(true);
        };
        let now = core.clock.now();
        // The acquire may have used up the time of the call, so this command gets a command timeout.
        let until = until.max(now + core.server.command_timeout());
        for part in self.parts() {
            core.holds.change(part.hold(), |state| {
                // An endless permit has to be released, however long that takes.
                state.remains_until = Moment::NEVER;
                if state.is_awaited() {
                    state.deadline = state.deadline.max(core.left_after(until));
                }
            });
        }
        let holds = self.parts().iter().map(PendingAcquire::hold);
        let ids: Vec<PermitId> = holds.filter_map(|hold| core.permit_id(hold)).collect();
        let turns: Vec<&TurnGuard> = self.turns();
        let mut sent = Sent::with(turns.iter().map(|turn| turn.permit()));
        let time = TimeBox { now, until };
        let key = first.hold().key();
        let answer = {
            let sending = permit::update(&core.server, key, &ids, None, time, &mut sent);
            TurnGuard::drive(&turns, pin!(sending)).await
        };
        let Some(answer) = answer else {
            return Ok(false);
        };
        core.server.abandon_unanswered(&answer, &sent);
        Ok(answer?)
    }
}
