//! Permits that a caller holds.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use tokio_util::sync::CancellationToken;

use crate::background::ensure_runtime;
use crate::error::{Lost, Result};
use crate::guard::{Guard, Verdict};
use crate::hold::{Dependant, PartRenewal};
use crate::key::{LockKey, PermitId};
use crate::session::Claim;

/// Permits of a [`PermitSemaphore`](crate::PermitSemaphore), at least one. Corresponds to the ids that
/// Redisson's `acquire()` returns.
///
/// [`LeasedPermit::release`] releases the permits and waits until Redis has confirmed it. Dropping the
/// value releases them without waiting: the client's own thread sends the release to Redis. The value can
/// be moved to another task, and dropped anywhere.
///
/// A permit can be lost, as a lock can: its lease ran out, or it was released by its id. Each permit
/// counts by itself: if one of several is lost, the others are still in use until they are released. What
/// [`Guard`] says about the limits of a lease is true here, too.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let mut three = client.permit_semaphore("seats").acquire_many(3).await?;
/// let one = three.split(1).expect("it has more than one");
/// one.release().await?;
/// assert_eq!(three.count(), 2);
/// # Ok(())
/// # }
/// ```
#[must_use = "`let _ = ..` drops the permit immediately, and that releases it"]
pub struct LeasedPermit {
    key: Arc<LockKey>,
    parts: Vec<Part>,
    /// The token for the loss of any of the parts, if a caller asked for it.
    token: OnceLock<Arc<LossToken>>,
    /// The tokens of the values that were merged into this one.
    merged: Vec<Arc<LossToken>>,
}

/// One permit.
struct Part {
    id: PermitId,
    guard: Guard,
}

/// A token that is cancelled when one of several permits is lost.
struct LossToken(CancellationToken);

impl Dependant for LossToken {
    fn hold_lost(&self) {
        self.0.cancel();
    }

    fn renewal(&self) -> Option<PartRenewal> {
        None
    }
}

impl LeasedPermit {
    pub(super) fn new(key: Arc<LockKey>, claims: Vec<Claim>) -> Self {
        let parts = claims.into_iter().filter_map(|claim| {
            let id = claim.session().core().permit_id(claim.hold())?;
            let guard = Guard::new(claim);
            Some(Part { id, guard })
        });
        Self::of(key, parts.collect())
    }

    fn of(key: Arc<LockKey>, parts: Vec<Part>) -> Self {
        Self {
            key,
            parts,
            token: OnceLock::new(),
            merged: Vec::new(),
        }
    }

    /// The name of the semaphore, as given by the caller. Corresponds to Redisson's `getName()`.
    pub fn name(&self) -> &str {
        self.key.name()
    }

    /// How many permits these are.
    pub fn count(&self) -> u32 {
        u32::try_from(self.parts.len()).unwrap_or(u32::MAX)
    }

    /// The ids of the permits. Corresponds to what Redisson's `acquire()` returns.
    pub fn ids(&self) -> Vec<PermitId> {
        self.parts.iter().map(|part| part.id).collect()
    }

