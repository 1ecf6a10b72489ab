//! The client's own thread and its runtime. Work that several callers wait for runs there.
//!
//! The thread starts before the first connection is opened, so that no caller's future has to drive
//! what several callers need (design: invariant 14).

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle, Id, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};

/// Runs futures on the client's own thread. They end with the thread. A panic in one of them does
/// not end the others.
#[derive(Clone, Debug)]
pub(crate) struct Background {
    runtime: Handle,
    /// `None` if it shares a runtime with callers.
    id: Option<Id>,
}

/// The owner's handle to the thread. Its drop ends the thread and all tasks that were spawned
/// there.
pub(crate) struct Thread {
    main: oneshot::Sender<Main>,
    ended: CancellationToken,
}

/// Fails outside a tokio runtime, where timers and connections would panic.
pub(crate) fn ensure_runtime() -> Result<()> {
    // The first check is cheaper, but the body of an async `main` is not a task.
    if tokio::task::try_id().is_some() || Handle::try_current().is_ok() {
        return Ok(());
    }
    let why = "this is called outside of a tokio runtime".to_owned();
    Err(Error::invalid("runtime", why))
}

/// The thread's runtime. Its drop does not wait for blocking work: a blocking DNS lookup must not keep the thread
/// alive. If the system starts no thread, the runtime is dropped in the task of a caller, where tokio panics at such
/// a wait.
struct ThreadRuntime(Option<Runtime>);

impl Drop for ThreadRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The main function of the thread.
type Main = Box<dyn FnOnce(&Runtime) + Send>;

impl Background {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<(Self, Thread)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let background = Self {
            id: Some(runtime.handle().id()),
            runtime: runtime.handle().clone(),
        };
        let runtime = ThreadRuntime(Some(runtime));
        let (main, given) = oneshot::channel::<Main>();
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        thread::Builder::new()
            .name("lockdog".to_owned())
            .spawn(move || {
                let _cancels_when_it_ends = guard;
                // Declared after the guard, so that the token is cancelled after the drop of the runtime.
                let own = runtime;
                // Spawned futures run while the thread waits here.
                if let Some(runtime) = &own.0
                    && let Ok(main) = runtime.block_on(given)
                {
                    main(runtime);
                }
            })?;
        Ok((background, Thread { main, ended }))
    }

    /// Uses the current runtime instead of a thread. For tests, which control that runtime's clock.
    pub(crate) fn here() -> Self {
        Self {
            runtime: Handle::current(),
            id: None,
        }
    }

    /// Runs a future on the thread until it or the thread ends.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.runtime.spawn(future)
    }

    /// The runtime on which its futures run.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// True if `runtime` is the thread's own and not a caller's.
    pub(crate) fn is(&self, runtime: &Handle) -> bool {
        self.id == Some(runtime.id())
    }
}

impl Thread {
    /// Gives the thread its main function. The thread ends after it, and the token is cancelled
    /// then.
    pub(crate) fn run(self, main: impl FnOnce(&Runtime) + Send + 'static) -> CancellationToken {
        // The thread waits for this message, so the receiver exists.
        let _ = self.main.send(Box::new(main));
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for the token that is cancelled when the thread ends.
    async fn until_ended(ended: CancellationToken) {
        let limit = std::time::Duration::from_secs(30);
        let ended = tokio::time::timeout(limit, ended.cancelled()).await;
        ended.expect("the thread ends");
    }

    #[tokio::test]
    async fn a_dropped_thread_handle_ends_the_thread_and_its_tasks() {
        let (background, thread) = Background::start().unwrap();
        let ended = thread.ended.clone();
        let task = background.spawn(std::future::pending::<()>());
        drop(thread);
        until_ended(ended).await;
        assert!(task.await.unwrap_err().is_cancelled());
        let late = background.spawn(async {});
        assert!(late.await.unwrap_err().is_cancelled());
    }

    /// The system starts no thread, so the closure with the runtime is dropped in the task that builds the client.
    #[tokio::test]
    async fn a_runtime_that_gets_no_thread_is_dropped_in_a_task_without_a_panic() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        drop(ThreadRuntime(Some(runtime)));
    }

    #[tokio::test]
    async fn a_panic_of_one_task_ends_no_other_task() {
        let (background, thread) = Background::start().unwrap();
        let ended = thread.run(|runtime| runtime.block_on(tokio::task::yield_now()));
        until_ended(ended).await;
        drop(background);

        let (background, thread) = Background::start().unwrap();
        let panicked = background.spawn(async { panic!("a test's panic") });
        assert!(panicked.await.unwrap_err().is_panic());
        assert_eq!(background.spawn(async { 1 }).await.unwrap(), 1);
        drop(thread);
    }
}
