//! The hold of a guard of a multi lock: one claim on each member.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::members::LockMember;
use super::unlocked::whole;
use crate::error::{Error, Instance, InstanceState, Lost, LostReason, Result};
use crate::guard::{CompositeHold, Verdict};
use crate::hold::{Dependant, Hold, HoldPhase, PartRenewal};
use crate::lease;
use crate::owner::Owner;
use crate::session::{Claim, Unlocked};

/// One guard's claims on the members of a multi lock.
///
/// The members keep the counts: a further acquire of the same owner adds a claim to each member.
pub(super) struct MultiHold {
    name: Arc<str>,
    owner: Owner,
    /// In the order in which the caller gave them.
    parts: Vec<(LockMember, Arc<Hold>)>,
    lost_token: CancellationToken,
    phase: Mutex<MultiHoldPhase>,
}

enum MultiHoldPhase {
    /// A loss of one member leads to Lost, the guard's end to Ended or Forgotten.
    Held(Vec<Claim>),
    /// The members' own holds have the claims. A loss leads to Lost.
    Forgotten,
    /// One member is lost. The claims on the lost members stay until the guard ends, so that the
    /// owner's next acquire reports the loss too. Leads to Ended.
    Lost(Lost, Vec<Claim>),
    /// The guard has ended. Final.
    Ended,
}

impl MultiHold {
    /// A claim on each member, in the order of `members`.
    pub(super) fn new(
        name: &Arc<str>,
        owner: Owner,
        members: &[LockMember],
        claims: Vec<Claim>,
    ) -> Arc<Self> {
        let holds = claims.iter().map(|claim| claim.hold().clone());
        let mut parts: Vec<(LockMember, Arc<Hold>)> = members.iter().cloned().zip(holds).collect();
        parts.sort_by_key(|(member, _)| member.given);
        let hold = Arc::new(Self {
            name: name.clone(),
            owner,
            parts,
            lost_token: CancellationToken::new(),
            phase: Mutex::new(MultiHoldPhase::Held(claims)),
        });
        for (_, part) in &hold.parts {
            let dependant: Weak<Self> = Arc::downgrade(&hold);
            part.add_dependant(dependant);
        }
        hold
    }

    /// Records the loss, notifies, and then releases the members that are still held. Returns the loss
    /// as it is reported.
    fn lose(&self, lost: &Lost) -> Lost {
        let lost = lost.of_whole(self.report(true));
        let left = {
            let mut phase = self.phase.lock();
            let claims = match &mut *phase {
                MultiHoldPhase::Held(claims) => std::mem::take(claims),
                MultiHoldPhase::Forgotten => Vec::new(),
                MultiHoldPhase::Lost(first, _) => return first.clone(),
                MultiHoldPhase::Ended => return lost,
            };
            let is_left = |claim: &Claim| claim.hold().state().is_living();
            let (left, gone): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(is_left);
            *phase = MultiHoldPhase::Lost(lost.clone(), gone);
            left
        };
        self.lost_token.cancel();
        left.into_iter().for_each(Claim::give_back);
        lost
    }

    /// The state of each member in the whole lock, now or when the hold ended.
    fn report(&self, is_over: bool) -> Vec<Instance> {
        let instance = |(member, hold): &(LockMember, Arc<Hold>)| member.instance(hold, is_over);
        self.parts.iter().map(instance).collect()
    }

    /// The error of an unlock, with the state of each member. `unsure` are the members that did not
    /// confirm the unlock, with the cause; `waited` is how long the unlock took.
    fn of_whole(
        &self,
        error: Error,
        waited: Duration,
        unsure: Vec<(Arc<Hold>, Option<Error>)>,
    ) -> Error {
        let mut instances = self.report(true);
        for (hold, cause) in unsure {
            let position = self
                .parts
                .iter()
                .position(|(_, part)| Arc::ptr_eq(part, &hold));
            if let Some(position) = position {
                instances[position].state = match cause {
                    Some(cause) => InstanceState::Unreachable { cause },
                    None => InstanceState::Lost,
                };
            }
        }
        match error {
            Error::Lost(lost) => lost.of_whole(instances).into(),
            Error::UnlockUnconfirmed(_) => Error::unconfirmed(&self.name, waited, instances),
            error => error,
        }
    }

    /// Ends the hold for its guard. Returns the claims, unless the hold was lost.
    fn end(&self) -> Result<Vec<Claim>> {
        let phase = std::mem::replace(&mut *self.phase.lock(), MultiHoldPhase::Ended);
        match phase {
            MultiHoldPhase::Held(claims) => Ok(claims),
            MultiHoldPhase::Lost(lost, _) => Err(Error::Lost(lost)),
            MultiHoldPhase::Forgotten | MultiHoldPhase::Ended => Err(Error::Lost(self.released())),
        }
    }

    /// The loss reported to a view that outlives its guard.
    fn released(&self) -> Lost {
        let (member, hold) = &self.parts[0];
        hold.lost_as(LostReason::Released, member.core().clock.now())
    }

    /// Whether the guard, or the members' forgotten claims, still hold it.
    fn is_held(&self) -> bool {
        matches!(
            *self.phase.lock(),
            MultiHoldPhase::Held(_) | MultiHoldPhase::Forgotten
        )
    }
}

