//! The trait of all locks, for code that takes a lock of any kind.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::Lock;
use crate::error::Result;
use crate::guard::Held;
use crate::lock_request::{Boxed, LockRequest, TryLockRequest, UnlockRequest};
use crate::owner::Owner;

/// A lock of any kind: [`Lock`], [`MultiLock`](crate::MultiLock) or [`RedLock`](crate::RedLock). A `Lock` of
/// another guard than [`Guard`](crate::Guard), such as the read and the write lock, becomes one with `Lock::from`.
///
/// Use it for code that takes a lock of any kind, as Java code takes an `RLock`. `&dyn AnyLock` and
/// `Box<dyn AnyLock>` work too. No other type can implement it, so later versions can add methods.
/// Corresponds to Redisson's interface `RLock`.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use lockdog::{AnyLock, Client, MultiLock, RedLock, Result};
///
/// async fn bill(lock: &impl AnyLock) -> Result<bool> {
///     let Some(guard) = lock.try_lock().wait(Duration::from_secs(1)).await? else {
///         return Ok(false);
///     };
///     guard.unlock().await?;
///     Ok(true)
/// }
///
/// # async fn example(a: Client, b: Client, c: Client) -> Result<()> {
/// bill(&a.lock("orders:42")).await?;
/// bill(&MultiLock::new([a.lock("orders:42"), a.lock("orders:43")])).await?;
/// bill(&RedLock::new([a.lock("orders"), b.lock("orders"), c.lock("orders")])).await?;
///
/// let locks: Vec<Box<dyn AnyLock>> = vec![Box::new(a.lock("orders:42"))];
/// for lock in &locks {
///     lock.lock().with(|_held| async { /* ... */ }).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub trait AnyLock:
    sealed::Sealed + fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe + 'static
{
    /// The lock's name: see [`Lock::name`].
    fn name(&self) -> &str;

    /// A handle whose acquires never re-enter: see [`Lock::exclusive`].
    #[must_use = "it returns a new handle and does not change this one"]
    fn exclusive(&self) -> Self
    where
        Self: Sized;

    /// Acquires the lock, and waits for it without limit: see [`Lock::lock`].
    fn lock(&self) -> LockRequest;

    /// Acquires the lock with one attempt, or within [`TryLockRequest::wait`]: see [`Lock::try_lock`]. Keep
    /// the guard: `try_lock().await?.is_some()` drops it immediately.
    fn try_lock(&self) -> TryLockRequest;

    /// Ends a hold whose guard was forgotten: see [`Lock::unlock`].
    fn unlock(&self) -> UnlockRequest;

    /// Acquires the lock, does the work, and unlocks: see [`Lock::with`]. For a `dyn AnyLock`, and in
    /// generic code that needs a future which is `Send`, write `lock.lock().with(work)`.
    fn with<F, Fut>(&self, work: F) -> impl Future<Output = Result<Fut::Output>>
    where
        Self: Sized,
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        self.lock().with(work)
    }

    /// Whether the current owner holds the lock: see [`Lock::is_held`]. A [`RedLock`](crate::RedLock)
    /// answers without asking a server.
    fn is_held(&self) -> Boxed<bool>;

    /// Whether this owner holds the lock: see [`Lock::is_held_by`].
    fn is_held_by(&self, owner: &Owner) -> Boxed<bool>;

    /// How many acquires of the current owner are not unlocked yet: see [`Lock::hold_count`].
    fn hold_count(&self) -> Boxed<u32>;
}

/// Prevents other crates from implementing [`AnyLock`].
pub(crate) mod sealed {
    #[expect(unnameable_types, reason = "no other crate may name it")]
    pub trait Sealed {}
}

/// Implements [`AnyLock`] with the lock's own methods. With `remote`, its queries ask a server. With
/// `local`, they return immediately.
macro_rules! any_lock {
    (@remote $answer:expr) => {
        $answer.await
    };
    (@local $answer:expr) => {
        Ok($answer)
    };
    ($lock:ty, $answers:tt) => {
        impl $crate::lock::Sealed for $lock {}

        impl $crate::lock::AnyLock for $lock {
            fn name(&self) -> &str {
                self.name()
            }

            fn exclusive(&self) -> Self {
                self.exclusive()
            }

            fn lock(&self) -> $crate::lock_request::LockRequest {
                self.lock()
            }

            fn try_lock(&self) -> $crate::lock_request::TryLockRequest {
                self.try_lock()
            }

            fn unlock(&self) -> $crate::lock_request::UnlockRequest {
                self.unlock()
            }

            fn is_held(&self) -> $crate::lock_request::Boxed<bool> {
                let lock = self.clone();
                Box::pin(async move { $crate::lock::any_lock!(@$answers lock.is_held()) })
            }

            fn is_held_by(&self, owner: &$crate::owner::Owner) -> $crate::lock_request::Boxed<bool> {
                let (lock, owner) = (self.clone(), *owner);
                Box::pin(async move { $crate::lock::any_lock!(@$answers lock.is_held_by(&owner)) })
            }

            fn hold_count(&self) -> $crate::lock_request::Boxed<u32> {
                let lock = self.clone();
                Box::pin(async move { $crate::lock::any_lock!(@$answers lock.hold_count()) })
            }
        }
    };
}

pub(crate) use any_lock;

any_lock!(Lock, remote);
