//! A client that exists for one piece of work.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt;

use super::{Client, ClientBuilder};
use crate::error::Error;

impl Client {
    /// Connects with default settings, does the work, and shuts the client down. It shuts the client down
    /// also if the work fails or panics. Redisson has no such call.
    ///
    /// Use it for a program that ends after the work. If such a program only drops its client, the program
    /// may end before the client has released its locks.
    ///
    /// The error type `E` must be `lockdog::Error` or convertible from it. After the
    /// work, clones of the client are closed.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], or the error of the work.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the work is dropped, and the client releases in the background what the work
    /// held, like any client that is dropped.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockdog::Result<()> {
    /// lockdog::Client::scope("redis://127.0.0.1:6379", |client| async move {
    ///     let guard = client.lock("orders:42").lock().await?; // `?` also shuts down
    ///     guard.unlock().await?;
    ///     Ok(())
    /// })
    /// .await
    /// # }
    /// ```
    pub async fn scope<F, Fut, T, E>(url: impl AsRef<str>, work: F) -> Result<T, E>
    where
        F: FnOnce(Self) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        Self::builder().url(url).scope(work).await
    }
}

impl ClientBuilder {
    /// As [`Client::scope`], with these settings.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::build`], or the error of the work.
    ///
    /// # Cancel safety
    ///
    /// As [`Client::scope`].
    pub async fn scope<F, Fut, T, E>(self, work: F) -> Result<T, E>
    where
        F: FnOnce(Client) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let client = self.build().await?;
        // `work` itself may panic before it returns its future.
        let running = async { work(client.clone()).await };
        // Boxed: the compiler limits how deeply futures are nested, and the work is nested in this one.
        let ended = AssertUnwindSafe(Box::pin(running)).catch_unwind().await;
        client.shutdown().await;
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}
