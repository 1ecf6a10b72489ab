//! One guard's claim on a quorum hold, and the ways to end it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lockdog_quorum::{Event, Phase};
use tokio_util::sync::CancellationToken;

use super::dispatch::InFlight;
use super::observed::EndNotifier;
use super::query::{Completion, Request};
use super::quorum_hold::{QuorumHold, QuorumHoldState};
use crate::clock::Moment;
use crate::error::{Error, Instance, Lost, LostReason, Result};
use crate::guard::{CompositeHold, Verdict};
use crate::lease;
use crate::observe::End;
use crate::owner::Owner;
use crate::session::{Unlocked, warn_elsewhere};

/// One guard's claim on a quorum hold.
pub(super) struct QuorumClaim {
    hold: Arc<QuorumHold>,
    watched: bool,
}

impl QuorumClaim {
    /// A claim that is already counted.
    pub(super) fn new(hold: Arc<QuorumHold>, watched: bool) -> Self {
        Self { hold, watched }
    }

    /// Logs a warning if this is another task than the one that acquired the guard: that task is still the
    /// owner, and may re-enter.
    fn warn_elsewhere(&self) {
        let owner = self.hold.owner;
        if owner.is_left_behind() {
            warn_elsewhere(self.hold.lock.home_instance().key(), owner);
        }
    }
}

impl CompositeHold for QuorumClaim {
    fn owner(&self) -> Owner {
        self.hold.owner
    }

    fn name(&self) -> &str {
        self.hold.lock.name()
    }

    fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    fn remaining(&self) -> Duration {
        if !self.hold.is_valid() {
            return Duration::ZERO;
        }
        self.hold
            .see(|state, now| state.quorum.deadline().since(now))
    }

    fn verdict(&self) -> Verdict {
        match self.hold.loss() {
            Some(lost) => Verdict::Lost(lost.reason()),
            None => Verdict::of(self.hold.see(|state, _| state.is_in_jeopardy())),
        }
    }

    fn hold_count(&self) -> u32 {
        self.hold.see(|state, _| {
            if state.quorum.is_living() {
                state.count
            } else {
                0
            }
        })
    }

    fn loss(&self, _early: Duration) -> Option<Lost> {
        // The quorum's core already ends it early enough.
        self.hold.loss()
    }

    fn loss_within(&self, margin: Duration) -> Option<Lost> {
        if self.remaining() > margin {
            return None;
        }
        Some(self.hold.see(|state, _| {
            let reason = match state.quorum.is_as_long_as_allowed() {
                true => LostReason::MaxHold,
                false => LostReason::Deadline,
            };
            let instances = self.hold.members(state);
            self.hold.lost_as(reason, state, instances)
        }))
    }

    fn outruns_timers(&self) -> bool {
        self.hold.clock.outruns_timers()
    }

    fn lost_token(&self) -> CancellationToken {
        self.hold.lost.clone()
    }

    fn token(&self) -> Option<u64> {
        self.hold.see(|state, _| state.quorum.token())
    }

    fn instances(&self) -> Vec<Instance> {
        self.hold.instances()
    }

    fn margin(&self) -> u32 {
        let margin = self.hold.see(|state, now| state.quorum.margin(now));
        u32::try_from(margin).unwrap_or(u32::MAX)
    }

