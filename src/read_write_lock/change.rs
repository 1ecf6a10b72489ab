//! Acquires the other mode of a lock that its owner holds.

use std::sync::Arc;

use crate::background::ensure_runtime;
use crate::clock::Moment;
use crate::error::{Error, Lost, LostReason, Result};
use crate::guard::Guard;
use crate::hold::Terms;
use crate::lease;
use crate::lock::{self, HandleOptions};
use crate::lock_request::WaitLimit;
use crate::session::Claim;

/// Acquires the lock of `guard` in the other mode for the same owner. The watchdog renews the new hold if it
/// renews the guard's hold, and up to the same `max_hold`. Otherwise the new hold has the rest of that one's lease.
/// Returns `None` if other owners kept the lock busy until the limit.
///
/// # Cancel safety
///
/// What was acquired is released in the background.
pub(super) async fn acquire(
    guard: &Guard,
    upgrades: bool,
    wait: WaitLimit,
) -> Result<Option<Guard>> {
    ensure_runtime()?;
    let claim = guard.claim().ok_or(Error::Closed)?;
    let (session, hold) = (claim.session(), claim.hold());
    let core = session.core();
    let now = core.clock.now();
    if let Some(lost) = hold.loss(now) {
        return Err(lost.into());
    }
    let max_until = hold.state().max_until;
    let max_hold = (max_until != Moment::NEVER).then(|| max_until.since(now));
    let watched = claim.is_watched();
    let lease = match watched {
        true => core.settings.watchdog_lease,
        false => guard.remaining(),
    };
    let lease = lease::whole(lease.min(max_hold.unwrap_or(lease))).max(lease::SHORTEST);
    let terms = Terms {
        lease,
        watched,
        max_hold,
        local: false,
        at_least: None,
    };
    let key = Arc::new(hold.key().partner().ok_or(Error::Closed)?);
    let options = HandleOptions {
        upgrades,
        // The call may wait, and the new hold ends no later for that.
        ends_at: max_hold.map(|_| max_until),
        ..HandleOptions::default()
    };
    // Boxed because it is large, and a guard changes its mode rarely.
    let acquired = Box::pin(lock::acquire(
        session,
        &key,
        options,
        hold.owner(),
        &terms,
        wait,
    ))
    .await;
    let acquired: Option<Guard> = acquired.map_err(|error| match hold.loss(core.clock.now()) {
        // The answer came after the end of both holds.
        Some(lost) if error.is_timeout() => lost.into(),
        _ => error,
    })?;
    if let Some(claim) = acquired.as_ref().and_then(Guard::claim) {
        // The sending of its command was later than the moment from which its limit was calculated.
        core.holds
            .change(claim.hold(), |state| state.bound(max_until));
        if let Some(lost) = claim.hold().loss(core.clock.now()) {
            return Err(lost.into());
        }
    }
    Ok(acquired)
}

/// Marks a hold as lost, because the server does not have it any more. Returns its loss.
pub(super) fn lose(claim: &Claim) -> Option<Lost> {
    let (core, hold) = (claim.session().core(), claim.hold());
    core.lose(hold, LostReason::NotOurs);
    hold.loss(core.clock.now())
}
