//! A view of a held lock, for the work that it protects.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{CompositeHold, Verdict};
use crate::background::ensure_runtime;
use crate::clock::Moment;
use crate::error::{Instance, Lost, Result};
use crate::hold::{Hold, HoldPhase};
use crate::lease::LEAD_TIME;
use crate::owner::Owner;
use crate::session::{Claim, Session};

/// A view of a held lock, for the work that it protects: see [`Lock::with`](crate::Lock::with). It reports
/// everything that a [`Guard`](super::Guard) reports, but it cannot end the hold.
#[derive(Clone)]
pub struct Held {
    kind: HeldKind,
}

#[derive(Clone)]
enum HeldKind {
    One(HeldLock),
    Several(Arc<dyn CompositeHold>),
}

/// A held single lock.
#[derive(Clone)]
struct HeldLock {
    session: Arc<Session>,
    hold: Arc<Hold>,
}

impl Held {
    pub(super) fn one(claim: &Claim) -> Self {
        let (session, hold) = (claim.session().clone(), claim.hold().clone());
        let kind = HeldKind::One(HeldLock { session, hold });
        Self { kind }
    }

    pub(super) fn several(lock: Arc<dyn CompositeHold>) -> Self {
        let kind = HeldKind::Several(lock);
        Self { kind }
    }

    /// See [`Guard::lost`](super::Guard::lost). If the guard has ended, this returns immediately.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn lost(&self) -> Lost {
        let token = match &self.kind {
            HeldKind::One(one) => one.hold.lost_token(),
            HeldKind::Several(lock) => lock.lost_token(),
        };
        loop {
            // A little early, so that a late timer does not report the loss after the deadline.
            let loss = match &self.kind {
                HeldKind::One(one) => one.loss(LEAD_TIME),
                HeldKind::Several(lock) => lock.loss(LEAD_TIME),
            };
            if let Some(lost) = loss {
                return lost;
            }
            let mut left = self.remaining().saturating_sub(LEAD_TIME);
            if self.outruns_timers() {
                left = left.min(TICK);
            }
            tokio::select! {
                () = token.cancelled() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    /// Whether the deadline may pass without a timer firing, so that the clock must be polled.
    fn outruns_timers(&self) -> bool {
        match &self.kind {
            HeldKind::One(one) => one.session.core().clock.outruns_timers(),
            HeldKind::Several(lock) => lock.outruns_timers(),
        }
    }

    /// See [`Guard::lost_token`](super::Guard::lost_token).
    pub fn lost_token(&self) -> CancellationToken {
        let token = match &self.kind {
            HeldKind::One(one) => one.hold.lost_token(),
            HeldKind::Several(lock) => lock.lost_token(),
        };
        token.child_token()
    }

    /// See [`Guard::is_valid`](super::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        match &self.kind {
            HeldKind::One(one) => one.hold.state().is_valid(one.now()),
            HeldKind::Several(lock) => lock.is_valid(),
        }
    }

    /// See [`Guard::remaining`](super::Guard::remaining).
    pub fn remaining(&self) -> Duration {
        match &self.kind {
            HeldKind::One(one) => one.hold.remaining(one.now()),
            HeldKind::Several(lock) => lock.remaining(),
        }
    }

    /// See [`Guard::ensure`](super::Guard::ensure).
    ///
    /// # Errors
    ///
    /// As [`Guard::ensure`](super::Guard::ensure).
    pub fn ensure(&self, margin: Duration) -> std::result::Result<(), Lost> {
        let lost = match &self.kind {
            HeldKind::One(one) => {
                let soon = || one.hold.loss(one.now() + margin);
                one.loss(Duration::ZERO).or_else(soon)
            }
            HeldKind::Several(lock) => {
                let soon = || lock.loss_within(margin);
                lock.loss(Duration::ZERO).or_else(soon)
            }
        };
        lost.map_or(Ok(()), Err)
    }

    /// See [`Guard::verdict`](super::Guard::verdict).
    pub fn verdict(&self) -> Verdict {
        match &self.kind {
            HeldKind::One(one) => one.verdict(),
            HeldKind::Several(lock) => lock.verdict(),
        }
    }

    /// See [`Guard::hold_count`](super::Guard::hold_count).
    pub fn hold_count(&self) -> u32 {
        match &self.kind {
            HeldKind::One(one) => one.hold.state().claims(),
            HeldKind::Several(lock) => lock.hold_count(),
        }
    }

    /// The owner that holds the lock: see [`Guard::owner`](super::Guard::owner).
    pub fn owner(&self) -> Owner {
        match &self.kind {
            HeldKind::One(one) => one.hold.owner(),
            HeldKind::Several(lock) => lock.owner(),
        }
    }

    /// See [`Guard::name`](super::Guard::name).
    pub fn name(&self) -> &str {
        match &self.kind {
            HeldKind::One(one) => one.hold.key().name(),
            HeldKind::Several(lock) => lock.name(),
        }
    }

    /// See [`Guard::token`](super::Guard::token).
    pub fn token(&self) -> Option<u64> {
        match &self.kind {
            HeldKind::One(one) => one.hold.state().token.map(NonZeroU64::get),
            HeldKind::Several(lock) => lock.token(),
        }
    }

    /// See [`Guard::extend`](super::Guard::extend).
    pub(super) async fn extend(self, lease: Duration) -> Result<()> {
        ensure_runtime()?;
        match self.kind {
            HeldKind::One(HeldLock { session, hold }) => {
                session.core().lengthen(&hold, lease).await
            }
            HeldKind::Several(lock) => lock.extend(lease).await,
        }
    }

    /// See [`Guard::instances`](super::Guard::instances).
    pub fn instances(&self) -> Vec<Instance> {
        match &self.kind {
            HeldKind::One(_) => Vec::new(),
            HeldKind::Several(lock) => lock.instances(),
        }
    }

    /// See [`Guard::margin`](super::Guard::margin).
    pub fn margin(&self) -> u32 {
        match &self.kind {
            HeldKind::One(_) => 0,
            HeldKind::Several(lock) => lock.margin(),
        }
    }
}

impl HeldLock {
    fn now(&self) -> Moment {
        self.session.core().clock.now()
    }

    fn verdict(&self) -> Verdict {
        match self.loss(Duration::ZERO) {
            Some(lost) => Verdict::Lost(lost.reason()),
            None => Verdict::of(self.hold.state().phase == HoldPhase::Jeopardy),
        }
    }

    /// How it was lost; a loss by deadline is reported `early` before the deadline.
    fn loss(&self, early: Duration) -> Option<Lost> {
        let lost = self.hold.loss(self.now() + early)?;
        let core = self.session.core();
        // A reported loss stays final, so no renewal may succeed after it.
        if core.lose_without_log(&self.hold, lost.reason()) {
            core.report_lost(&self.hold);
        }
        Some(lost)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("lock", &self.name())
            .field("owner", &self.owner())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// How often to poll a clock that continues while timers are suspended.
const TICK: Duration = Duration::from_millis(100);
