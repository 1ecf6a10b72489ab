//! Lets the callers of one moment share a write.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Delays the write of a command until the other callers that are ready have sent theirs.
///
/// A worker of tokio's multi-thread runtime runs the task that it woke last before all others. So the task of the
/// connection would write the command of the first caller by itself, although the callers that got their answers with
/// it are about to run. The task of this type is woken after it, and takes that place: then the task of the connection
/// runs behind the callers.
///
/// It changes the order of tasks only. If its task has ended, commands are written as without it.
pub(super) struct Gathering {
    shared: Arc<Shared>,
    /// Ends with the connection.
    task: AbortHandle,
}

#[derive(Default)]
struct Shared {
    /// Whether the task will run.
    is_woken: AtomicBool,
    woken: Notify,
}

impl Gathering {
    /// For a connection that the current runtime drives. `None` if the runtime has one thread: it runs tasks in the
    /// order in which they were woken.
    pub(super) fn new() -> Option<Self> {
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            return None;
        }
        let shared = Arc::new(Shared::default());
        let of_task = shared.clone();
        #[expect(clippy::disallowed_methods, reason = "the drop of `Gathering` ends it")]
        let task = tokio::spawn(async move {
            loop {
                of_task.woken.notified().await;
                // The task of the connection is ready before this one, so it runs meanwhile. The next command after
                // that begins again.
                let_others_run().await;
                of_task.is_woken.store(false, Ordering::Release);
            }
        });
        Some(Self {
            shared,
            task: task.abort_handle(),
        })
    }

    /// To be called right after a command was given to the connection.
    pub(super) fn begin(&self) {
        if !self.shared.is_woken.swap(true, Ordering::AcqRel) {
            self.shared.woken.notify_one();
        }
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lets the tasks run first that are ready to. tokio's own `yield_now` leaves the task to the current thread, which
/// may run one task of the user for long; this one any thread of the runtime continues.
pub(super) async fn let_others_run() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
