//! Permits that a caller has.

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;

use crate::background::ensure_runtime;
use crate::error::Result;
use crate::key::LockKey;
use crate::session::Claim;

/// Permits of a [`Semaphore`](crate::Semaphore).
///
/// [`Permit::release`] releases the permits and waits until Redis has confirmed it. Dropping the value
/// releases them without waiting: the client's own thread sends the release to Redis. The value can be
/// moved to another task, and dropped anywhere.
///
/// The permits have no lease. They stay in use until they are released, or until
/// [`Semaphore::reclaim`](crate::Semaphore::reclaim) releases them.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let mut three = client.semaphore("seats").acquire_many(3).await?;
/// let one = three.split(1).expect("it has more than one");
/// one.release().await?;
/// assert_eq!(three.count(), 2);
/// # Ok(())
/// # }
/// ```
#[must_use = "`let _ = ..` drops the permit immediately, and that releases it"]
pub struct Permit {
    key: Arc<LockKey>,
    /// One for each request whose permits these are. None for a request of 0 permits.
    claims: Vec<Claim>,
}

impl Permit {
    pub(super) fn new(key: Arc<LockKey>, claims: Vec<Claim>) -> Self {
        Self { key, claims }
    }

    /// The name of the semaphore, as given by the caller.
    pub fn name(&self) -> &str {
        self.key.name()
    }

    /// How many permits these are.
    pub fn count(&self) -> u32 {
        let weights = self.claims.iter().map(Claim::weight);
        weights.fold(0, u32::saturating_add)
    }

    /// Takes this many of the permits into a value of their own. The client sends nothing. `None` if the
    /// number is 0, or if no permit would be left.
    pub fn split(&mut self, permits: u32) -> Option<Self> {
        if permits == 0 || permits >= self.count() {
            return None;
        }
        let mut taken = Vec::new();
        let mut missing = permits;
        while let Some(mut claim) = self.claims.pop() {
            if claim.weight() > missing {
                taken.push(claim.split_off(missing));
                self.claims.push(claim);
                break;
            }
            missing -= claim.weight();
            taken.push(claim);
            if missing == 0 {
                break;
            }
        }
        Some(Self::new(self.key.clone(), taken))
    }

    /// Adds the permits of another value. The client sends nothing.
    ///
    /// # Errors
    ///
    /// Returns the other value if its permits are of another semaphore or another client.
    pub fn merge(&mut self, mut other: Self) -> std::result::Result<(), Self> {
        let client = |it: &Self| it.claims.first().map(|claim| claim.session().core().id);
        let is_of_one_client = match (client(self), client(&other)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        if self.key != other.key || !is_of_one_client {
            return Err(other);
        }
        self.claims.append(&mut other.claims);
        Ok(())
    }

    /// Releases all of the permits. Corresponds to Redisson's `release(permits)`.
    ///
    /// # Errors
    ///
    /// What happened to the first permits that were not released. The others are released.
    ///
    /// - [`Error::Lost`](crate::Error::Lost) if the permits were released before, by
    ///   [`Semaphore::reclaim`](crate::Semaphore::reclaim) or by a shutdown of the client, or if the semaphore was
    ///   deleted or ended meanwhile. The call adds nothing then.
    /// - [`Error::UnlockUnconfirmed`](crate::Error::UnlockUnconfirmed) if Redis did not confirm within the
    ///   command timeout, or refused. The client retries in the background until Redis answers.
    /// - [`Error::Invalid`](crate::Error::Invalid) outside a tokio runtime. The client then releases the
    ///   permits in the background.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled at any point, the client releases the permits in the background, as by a drop.
    pub async fn release(mut self) -> Result<()> {
        ensure_runtime()?;
        release(std::mem::take(&mut self.claims)).await
    }

    /// Leaves the permits to a later [`Semaphore::release`](crate::Semaphore::release) of this client, as
    /// ported code does that acquires and releases without a value. The client sends nothing. A shutdown of
    /// the client releases them.
    pub fn forget(mut self) {
        for claim in std::mem::take(&mut self.claims) {
            claim.forget();
        }
    }
}

/// Releases all of these, and returns the first error.
pub(super) async fn release(claims: Vec<Claim>) -> Result<()> {
    let ended = join_all(claims.into_iter().map(Claim::unlock)).await;
    ended.into_iter().try_for_each(|ended| ended.map(|_| ()))
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("semaphore", &self.name())
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}
