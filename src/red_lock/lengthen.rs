//! Extends a quorum hold for a call of its owner.

use std::sync::Arc;
use std::time::Duration;

use lockdog_quorum::Event;

use super::quorum_hold::QuorumHold;
use crate::clock::Moment;
use crate::error::{Error, NoQuorum, Result};
use crate::lease;

/// An extension of a hold. If it is dropped and no claim needs a renewal, the hold expires with its
/// lease.
pub(super) struct PendingExtension<'a> {
    hold: &'a Arc<QuorumHold>,
}

impl Drop for PendingExtension<'_> {
    fn drop(&mut self) {
        self.hold.see(|state, _| state.let_expire_unless_watched());
    }
}

impl QuorumHold {
    /// Extends the hold so that it ends `lease` from now or later. If `watched` is set, the watchdog renews
    /// it as long as the returned value lives or a claim needs it. The call waits until `until` at most.
    pub(super) async fn lengthen(
        self: &Arc<Self>,
        lease: Duration,
        watched: bool,
        until: Moment,
    ) -> Result<PendingExtension<'_>> {
        let asked_at = self.clock.now();
        let was_renewed = self.see(|state, _| state.quorum.rules().renewed);
        // The lease ends late enough, or the watchdog renews the hold.
        let is_enough = || {
            self.see(|state, now| {
                let quorum = &state.quorum;
                // A `max_hold` may forbid a longer lease.
                let is_long = lease::deadline(asked_at, lease) <= quorum.deadline()
                    || quorum.is_as_long_as_allowed();
                let is_renewed = watched && was_renewed;
                quorum.is_valid(now) && (is_renewed || is_long)
            })
        };
        // Created before the first await, so that a dropped call also stops the renewal that it asked for.
        let extension = PendingExtension { hold: self };
        let mut is_cut_off = asked_at >= until;
        if !is_cut_off && (!is_enough() || (watched && !was_renewed)) {
            let renewed = watched;
            let requests = self.step(Event::Lengthen { lease, renewed });
            // Other claims depend on this round, so the background drives it, and this call only waits for
            // its outcome (design: invariant 14).
            self.delegate(requests);
            loop {
                // Created before the state is read, so that a change between both wakes this call.
                let changed = self.changed.notified();
                let Some(ends) = self.see(|state, now| state.quorum.extending(asked_at, now))
                else {
                    // The round of this call is over, with success or without.
                    break;
                };
                if self.clock.now() >= until {
                    // The time of this call is over. Other calls may wait for the round, so it continues.
                    is_cut_off = true;
                    break;
                }
                tokio::select! {
                    biased;
                    () = changed => {}
                    // The core ends the round itself, even if no answer comes.
                    () = self.clock.sleep_until(ends.min(until)) => {
                        let more = self.step(Event::Tick);
                        self.delegate(more);
                    }
                }
            }
        }
        if let Some(lost) = self.loss() {
            return Err(Error::Lost(lost));
        }
        // The lock is still held, for its earlier lease.
        if !is_enough() {
            if is_cut_off {
                // The instances that have not answered yet still count as held, so their states show no cause.
                return Err(Error::timeout(self.clock.now().since(asked_at)));
            }
            let need = self.see(|state, _| state.quorum.rules().need);
            return Err(NoQuorum::new(self.instances(), need).into());
        }
        Ok(extension)
    }
}