    fn unlock(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<Unlocked>> + Send>> {
        self.warn_elsewhere();
        // The claim ends here and not in the future, so that it ends even if the future is never polled.
        let ending = self.hold.end(self.watched);
        Box::pin(async move {
            match ending? {
                ClaimEnd::Kept(count) => Ok(Unlocked::StillHeld { count }),
                ClaimEnd::Last(requests) => {
                    let end = EndNotifier::new(&self.hold);
                    let outcome = self.hold.give_back(requests).await;
                    end.notify(&outcome);
                    outcome
                }
            }
        })
    }

    fn drop_claim(&self) {
        self.warn_elsewhere();
        if let Ok(ClaimEnd::Last(requests)) = self.hold.end(self.watched) {
            // Dropped requests are executed in the background.
            drop(requests);
            self.hold.notify_released(End::Dropped, true);
        }
    }

    fn forget(&self) {
        self.warn_elsewhere();
        self.hold.see(|state, _| state.forgotten.push(self.watched));
        self.hold.end_if_forgotten();
    }

    fn leave(&self) {
        self.warn_elsewhere();
        self.hold.leave(self.watched);
    }

    fn extend(
        self: Arc<Self>,
        lease: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        Box::pin(async move {
            lease::check_lease("lease", lease, self.hold.lock.max_lease)?;
            if let Some(lost) = self.hold.loss() {
                return Err(lost.into());
            }
            let lease = lease::whole(lease);
            let extended = self.hold.lengthen(lease, false, Moment::NEVER).await;
            extended.map(drop)
        })
    }
}

/// What is left to do after one claim ended.
pub(super) enum ClaimEnd {
    /// The number of claims left.
    Kept(u32),
    Last(Vec<Request>),
}

impl QuorumHold {
    /// Ends one claim. An error if the hold is already lost.
    pub(super) fn end(self: &Arc<Self>, watched: bool) -> Result<ClaimEnd> {
        let mut state = self.state();
        // A loss that the clients know already comes before the end of the claim.
        let requests = self.collect_work(&mut state);
        state.drop_claim(watched);
        if let Some(lost) = self.loss_in(&state) {
            let is_last = state.is_only_forgotten();
            drop(state);
            self.delegate(requests);
            if is_last {
                self.unregister();
            }
            return Err(Error::Lost(lost));
        }
        let count = state.count;
        if count > 0 {
            drop(state);
            self.delegate(requests);
            return Ok(ClaimEnd::Kept(count));
        }
        let requests = self.step_locked(&mut state, Event::Unlock);
        let left = state.left;
        drop(state);
        self.unregister();
        if left > 0 {
            // An earlier claim left the instances to their leases, so no release is sent.
            for request in requests {
                if let Request::GiveBack(_, claim) = request {
                    claim.leave();
                }
            }
            self.notify_released(End::Expired, true);
            return Ok(ClaimEnd::Kept(left));
        }
        Ok(ClaimEnd::Last(requests))
    }

    /// Ends one claim without a release. When the last claim ends, the instances keep the lock until their
    /// leases end.
    fn leave(self: &Arc<Self>, watched: bool) {
        self.see(|state, _| state.left += 1);
        drop(self.end(watched));
    }

    /// Unregisters a lost hold that has only forgotten claims, because no guard is left to report the loss.
    fn end_if_forgotten(self: &Arc<Self>) {
        let is_over = self.see(|state, _| {
            matches!(state.quorum.phase(), Phase::Lost(_)) && state.is_only_forgotten()
        });
        if is_over {
            self.unregister();
        }
    }

    /// Releases all instances in parallel. Returns when a quorum has confirmed the release.
    async fn give_back(self: &Arc<Self>, requests: Vec<Request>) -> Result<Unlocked> {
        let need = self.see(|state, _| state.quorum.rules().need);
        let began = self.clock.now();
        let mut requests = InFlight::new(self, requests);
        let (mut confirmed, mut refused) = (0, Vec::new());
        while let Some(done) = requests.next().await {
            match done {
                Completion::GivenBack(_, Ok(_)) => confirmed += 1,
                Completion::GivenBack(member, Err(error)) => refused.push((member, error)),
                Completion::Answered { .. } => {}
            }
            if confirmed >= need {
                requests.finish_detached();
                return Ok(Unlocked::Released);
            }
        }
        Err(self.unlock_failed(self.clock.now().since(began), refused))
    }
}

impl QuorumHoldState {
    fn drop_claim(&mut self, watched: bool) {
        self.count = self.count.saturating_sub(1);
        self.watched = self.watched.saturating_sub(u32::from(watched));
        self.let_expire_unless_watched();
    }

    /// Stops renewal if no claim is left that needs it.
    pub(super) fn let_expire_unless_watched(&mut self) {
        if self.watched == 0 && self.count > 0 {
            self.quorum.let_expire();
        }
    }

    /// Whether all claims left are forgotten ones.
    pub(super) fn is_only_forgotten(&self) -> bool {
        self.count as usize == self.forgotten.len()
    }
}