    /// Waits until one of the permits is lost and returns how: see [`Guard::lost`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn lost(&self) -> Lost {
        let losses = self.parts.iter().map(|part| Box::pin(part.guard.lost()));
        select_all(losses).await.0
    }

    /// A token that is cancelled when one of the permits is lost: see [`Guard::lost_token`]. After a
    /// [`merge`](Self::merge) it is about all of the permits; after a [`split`](Self::split) it is about
    /// those that this value kept.
    pub fn lost_token(&self) -> CancellationToken {
        let token = self.token.get_or_init(|| {
            let token = Arc::new(LossToken(CancellationToken::new()));
            for part in &self.parts {
                part.guard.add_dependant(weak(&token));
            }
            token
        });
        token.0.child_token()
    }

    /// Whether all of the permits may be used now: see [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.parts.iter().all(|part| part.guard.is_valid())
    }

    /// How long all of the permits may be used without a further renewal. Zero if one is lost. The client
    /// does not ask Redis; [`PermitSemaphore::lease_of`](crate::PermitSemaphore::lease_of) does.
    pub fn remaining(&self) -> Duration {
        let remaining = self.parts.iter().map(|part| part.guard.remaining());
        remaining.min().unwrap_or_default()
    }

    /// Checks that all of the permits may be used now, and for `margin` more without a further renewal. Call it
    /// right before a step that cannot be undone, with the time that the step takes. The client does not ask
    /// Redis. See [`Guard::ensure`] for the margin that a permit without a lease always has. Redisson has no
    /// such call.
    ///
    /// # Errors
    ///
    /// A [`Lost`] if one of the permits was lost, or if one has less than `margin` left. In the second case the
    /// reason is [`LostReason::Deadline`](crate::error::LostReason::Deadline) or
    /// [`LostReason::MaxHold`](crate::error::LostReason::MaxHold), and the permits are still held: they stay
    /// valid until their deadlines, and a renewal or [`extend`](Self::extend) may lengthen them.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: lockdog::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let permit = client.permit_semaphore("seats").acquire().await?;
    /// // ... statements of a transaction ...
    /// permit.ensure(Duration::from_secs(2))?; // the commit takes at most 2 s
    /// // transaction.commit().await?;
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ensure(&self, margin: Duration) -> std::result::Result<(), Lost> {
        let for_margin = |margin| {
            let mut guards = self.parts.iter().map(|part| &part.guard);
            guards.try_for_each(|guard| guard.ensure(margin))
        };
        // A loss of any permit comes before a deadline that is near.
        for_margin(Duration::ZERO)?;
        for_margin(margin)
    }

    /// Whether all of the permits are held, one is in jeopardy because its renewals fail, or one is lost:
    /// see [`Guard::verdict`].
    pub fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::Held;
        for part in &self.parts {
            match part.guard.verdict() {
                Verdict::Held => {}
                Verdict::Jeopardy => verdict = Verdict::Jeopardy,
                lost @ Verdict::Lost(_) => return lost,
            }
        }
        verdict
    }

    /// Extends the leases of all of the permits: see [`Guard::extend`]. A lease is never shortened. To set
    /// an exact lease, take the ids ([`into_ids`](Self::into_ids)) and use
    /// [`PermitSemaphore::update_lease`](crate::PermitSemaphore::update_lease), which corresponds to
    /// Redisson's `updateLeaseTime(permitId, lease, unit)`.
    ///
    /// # Errors
    ///
    /// As [`Guard::extend`]. Some of the permits may have the longer lease.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::extend`].
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        let all = join_all(self.parts.iter().map(|part| part.guard.extend(lease))).await;
        all.into_iter().collect()
    }

    /// Takes this many of the permits into a value of their own. The client sends nothing. `None` if the
    /// number is 0, or if no permit would be left.
    pub fn split(&mut self, permits: u32) -> Option<Self> {
        let permits = usize::try_from(permits).ok()?;
        if permits == 0 || permits >= self.parts.len() {
            return None;
        }
        let parts = self.parts.split_off(self.parts.len() - permits);
        if let Some(token) = self.token.get() {
            for part in &parts {
                part.guard.remove_dependant(Arc::as_ptr(token).cast());
            }
        }
        Some(Self::of(self.key.clone(), parts))
    }

    /// Adds the permits of another value. The client sends nothing.
    ///
    /// # Errors
    ///
    /// Returns the other value if its permits are of another semaphore or another client.
    pub fn merge(&mut self, mut other: Self) -> std::result::Result<(), Self> {
        if !self.is_of_same(&other) {
            return Err(other);
        }
        if let Some(token) = self.token.get() {
            for part in &other.parts {
                part.guard.add_dependant(weak(token));
            }
        }
        self.merged.extend(other.token.take());
        self.merged.append(&mut other.merged);
        self.parts.append(&mut other.parts);
        Ok(())
    }

    fn is_of_same(&self, other: &Self) -> bool {
        let client = |it: &Self| it.parts.first().and_then(|part| part.guard.client_id());
        self.key == other.key && client(self) == client(other)
    }

    /// Releases all of the permits. Corresponds to Redisson's `release(permitId)`.
    ///
    /// # Errors
    ///
    /// What happened to the first permit that was not released. The others are released.
    ///
    /// - [`Error::Lost`](crate::Error::Lost) if it was lost before.
    /// - [`Error::UnlockUnconfirmed`](crate::Error::UnlockUnconfirmed) if Redis did not confirm within the
    ///   command timeout, or refused. The client retries in the background.
    /// - [`Error::Invalid`](crate::Error::Invalid) outside a tokio runtime. The client then releases the
    ///   permits in the background.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled at any point, the client releases the permits in the background, as by a drop.
    pub async fn release(mut self) -> Result<()> {
        ensure_runtime()?;
        let parts = std::mem::take(&mut self.parts);
        let ends = parts.into_iter().map(|part| part.guard.unlock());
        let ended = join_all(ends).await;
        ended.into_iter().try_for_each(|ended| ended.map(|_| ()))
    }

    /// Ends this value and leaves the permits in use until their leases end: see [`Guard::leave_to_lease`]. For a
    /// limit of starts in a time, acquire with [`lease`](crate::request::TryPermitRequest::lease) and call this. The
    /// client sends nothing and does not renew the permits from now on. Neither
    /// [`Client::shutdown`](crate::Client::shutdown) nor a drop of the client releases them. Corresponds to
    /// Redisson's `acquire(lease, unit)` without a `release`.
    ///
    /// The permits end with the rest of their leases: at most the watchdog's lease if they have none of their
    /// own. For a longer rest, call [`extend`](Self::extend) first. Endless permits stay in use until they are
    /// released by their ids, so use [`into_ids`](Self::into_ids) for them. Lost permits are left as they are.
    pub fn leave_to_lease(self) {
        self.into_ids();
    }

    /// As [`leave_to_lease`](Self::leave_to_lease), and returns the ids of the permits. So it hands them over to
    /// any party that has the ids: another process, or a Java service.
    ///
    /// The ids can be released by [`PermitSemaphore::release`](crate::PermitSemaphore::release), or by
    /// Redisson's `release(permitId)`. The ids of lost permits are among them.
    pub fn into_ids(mut self) -> Vec<PermitId> {
        let parts = std::mem::take(&mut self.parts);
        let left = parts.into_iter().map(|part| {
            part.guard.leave_to_lease();
            part.id
        });
        left.collect()
    }
}

fn weak(token: &Arc<LossToken>) -> Weak<dyn Dependant> {
    let token: Weak<LossToken> = Arc::downgrade(token);
    token
}

impl fmt::Debug for LeasedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasedPermit")
            .field("semaphore", &self.name())
            .field("ids", &self.ids())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
