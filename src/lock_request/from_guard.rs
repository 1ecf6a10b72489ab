//! The types that an acquire can return.

use super::Boxed;
use crate::guard::Guard;

/// What an acquire of a lock returns: a [`Guard`], or a type that adds what only some locks can. No other
/// type can implement it.
pub trait FromGuard: From<Guard> + Into<Guard> + sealed::Sealed + Send + 'static {
    /// The future of an acquire that waits without limit.
    #[doc(hidden)]
    fn acquired(guard: Boxed<Guard>) -> Boxed<Self> {
        Box::pin(async move { Ok(Self::from(guard.await?)) })
    }

    /// The future of an acquire that may end without the lock.
    #[doc(hidden)]
    fn acquired_in_time(guard: Boxed<Option<Guard>>) -> Boxed<Option<Self>> {
        Box::pin(async move { Ok(guard.await?.map(Self::from)) })
    }
}

/// Prevents other crates from implementing [`FromGuard`].
pub(crate) mod sealed {
    #[expect(unnameable_types, reason = "no other crate may name it")]
    pub trait Sealed {}
}

impl sealed::Sealed for Guard {}

/// Needs no second box for the future.
impl FromGuard for Guard {
    fn acquired(guard: Boxed<Guard>) -> Boxed<Self> {
        guard
    }

    fn acquired_in_time(guard: Boxed<Option<Guard>>) -> Boxed<Option<Self>> {
        guard
    }
}
