//! Requests to the client's background thread: leases to extend, and tasks to run.

use std::future::Future;
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::Core;
use crate::hold::Hold;
use crate::script::RenewReply;
use crate::server::{Addressee, Failure};

/// A task for a client's background thread.
pub(crate) type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request to extend a lease.
pub(crate) struct ExtendRequest {
    pub(crate) hold: Arc<Hold>,
    pub(crate) lease: Duration,
    /// Sending it and waiting for the answer takes at most a third of this.
    pub(crate) timeout: Duration,
    pub(crate) addressee: Addressee,
    /// If dropped, the request counts as unanswered.
    pub(crate) answer: oneshot::Sender<Result<RenewReply, Failure>>,
}

/// The requests that the thread has not taken yet.
#[derive(Default)]
pub(crate) struct Mailbox {
    list: Mutex<List>,
    changed: Notify,
    closed: CancellationToken,
}

#[derive(Default)]
struct List {
    extensions: Vec<ExtendRequest>,
    tasks: Vec<BackgroundTask>,
    closed: bool,
}

impl Mailbox {
    /// Runs a task on the thread. Returns the task if the thread has ended.
    pub(crate) fn run(&self, task: BackgroundTask) -> Result<(), BackgroundTask> {
        let mut list = self.list.lock();
        if list.closed {
            return Err(task);
        }
        list.tasks.push(task);
        drop(list);
        self.changed.notify_one();
        Ok(())
    }

    /// Asks the thread to extend a lease. If the thread has ended, the request is dropped.
    fn request(&self, request: ExtendRequest) {
        let mut list = self.list.lock();
        if list.closed {
            return;
        }
        list.extensions.push(request);
        drop(list);
        self.changed.notify_one();
    }

    /// Takes the pending requests to extend leases.
    pub(crate) fn extensions(&self) -> Vec<ExtendRequest> {
        take(&mut self.list.lock().extensions)
    }

    /// Takes the pending tasks.
    pub(crate) fn tasks(&self) -> Vec<BackgroundTask> {
        take(&mut self.list.lock().tasks)
    }

    /// Cancelled when the thread ends. Then the tasks that it has taken end, too.
    pub(crate) fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }

    /// Completes when there may be a request.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Called when the thread ends. Requests that it did not take are dropped.
    pub(crate) fn close(&self) {
        self.closed.cancel();
        let requests = {
            let mut list = self.list.lock();
            list.closed = true;
            (take(&mut list.extensions), take(&mut list.tasks))
        };
        // The drop of a request runs other code, so the list is not locked.
        drop(requests);
    }
}

impl Core {
    /// Asks the client's thread to extend the lease of one hold. `addressee` receives the server that the
    /// command is sent to. The command takes at most a third of `timeout`.
    pub(crate) async fn extend(
        &self,
        hold: &Arc<Hold>,
        lease: Duration,
        timeout: Duration,
        addressee: &Addressee,
    ) -> Result<RenewReply, Failure> {
        let (answer, answered) = oneshot::channel();
        self.mailbox.request(ExtendRequest {
            hold: hold.clone(),
            lease,
            timeout,
            addressee: addressee.clone(),
            answer,
        });
        answered
            .await
            .unwrap_or_else(|_| Err(Failure::Unsent("the client is shutting down".into())))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::Clock;
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;
    use crate::session::disconnected;

    /// The client is shut down while the caller is on its way from the check that it is open to the request.
    #[tokio::test]
    async fn a_request_to_a_thread_that_has_ended_fails_at_once() {
        let core = disconnected(&Clock::default());
        let key = LockKey::new(&kind::PLAIN, "l", None).unwrap();
        let hold = core.holds.enter(&Arc::new(key), Owner::new());
        core.mailbox.close();
        let lease = Duration::from_secs(30);
        let addressee = Addressee::default();
        let asked = core.extend(&hold, lease, lease, &addressee).now_or_never();
        assert!(matches!(asked, Some(Err(Failure::Unsent(_)))));
    }
}
