//! Who holds a lock: a tokio task unless the caller says otherwise.

#[cfg(feature = "tower")]
mod layer;

use std::cell::Cell;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "tower")]
pub use layer::{OwnerLayer, OwnerService};

tokio::task_local! {
    static SCOPE: Owner;
}

/// Who holds a lock.
///
/// Redisson's owner is a thread. lockdog's owner is the tokio task that runs the call, so nested
/// calls inside one async handler re-enter without passing anything along. A request finds its
/// owner at its first poll:
///
/// 1. the one given with `.owner(&owner)`;
/// 2. else the one of the innermost [`Owner::scope`] around the call;
/// 3. else the current tokio task;
/// 4. else, outside any task (for example in the body of `#[tokio::main]`), the current thread.
///
/// Tasks, threads, [`Owner::new`] and [`Owner::from_id`] never collide with each other.
///
/// # Two traps
///
/// Branches of `join!` and `select!` run in one task: they are one owner and do not exclude each
/// other. Use [`Lock::exclusive`](crate::Lock::exclusive), or give each branch its own scope.
///
/// If a guard moves to another task, the original task is still its owner and can re-enter the lock
/// while the other task works with the guard. For example, the next request on a keep-alive
/// connection runs in the original task. Acquire such a guard with `.owner(&Owner::new())`, or give each
/// request an owner: `lockdog::tower::OwnerLayer`, with the feature `tower`.
///
/// # Examples
///
/// ```
/// use lockdog::Owner;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let owner = Owner::new();
/// owner
///     .scope(async {
///         assert_eq!(Owner::current(), owner);
///         // A spawned child is another task: wrap it to make it the same owner.
///         let child = tokio::spawn(Owner::current().scope(async { Owner::current() }));
///         assert_eq!(child.await.unwrap(), owner);
///     })
///     .await;
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Owner(OwnerKind);

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum OwnerKind {
    Given(u64),
    New(u64),
    Task(tokio::task::Id),
    Thread(u64),
}

impl Owner {
    /// A new owner, different from all others for the life of this process.
    #[expect(
        clippy::new_without_default,
        reason = "a default that differs each time would surprise"
    )]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(OwnerKind::New(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// The owner with this id. All callers in this process that use the id get the same owner.
    ///
    /// Corresponds to the `threadId` of Redisson's `lockAsync(threadId)`.
    pub fn from_id(id: u64) -> Self {
        Self(OwnerKind::Given(id))
    }

    /// The owner that a request would get here. Corresponds to Java's `Thread.currentThread()`.
    pub fn current() -> Self {
        SCOPE
            .try_with(|owner| *owner)
            .ok()
            .or_else(|| tokio::task::try_id().map(|id| Self(OwnerKind::Task(id))))
            .unwrap_or_else(|| Self(OwnerKind::Thread(THREAD.get())))
    }

    /// Runs `future` with this owner as the current one.
    ///
    /// The scope does not cross `tokio::spawn`; wrap a child with
    /// `tokio::spawn(Owner::current().scope(child))`.
    ///
    /// It accepts requests too: `owner.scope(lock.lock())`. Corresponds to the `threadId` argument of
    /// Redisson's asynchronous calls.
    pub fn scope<F: IntoFuture>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        SCOPE.scope(*self, future.into_future())
    }

    /// True if this owner is a task and a different task is running now.
    pub(crate) fn is_left_behind(&self) -> bool {
        matches!(self.0, OwnerKind::Task(id) if tokio::task::try_id().is_some_and(|now| now != id))
    }

    /// The number of this owner within its kind: the argument of [`Owner::from_id`], the task's id,
    /// or a counter. Corresponds to Java's `Thread.getId()`.
    pub fn id(&self) -> u64 {
        match self.0 {
            OwnerKind::Given(id) | OwnerKind::New(id) | OwnerKind::Thread(id) => id,
            // Tokio exposes a task's number only as text.
            OwnerKind::Task(id) => id.to_string().parse().unwrap_or(0),
        }
    }
}

/// The part of the hash field between the client's uuid and the hold's number.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            OwnerKind::Given(id) => write!(f, "{id}"),
            OwnerKind::New(id) => write!(f, "o{id}"),
            OwnerKind::Task(id) => write!(f, "t{id}"),
            OwnerKind::Thread(id) => write!(f, "th{id}"),
        }
    }
}

thread_local! {
    static THREAD: Cell<u64> = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn kinds_of_owners_never_collide() {
        let given = Owner::from_id(1);
        assert_eq!(given.id(), 1);
        assert_eq!(given, Owner::from_id(1));
        let task = tokio::spawn(async { Owner::current() }).await.unwrap();
        assert_eq!(task.to_string(), format!("t{}", task.id()));
        let texts = [
            OwnerKind::Given(1),
            OwnerKind::New(1),
            task.0,
            OwnerKind::Thread(1),
        ]
        .map(|kind| Owner(kind).to_string());
        for (i, text) in texts.iter().enumerate() {
            assert!(!texts[i + 1..].contains(text), "{texts:?}");
        }
    }

    #[tokio::test]
    async fn the_innermost_scope_wins_and_does_not_cross_spawn() {
        let (outer, inner) = (Owner::new(), Owner::new());
        outer
            .scope(async {
                assert_eq!(Owner::current(), outer);
                inner
                    .scope(async { assert_eq!(Owner::current(), inner) })
                    .await;
                let child = tokio::spawn(async { Owner::current() }).await.unwrap();
                assert_ne!(child, outer);
            })
            .await;
    }

    #[tokio::test]
    async fn two_tasks_are_two_owners_and_a_task_keeps_its_owner_across_awaits() {
        let seen = |()| async {
            let before = Owner::current();
            tokio::task::yield_now().await;
            assert_eq!(before, Owner::current());
            before
        };
        let (a, b) = (tokio::spawn(seen(())), tokio::spawn(seen(())));
        assert_ne!(a.await.unwrap(), b.await.unwrap());
    }
}
