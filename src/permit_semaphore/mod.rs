//! The semaphore whose permits have leases: its requests, its permits, and the wait for them.

mod by_id;
mod counts;
mod permit;
mod request;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::key::kind;
use crate::object::Object;
use crate::session::Session;

pub use permit::LeasedPermit;
pub use request::{PermitRequest, TryPermitRequest};

/// A semaphore on a server: a number of permits, each with a lease. Corresponds to Redisson's
/// `RPermitExpirableSemaphore`: a semaphore of lockdog and one of Redisson with the same name share their
/// permits.
///
/// A `PermitSemaphore` is a handle. The client sends nothing when it creates or clones a handle. All
/// handles with one name are the same semaphore. Each handle keeps its client alive.
///
/// A permit that is acquired without a lease has the watchdog's lease, and the watchdog renews it. So a
/// permit of a process that crashed is free again after one lease. In Redisson such a permit never ends;
/// [`PermitRequest::forever`] corresponds to that.
///
/// Permits have no owner: a task that acquires twice gets two permits. Inside one client the waiters are
/// served in the order of their calls. A semaphore has no permits until
/// [`try_set_permits`](Self::try_set_permits), [`set_permits`](Self::set_permits) or
/// [`add_permits`](Self::add_permits) was called.
///
/// The leases count on the server's clock. A Redisson client frees expired permits by its own
/// clock. If that is ahead by more than the remaining lease (more than half of the lease while the watchdog
/// renews), it frees a permit that is in use. The next renewal reports that as a loss.
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
/// let seats = client.permit_semaphore("seats");
/// seats.try_set_permits(3).await?;
///
/// let permit = seats.acquire().await?;
/// tokio::select! {
///     lost = permit.lost() => eprintln!("stop: {lost}"),
///     () = work() => permit.release().await?,
/// }
///
/// match seats.try_acquire_many(2).wait(Duration::from_secs(1)).await? {
///     Some(two) => drop(two),
///     None => println!("fewer than two are free"),
/// }
/// # Ok(())
/// # }
/// # async fn work() {}
/// ```
#[derive(Clone)]
pub struct PermitSemaphore {
    inner: Arc<Object>,
}

impl PermitSemaphore {
    pub(crate) fn new(session: Arc<Session>, name: &str) -> Self {
        Self {
            inner: Arc::new(Object::new(session, &kind::PERMIT, name)),
        }
    }

    /// The name, as given by the caller. Corresponds to Redisson's `getName()`.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Acquires one permit and waits for it without limit. Corresponds to Redisson's `acquire()`, and with
    /// [`PermitRequest::lease`] to `acquire(lease, unit)`.
    ///
    /// Without a lease the watchdog renews the permit until it is released. Redisson's `acquire()` gives a
    /// permit without end: [`PermitRequest::forever`].
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`](crate::Error::Timeout), [`Error::Unavailable`](crate::Error::Unavailable) or a
    ///   retriable [`Error::Refused`](crate::Error::Refused) if the server gave no usable answer for the whole
    ///   command timeout.
    /// - [`Error::Refused`](crate::Error::Refused) if the server does not permit the command, and with the
    ///   code `WRONGTYPE` if the name is in use for something else.
    /// - [`Error::NotReplicated`](crate::Error::NotReplicated) if too few replicas acknowledged the permits in
    ///   time ([`ReplicaAck::Require`](crate::config::ReplicaAck::Require)).
    /// - [`Error::TooManyWaiters`](crate::Error::TooManyWaiters) if the client has its maximum number of
    ///   waiters.
    /// - [`Error::Invalid`](crate::Error::Invalid) for an invalid name, lease or number of permits, and outside
    ///   a tokio runtime.
    /// - [`Error::Closed`](crate::Error::Closed) if the client is shut down.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled at any point, the next waiter of the client takes its place in the queue. If the
    /// server granted permits, the client releases them in the background.
    pub fn acquire(&self) -> PermitRequest {
        self.acquire_many(1)
    }

    /// Acquires this many permits, 1 to 1000: all of them, or none. Corresponds to Redisson's
    /// `acquire(permits)`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_many(&self, permits: u32) -> PermitRequest {
        PermitRequest::new(self.inner.clone(), permits)
    }

    /// Acquires one permit with one attempt, or within [`TryPermitRequest::wait`]. Returns `None` if none is
    /// free. Corresponds to Redisson's `tryAcquire()`, `tryAcquire(wait, unit)` and
    /// `tryAcquire(wait, lease, unit)`.
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
    pub fn try_acquire(&self) -> TryPermitRequest {
        self.try_acquire_many(1)
    }

    /// Acquires this many permits, 1 to 1000, with one attempt, or within [`TryPermitRequest::wait`].
    /// Returns `None` if fewer are free. Corresponds to Redisson's `tryAcquire(permits)`.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_many(&self, permits: u32) -> TryPermitRequest {
        TryPermitRequest::new(self.inner.clone(), permits)
    }
}

/// See [`Client`](crate::Client).
impl UnwindSafe for PermitSemaphore {}
impl RefUnwindSafe for PermitSemaphore {}

impl fmt::Debug for PermitSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitSemaphore")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
