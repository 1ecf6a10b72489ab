//! Catches panics where they must not end other work.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;
use tokio::task::JoinError;

/// Runs work that may panic; `None` if it did.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Option<T> {
    given(catch_unwind(AssertUnwindSafe(work)))
}

/// Like [`catch`], for async work.
pub(crate) async fn catch_in<T>(work: impl Future<Output = T>) -> Option<T> {
    given(AssertUnwindSafe(work).catch_unwind().await)
}

/// Drops the payload of a panic. It is a value of the caller's code, so its drop may panic too.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Its drop may panic as well, and so on.
        std::mem::forget(next);
    }
}

/// Resumes the panic of a task that ended with one.
pub(crate) fn pass_on(done: Result<(), JoinError>) {
    if let Err(error) = done
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

fn given<T>(done: Result<T, Box<dyn Any + Send>>) -> Option<T> {
    done.map_err(discard).ok()
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    /// Panics this many times, one after the other.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if let Some(left) = self.0.checked_sub(1) {
                panic_any(Self(left));
            }
        }
    }

    #[tokio::test]
    async fn a_panic_payload_that_panics_on_drop_is_caught() {
        assert_eq!(catch(|| 1), Some(1));
        assert_eq!(catch(|| panic_any(Bomb(2))), None::<()>);
        assert_eq!(catch_in(async { 1 }).await, Some(1));
        assert_eq!(catch_in(async { panic_any(Bomb(2)) }).await, None::<()>);
    }
}
