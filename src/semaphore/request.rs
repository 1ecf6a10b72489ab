//! The requests for permits. A request does nothing until it is awaited.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use super::{Permit, acquire};
use crate::background::ensure_runtime;
use crate::error::{Error, Result};
use crate::lock_request::{Boxed, WaitLimit, not_a_future};
use crate::object::Object;

/// A pending acquire of permits that waits without limit, from
/// [`Semaphore::acquire`](crate::Semaphore::acquire) and
/// [`acquire_many`](crate::Semaphore::acquire_many). It does nothing until it is awaited. The method that
/// returns it has its errors and its cancel safety.
///
/// `tokio::spawn` and `join_all` take `semaphore.acquire().into_future()`, as with
/// [`LockRequest`](crate::request::LockRequest).
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited; keep the permit that it returns"]
pub struct SemaphoreRequest {
    semaphore: Arc<Object>,
    permits: u32,
}

/// A pending acquire of permits that makes one attempt or waits for a limited time, from
/// [`Semaphore::try_acquire`](crate::Semaphore::try_acquire) and
/// [`try_acquire_many`](crate::Semaphore::try_acquire_many). It does nothing until it is awaited. The method
/// that returns it has its errors and its cancel safety.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited; keep the permit that it returns"]
pub struct TrySemaphoreRequest {
    semaphore: Arc<Object>,
    permits: u32,
    wait: Option<Duration>,
}

impl SemaphoreRequest {
    pub(super) fn new(semaphore: Arc<Object>, permits: u32) -> Self {
        Self { semaphore, permits }
    }
}

impl TrySemaphoreRequest {
    pub(super) fn new(semaphore: Arc<Object>, permits: u32) -> Self {
        Self {
            semaphore,
            permits,
            wait: None,
        }
    }

    /// Limits the time of the whole call, as [`TryLockRequest::wait`](crate::request::TryLockRequest::wait).
    /// Corresponds to Redisson's `waitTime`.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }
}

/// As [`acquire`], but grants 0 permits immediately, where [`acquire`] takes 0 as [`ALL`](super::ALL).
async fn acquire_some(semaphore: &Object, permits: u32, wait: WaitLimit) -> Result<Option<Permit>> {
    ensure_runtime()?;
    if permits == 0 {
        semaphore.core().ensure_open()?;
        return Ok(Some(Permit::new(semaphore.key()?.clone(), Vec::new())));
    }
    acquire(semaphore, permits, wait).await
}

impl IntoFuture for SemaphoreRequest {
    type Output = Result<Permit>;
    type IntoFuture = Boxed<Permit>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let acquired = acquire_some(&self.semaphore, self.permits, WaitLimit::ForEver);
            // A wait without a limit ends with permits or an error.
            acquired.await?.ok_or(Error::Closed)
        })
    }
}

impl IntoFuture for TrySemaphoreRequest {
    type Output = Result<Option<Permit>>;
    type IntoFuture = Boxed<Option<Permit>>;

    fn into_future(self) -> Self::IntoFuture {
        let wait = WaitLimit::of_try(self.wait);
        Box::pin(async move { acquire_some(&self.semaphore, self.permits, wait).await })
    }
}

not_a_future!(SemaphoreRequest, Result<Permit>);
not_a_future!(TrySemaphoreRequest, Result<Option<Permit>>);

impl fmt::Debug for SemaphoreRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreRequest")
            .field("semaphore", &self.semaphore.name())
            .field("permits", &self.permits)
            .finish()
    }
}

impl fmt::Debug for TrySemaphoreRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrySemaphoreRequest")
            .field("semaphore", &self.semaphore.name())
            .field("permits", &self.permits)
            .field("wait", &self.wait)
            .finish()
    }
}
