//! The requests for permits. A request does nothing until it is awaited.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use super::LeasedPermit;
use crate::background::ensure_runtime;
use crate::error::{Error, Result};
use crate::hold::Terms;
use crate::lock_request::{AcquireOptions, Boxed, WaitLimit, not_a_future};
use crate::object::Object;
use crate::permits::{self, Wanted};
use crate::session::ClientSettings;

/// A pending acquire of permits that waits without limit, from
/// [`PermitSemaphore::acquire`](crate::PermitSemaphore::acquire) and
/// [`acquire_many`](crate::PermitSemaphore::acquire_many). It does nothing until it is awaited. The method
/// that returns it has its errors and its cancel safety. Its methods are the arguments of Redisson's
/// `acquire(permits, lease, unit)`.
///
/// `tokio::spawn` and `join_all` take `semaphore.acquire().into_future()`, as with
/// [`LockRequest`](crate::request::LockRequest).
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited; keep the permit that it returns"]
pub struct PermitRequest {
    semaphore: Arc<Object>,
    options: PermitOptions,
}

/// A pending acquire of permits that makes one attempt or waits for a limited time, from
/// [`PermitSemaphore::try_acquire`](crate::PermitSemaphore::try_acquire) and
/// [`try_acquire_many`](crate::PermitSemaphore::try_acquire_many). It does nothing until it is awaited. The
/// method that returns it has its errors and its cancel safety. Its methods are the arguments of
/// Redisson's `tryAcquire(permits, wait, lease, unit)`.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited; keep the permit that it returns"]
pub struct TryPermitRequest {
    semaphore: Arc<Object>,
    options: PermitOptions,
    wait: Option<Duration>,
}

/// What a caller asks for. [`PermitOptions::terms`] checks it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PermitOptions {
    pub(super) permits: u32,
    pub(super) lease: Option<Duration>,
    pub(super) max_hold: Option<Duration>,
    /// The permits never expire.
    pub(super) is_endless: bool,
}

impl PermitOptions {
    async fn acquire(&self, semaphore: &Object, wait: WaitLimit) -> Result<Option<LeasedPermit>> {
        let wanted = Wanted {
            permits: self.permits,
            is_endless: self.is_endless,
            terms: self.terms(&semaphore.core().settings)?,
        };
        let key = semaphore.key()?.clone();
        let claims = permits::acquire(semaphore, wanted, wait).await?;
        Ok(claims.map(|claims| LeasedPermit::new(key, claims)))
    }

    /// Checks all options, because nothing may be sent for an invalid request. An endless permit begins
    /// with these terms, too.
    pub(super) fn terms(&self, settings: &ClientSettings) -> Result<Terms> {
        if !(1..=MOST_PERMITS).contains(&self.permits) {
            let why = format!("it must be 1 to {MOST_PERMITS}, got={}", self.permits);
            return Err(Error::invalid("number of permits", why));
        }
        if self.is_endless && (self.lease.is_some() || self.max_hold.is_some()) {
            let why = "it cannot be combined with a lease or a max_hold".to_owned();
            return Err(Error::invalid("forever", why));
        }
        let options = AcquireOptions {
            lease: self.lease,
            max_hold: self.max_hold,
            ..AcquireOptions::default()
        };
        let terms = options.terms(settings)?;
        Ok(Terms {
            watched: terms.watched && !self.is_endless,
            local: false,
            ..terms
        })
    }
}

macro_rules! options {
    () => {
        /// Acquires the permits with a fixed lease: the watchdog does not renew them, and they are free
        /// again when this time ends. From 10 ms up to the client's `max_lease`, in whole milliseconds.
        /// Any other lease is [`Error::Invalid`](crate::Error::Invalid). Corresponds to Redisson's
        /// `leaseTime`.
        ///
        /// The watchdog does not check such permits either, as with [`LockRequest::lease`].
        ///
        /// [`LockRequest::lease`]: crate::request::LockRequest::lease
        pub fn lease(mut self, lease: Duration) -> Self {
            self.options.lease = Some(lease);
            self
        }

        /// Acquires permits that never end by themselves. Corresponds to Redisson's `acquire()` without a
        /// lease.
        ///
        /// If the process crashes, such a permit stays in use until it is released by its id
        /// ([`PermitSemaphore::release`](crate::PermitSemaphore::release)), or until both keys are
        /// deleted. The client acquires the permits with the watchdog's lease and makes them endless by a
        /// second command, so that an acquire whose answer is lost leaves no endless permit.
        ///
        /// Not together with a lease or a `max_hold`: that is [`Error::Invalid`](crate::Error::Invalid).
        pub fn forever(mut self) -> Self {
            self.options.is_endless = true;
            self
        }

        /// Limits how long the watchdog renews the permits, as
        /// [`LockRequest::max_hold`](crate::request::LockRequest::max_hold).
        pub fn max_hold(mut self, max_hold: Duration) -> Self {
            self.options.max_hold = Some(max_hold);
            self
        }
    };
}

impl PermitRequest {
    pub(super) fn new(semaphore: Arc<Object>, permits: u32) -> Self {
        let options = PermitOptions {
            permits,
            lease: None,
            max_hold: None,
            is_endless: false,
        };
        Self { semaphore, options }
    }

    options!();
}

impl TryPermitRequest {
    pub(super) fn new(semaphore: Arc<Object>, permits: u32) -> Self {
        let PermitRequest { semaphore, options } = PermitRequest::new(semaphore, permits);
        Self {
            semaphore,
            options,
            wait: None,
        }
    }

    options!();

    /// Limits the time of the whole call, as [`TryLockRequest::wait`](crate::request::TryLockRequest::wait).
    /// Corresponds to Redisson's `waitTime`.
    ///
    /// With [`forever`](Self::forever), the second command may take a command timeout more.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }
}

impl IntoFuture for PermitRequest {
    type Output = Result<LeasedPermit>;
    type IntoFuture = Boxed<LeasedPermit>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            ensure_runtime()?;
            let acquired = self.options.acquire(&self.semaphore, WaitLimit::ForEver);
            // A wait without a limit ends with permits or an error.
            acquired.await?.ok_or(Error::Closed)
        })
    }
}

impl IntoFuture for TryPermitRequest {
    type Output = Result<Option<LeasedPermit>>;
    type IntoFuture = Boxed<Option<LeasedPermit>>;

    fn into_future(self) -> Self::IntoFuture {
        let wait = WaitLimit::of_try(self.wait);
        Box::pin(async move {
            ensure_runtime()?;
            self.options.acquire(&self.semaphore, wait).await
        })
    }
}

not_a_future!(PermitRequest, Result<LeasedPermit>);
not_a_future!(TryPermitRequest, Result<Option<LeasedPermit>>);

impl fmt::Debug for PermitRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitRequest")
            .field("semaphore", &self.semaphore.name())
            .field("options", &self.options)
            .finish()
    }
}

impl fmt::Debug for TryPermitRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryPermitRequest")
            .field("semaphore", &self.semaphore.name())
            .field("options", &self.options)
            .field("wait", &self.wait)
            .finish()
    }
}

/// The largest number of permits in one command. The server runs nothing else during a command.
pub(super) const MOST_PERMITS: u32 = 1000;