impl CompositeHold for MultiHold {
    fn owner(&self) -> Owner {
        self.owner
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn is_valid(&self) -> bool {
        let is_valid = |(member, hold): &(LockMember, Arc<Hold>)| {
            hold.state().is_valid(member.core().clock.now())
        };
        self.is_held() && self.parts.iter().all(is_valid)
    }

    fn remaining(&self) -> Duration {
        if !self.is_held() {
            return Duration::ZERO;
        }
        let remaining =
            |(member, hold): &(LockMember, Arc<Hold>)| hold.remaining(member.core().clock.now());
        self.parts.iter().map(remaining).min().unwrap_or_default()
    }

    fn verdict(&self) -> Verdict {
        if let Some(lost) = self.loss(Duration::ZERO) {
            return Verdict::Lost(lost.reason());
        }
        let is_failing =
            |(_, hold): &(LockMember, Arc<Hold>)| hold.state().phase == HoldPhase::Jeopardy;
        Verdict::of(self.parts.iter().any(is_failing))
    }

    fn hold_count(&self) -> u32 {
        if !self.is_held() {
            return 0;
        }
        let counts = self.parts.iter().map(|(_, hold)| hold.state().claims());
        counts.min().unwrap_or_default()
    }

    fn loss(&self, early: Duration) -> Option<Lost> {
        match &*self.phase.lock() {
            MultiHoldPhase::Lost(lost, _) => return Some(lost.clone()),
            MultiHoldPhase::Ended => return Some(self.released()),
            MultiHoldPhase::Held(_) | MultiHoldPhase::Forgotten => {}
        }
        for (member, hold) in &self.parts {
            let core = member.core();
            if let Some(lost) = hold.loss(core.clock.now() + early) {
                // A reported loss stays final, so no renewal may succeed after it.
                if core.lose_without_log(hold, lost.reason()) {
                    core.report_lost(hold);
                }
                return Some(self.lose(&lost));
            }
        }
        None
    }

    fn loss_within(&self, margin: Duration) -> Option<Lost> {
        let mut parts = self.parts.iter();
        let first = parts.find_map(|(member, hold)| hold.loss(member.core().clock.now() + margin));
        first.map(|lost| lost.of_whole(self.report(false)))
    }

    fn outruns_timers(&self) -> bool {
        let outruns = |(member, _): &(LockMember, Arc<Hold>)| member.core().clock.outruns_timers();
        self.parts.iter().any(outruns)
    }

    fn lost_token(&self) -> CancellationToken {
        self.lost_token.clone()
    }

    fn token(&self) -> Option<u64> {
        None
    }

    fn instances(&self) -> Vec<Instance> {
        match &*self.phase.lock() {
            MultiHoldPhase::Lost(lost, _) => lost.instances().to_vec(),
            phase => self.report(matches!(phase, MultiHoldPhase::Ended)),
        }
    }

    fn margin(&self) -> u32 {
        0
    }

    fn unlock(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<Unlocked>> + Send>> {
        let claims = self.end();
        Box::pin(async move {
            let clock = &self.parts[0].0.core().clock;
            let began = clock.now();
            let unlocking = |claim: Claim| async move {
                let hold = claim.hold().clone();
                (hold, claim.unlock().await)
            };
            let unlocked = join_all(claims?.into_iter().map(unlocking)).await;
            let (mut outcomes, mut unsure) = (Vec::with_capacity(unlocked.len()), Vec::new());
            for (hold, outcome) in unlocked {
                if let Err(Error::UnlockUnconfirmed(unlock)) = &outcome {
                    unsure.push((hold, unlock.cause().cloned()));
                }
                outcomes.push(outcome);
            }
            whole(outcomes).map_err(|error| {
                let waited = clock.now().since(began);
                self.of_whole(error, waited, unsure)
            })
        })
    }

    fn drop_claim(&self) {
        drop(self.end());
    }

    fn forget(&self) {
        let claims = {
            let mut phase = self.phase.lock();
            match &mut *phase {
                MultiHoldPhase::Held(claims) => {
                    let claims = std::mem::take(claims);
                    *phase = MultiHoldPhase::Forgotten;
                    claims
                }
                MultiHoldPhase::Lost(_, claims) => std::mem::take(claims),
                MultiHoldPhase::Forgotten | MultiHoldPhase::Ended => return,
            }
        };
        claims.into_iter().for_each(Claim::forget);
    }

    fn leave(&self) {
        // After a loss there is nothing to leave.
        let claims = self.end().unwrap_or_default();
        claims.into_iter().for_each(Claim::leave);
    }

    fn extend(
        self: Arc<Self>,
        lease: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        Box::pin(async move {
            for (member, _) in &self.parts {
                // Before anything is sent.
                lease::check_lease("lease", lease, member.core().settings.max_lease)?;
            }
            let extending = self.parts.iter().map(|(member, hold)| async move {
                let extended = member.core().lengthen(hold, lease).await;
                extended.map_err(|error| member.about(error))
            });
            let outcomes = join_all(extending).await;
            if let Some(lost) = self.loss(Duration::ZERO) {
                return Err(lost.into());
            }
            outcomes.into_iter().collect()
        })
    }
}

impl Dependant for MultiHold {
    fn hold_lost(&self) {
        let loss = |(member, hold): &(LockMember, Arc<Hold>)| hold.loss(member.core().clock.now());
        if let Some(lost) = self.parts.iter().find_map(loss) {
            self.lose(&lost);
        }
    }

    /// The members' own claims decide whether the watchdog renews them.
    fn renewal(&self) -> Option<PartRenewal> {
        None
    }
}

impl Drop for MultiHold {
    fn drop(&mut self) {
        let this: *const Self = self;
        for (_, hold) in &self.parts {
            hold.remove_dependant(this.cast());
        }
    }
}
