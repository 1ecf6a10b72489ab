//! Having what is held for longer, for a call of its owner.

use std::sync::Arc;
use std::time::Duration;

use lockdog_quorum::Event;

use super::quorum_hold::QuorumHold;
use crate::error::{Error, NoQuorum, Result};
use crate::lease;

/// A wish for more of what is held. It may come to nothing: then nobody is left to renew it for.
pub(super) struct PendingExtension<'a> {
    hold: &'a Arc<QuorumHold>,
}

impl Drop for PendingExtension<'_> {
    fn drop(&mut self) {
        self.hold.see(|state, _| state.let_expire_unless_watched());
    }
}

impl QuorumHold {
    /// Has it held for this long from now on, and renewed if `watched` is set, as long as the answer
    /// lives or a claim wants it so.
    pub(super) async fn lengthen(
        self: &Arc<Self>,
        lease: Duration,
        watched: bool,
    ) -> Result<PendingExtension<'_>> {
        let wanted = self.clock.now();
        let was_renewed = self.see(|state, _| state.quorum.rules().renewed);
        let is_enough = || {
            self.see(|state, now| {
                let quorum = &state.quorum;
                let is_long = lease::deadline(wanted, lease) <= quorum.deadline()
                    || quorum.is_as_long_as_allowed();
                let is_renewed = watched && was_renewed;
                quorum.is_valid(now) && (is_renewed || is_long)
            })
        };
        let lengthening = PendingExtension { hold: self };
        if !is_enough() || (watched && !was_renewed) {
            let renewed = watched;
            let requests = self.step(Event::Lengthen { lease, renewed });
            // The round is that of a hold that others count on, so the background drives it, and this
            // call only waits for its verdict.
            self.delegate(requests);
            loop {
                let changed = self.changed.notified();
                let Some(ends) = self.see(|state, now| state.quorum.extending(wanted, now)) else {
                    break;
                };
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = self.clock.sleep_until(ends) => {
                        let more = self.step(Event::Tick);
                        self.delegate(more);
                    }
                }
            }
        }
        if let Some(lost) = self.loss() {
            return Err(Error::Lost(lost));
        }
        if !is_enough() {
            let need = self.see(|state, _| state.quorum.rules().need);
            return Err(NoQuorum::new(self.instances(), need).into());
        }
        Ok(lengthening)
    }
}
