//! A runtime on a separate thread, so that the harness continues while a test blocks its own workers.

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

#[derive(Debug)]
pub(crate) struct Background {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Background {
    pub(crate) fn new(name: &str) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .enable_all()
            .build()
            .expect("a thread can be started");
        Self {
            runtime: Some(runtime),
        }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let runtime = self.runtime.as_ref().expect("it is not being dropped");
        runtime.spawn(work)
    }

    /// Runs `work` on the background thread and waits for its end on the caller's runtime.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.spawn(work)
            .await
            .expect("the harness does not panic in the background")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // A test drops this inside its own runtime, where waiting for another one is forbidden.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
