//! The unlock of a claim, and its wait for an earlier command of the hold.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::release::PendingUnlock;
use super::{Claim, Core, Unlocked};
use crate::error::{Error, UnlockUnconfirmed};
use crate::hold::{Hold, SLOW_UNLOCK, TurnGuard};

impl Claim {
    /// Ends the claim and waits until Redis confirms it.
    ///
    /// # Cancel safety
    ///
    /// The background still ends the claim.
    pub(crate) async fn unlock(mut self) -> Result<Unlocked, Error> {
        self.warn_elsewhere();
        if let Some(unlocked) = self.end_locally() {
            return Ok(unlocked);
        }
        if let Some(command) = self.hold.try_fair_command() {
            match PendingUnlock::begin(self, command)? {
                // Boxed, as each acquire is. Otherwise it would be a part of each caller's future, in
                // size and in depth (decision 101).
                Ok(unlock) => return Box::pin(unlock.finish()).await,
                Err(claim) => self = claim,
            }
        }
        // Boxed because it is rare.
        Box::pin(WaitingUnlock::new(self).finish()).await
    }
}

/// An unlock whose claim still counts, because the count of the earlier command may include it. The watchdog
/// renews the hold meanwhile. If the caller's future is not polled, the client's thread takes the claim after
/// [`SLOW_UNLOCK`] and unlocks in place of the future (design: invariant 14).
struct WaitingUnlock {
    core: Arc<Core>,
    hold: Arc<Hold>,
    /// `None` if the thread has taken it.
    claim: Slot,
    /// The outcome, if the thread has taken the claim.
    ended: oneshot::Receiver<Result<Unlocked, Error>>,
}

type Slot = Arc<Mutex<Option<Claim>>>;

impl WaitingUnlock {
    fn new(claim: Claim) -> Self {
        let (core, hold) = (claim.session.core().clone(), claim.hold.clone());
        let (answer, ended) = oneshot::channel();
        let claim = Arc::new(Mutex::new(Some(claim)));
        let take_over = take_over(core.clone(), Arc::downgrade(&claim), answer);
        // If the thread has ended, no party renews the hold, so it ends with its lease.
        let _ = core.mailbox.run(Box::pin(take_over));
        Self {
            core,
            hold,
            claim,
            ended,
        }
    }

    /// Unlocks after the earlier command.
    ///
    /// # Cancel safety
    ///
    /// The background ends the claim.
    async fn finish(self) -> Result<Unlocked, Error> {
        loop {
            let turn = self.core.turn_to_unlock(&self.hold).await;
            // A statement of its own, so that the mutex is not held while the unlock begins.
            let claim = self.claim.lock().take();
            let Some(claim) = claim else {
                drop(turn);
                return self.ended.await.unwrap_or(Err(Error::Closed));
            };
            match unlock_with(claim, turn?).await? {
                Ok(unlocked) => return Ok(unlocked),
                Err(claim) => *self.claim.lock() = Some(claim),
            }
        }
    }
}

/// Unlocks on the client's thread if the caller has not begun to by then.
async fn take_over(
    core: Arc<Core>,
    claim: Weak<Mutex<Option<Claim>>>,
    mut answer: oneshot::Sender<Result<Unlocked, Error>>,
) {
    loop {
        tokio::select! {
            () = answer.closed() => return,
            () = core.clock.sleep_until(core.clock.now() + SLOW_UNLOCK) => {}
        }
        let taken = claim.upgrade().and_then(|claim| claim.lock().take());
        if let Some(claim) = taken {
            // The caller may be gone.
            let _ = answer.send(unlock(&core, claim).await);
            return;
        }
    }
}

async fn unlock(core: &Core, mut claim: Claim) -> Result<Unlocked, Error> {
    loop {
        let turn = core.turn_to_unlock(&claim.hold).await?;
        match unlock_with(claim, turn.into_background()).await? {
            Ok(unlocked) => return Ok(unlocked),
            Err(it) => claim = it,
        }
    }
}

/// Ends a claim in its turn. Gives the claim back immediately if another party has taken the turn over.
async fn unlock_with(mut claim: Claim, turn: TurnGuard) -> Result<Result<Unlocked, Claim>, Error> {
    if let Some(unlocked) = claim.end_locally() {
        return Ok(Ok(unlocked));
    }
    match PendingUnlock::begin(claim, turn)? {
        Ok(unlock) => unlock.finish().await.map(Ok),
        Err(claim) => Ok(Err(claim)),
    }
}

impl Core {
    /// Waits for the end of an earlier command of the hold.
    pub(super) async fn turn_to_unlock(&self, hold: &Arc<Hold>) -> Result<TurnGuard, Error> {
        // A settlement needs one command timeout to detect that it is necessary.
        let waited: Duration = self.server.command_timeout() * 2;
        let command = tokio::time::timeout(waited, self.acquire_turn(hold)).await;
        command.map_err(|_| {
            // Dropping the claim queues this unlock behind that command.
            let cause = Some(hold.unanswered(waited));
            UnlockUnconfirmed::new(hold.key().name(), waited, cause).into()
        })
    }
}
