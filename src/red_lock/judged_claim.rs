//! A claim while the client checks whether its server may have lost data.

use parking_lot::Mutex;

use crate::session::Claim;

/// Keeps the claim of one instance while the client checks whether the instance's server may have lost data.
/// This check may wait for an answer. If the caller's future is not polled any more, the background takes the
/// claim out and releases it.
#[derive(Default)]
pub(super) struct JudgedClaim(Mutex<Option<(u32, Claim)>>);

/// The claim of one round in a [`JudgedClaim`]. Dropping it releases the claim.
pub(super) struct Judged<'a> {
    slot: &'a JudgedClaim,
    round: u32,
}

impl JudgedClaim {
    pub(super) fn keep(&self, round: u32, claim: Claim) -> Judged<'_> {
        let earlier = self.0.lock().replace((round, claim));
        // Dropped without the mutex, because the release may run user code.
        drop(earlier);
        Judged { slot: self, round }
    }

    /// Removes the claim if no caller has accepted it.
    pub(super) fn give_up(&self) -> Option<Claim> {
        let kept = self.0.lock().take();
        kept.map(|(_, claim)| claim)
    }
}

impl Judged<'_> {
    /// `None` if the background released it meanwhile.
    pub(super) fn accept(self) -> Option<Claim> {
        self.take()
    }

    fn take(&self) -> Option<Claim> {
        let mut slot = self.slot.0.lock();
        let is_of_round = slot.as_ref().is_some_and(|(round, _)| *round == self.round);
        let kept = if is_of_round { slot.take() } else { None };
        kept.map(|(_, claim)| claim)
    }
}

impl Drop for Judged<'_> {
    fn drop(&mut self) {
        let unaccepted = self.take();
        drop(unaccepted);
    }
}
