//! The semaphore whose permits have no leases.

mod counts;
mod holder;
mod permit;
mod release;
mod request;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::background::ensure_runtime;
use crate::error::{Error, Result};
use crate::hold::Terms;
use crate::key::kind;
use crate::lease;
use crate::lock_request::WaitLimit;
use crate::object::Object;
use crate::permits::{self, Wanted};
use crate::session::Session;

pub use holder::PermitHolder;
pub use permit::Permit;
pub use request::{SemaphoreRequest, TrySemaphoreRequest};

/// A semaphore on a server: a number of permits without leases. Corresponds to Redisson's `RSemaphore`: a
/// semaphore of lockdog and one of Redisson with the same name share their permits.
///
/// A `Semaphore` is a handle. The client sends nothing when it creates or clones a handle. All handles with
/// one name are the same semaphore. Each handle keeps its client alive.
///
/// A permit stays in use until it is released. The client releases it when the [`Permit`] is dropped, and at
/// its shutdown. The permits of a process that crashed stay in use: [`holders`](Self::holders) shows them,
/// and [`reclaim`](Self::reclaim) releases them. The permits of a
/// [`PermitSemaphore`](crate::PermitSemaphore) come back by themselves.
///
/// Permits have no owner: a task that acquires twice gets two permits. Inside one client the waiters are
/// served in the order of their calls. A semaphore has no permits until
/// [`try_set_permits`](Self::try_set_permits), [`add_permits`](Self::add_permits) or
/// [`release`](Self::release) was called.
///
/// # Panics
///
/// As [`Lock`](crate::Lock).
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let seats = client.semaphore("seats");
/// seats.try_set_permits(3).await?;
///
/// let permit = seats.acquire().await?;
/// permit.release().await?; // dropping it releases it, too, in the background
///
/// match seats.try_acquire_many(2).wait(Duration::from_secs(1)).await? {
///     Some(two) => drop(two),
///     None => println!("fewer than two are free"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    inner: Arc<Object>,
}

impl Semaphore {
    pub(crate) fn new(session: Arc<Session>, name: &str) -> Self {
        Self {
            inner: Arc::new(Object::new(session, &kind::SEMAPHORE, name)),
        }
    }

    /// The name, as given by the caller. Corresponds to Redisson's `getName()`.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Acquires one permit and waits for it without limit. Corresponds to Redisson's `acquire()`.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`], [`Error::Unavailable`] or a retriable [`Error::Refused`] if the server gave no
    ///   usable answer for the whole command timeout.
    /// - [`Error::Refused`] if the server does not permit the command, and with the code `WRONGTYPE` if the
    ///   name is in use for something else.
    /// - [`Error::NotReplicated`] if too few replicas acknowledged the permits in time
    ///   ([`ReplicaAck::Require`](crate::config::ReplicaAck::Require)).
    /// - [`Error::TooManyWaiters`] if the client has its maximum number of waiters.
    /// - [`Error::Invalid`] for an invalid name, for more than 2^31 - 1 permits, and outside a tokio runtime.
    /// - [`Error::Closed`] if the client is shut down.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled at any point, the next waiter of the client takes its place in the queue. If the
    /// server granted permits, the client releases them in the background.
    pub fn acquire(&self) -> SemaphoreRequest {
        self.acquire_many(1)
    }

    /// Acquires this many permits: all of them, or none. Corresponds to Redisson's `acquire(permits)`. As in
    /// Redisson, 0 permits are granted immediately, and nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_many(&self, permits: u32) -> SemaphoreRequest {
        SemaphoreRequest::new(self.inner.clone(), permits)
    }

    /// Acquires one permit with one attempt, or within [`TrySemaphoreRequest::wait`]. Returns `None` if none
    /// is free. Corresponds to Redisson's `tryAcquire()` and `tryAcquire(wait)`.
    ///
    /// Keep the permit: `try_acquire().await?.is_some()` drops it, which releases it immediately.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). If the server cannot be reached, it returns an error, never `None`.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> TrySemaphoreRequest {
        self.try_acquire_many(1)
    }

    /// Acquires this many permits with one attempt, or within [`TrySemaphoreRequest::wait`]. Returns `None`
    /// if fewer are free. Corresponds to Redisson's `tryAcquire(permits)` and `tryAcquire(permits, wait)`. As
    /// in Redisson, 0 permits are granted immediately, and nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_many(&self, permits: u32) -> TrySemaphoreRequest {
        TrySemaphoreRequest::new(self.inner.clone(), permits)
    }

    /// Acquires all permits that are free. Returns `None` if none is. Corresponds to Redisson's
    /// `drainPermits()`, which returns their number: [`Permit::count`].
    ///
    /// Ported code that keeps the permits calls [`Permit::forget`]. One call takes at most 2^31 - 1 permits.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn drain(&self) -> Result<Option<Permit>> {
        ensure_runtime()?;
        acquire(&self.inner, ALL, WaitLimit::Not).await
    }
}

/// Acquires permits of a semaphore, or [`ALL`] that are free.
async fn acquire(semaphore: &Object, permits: u32, wait: WaitLimit) -> Result<Option<Permit>> {
    check(permits)?;
    let wanted = Wanted {
        permits,
        is_endless: false,
        terms: TERMS,
    };
    let key = semaphore.key()?.clone();
    let claims = permits::acquire(semaphore, wanted, wait).await?;
    Ok(claims.map(|claims| Permit::new(key, claims)))
}

/// Checks a number of permits before anything is sent.
fn check(permits: u32) -> Result<()> {
    if i32::try_from(permits).is_err() {
        let why = format!("it must be at most {}, got={permits}", i32::MAX);
        return Err(Error::invalid("number of permits", why));
    }
    Ok(())
}

const ALL: u32 = 0;

/// The server keeps permits until they are released.
const TERMS: Terms = Terms::new(lease::LONGEST, false);

/// See [`Client`](crate::Client).
impl UnwindSafe for Semaphore {}
impl RefUnwindSafe for Semaphore {}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
