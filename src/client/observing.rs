//! The settings of what observers see.

use std::borrow::Cow;
use std::sync::Arc;

use super::ClientBuilder;
use crate::observe::Observer;

impl ClientBuilder {
    /// Adds an observer, which receives each [`ClientEvent`](crate::observe::ClientEvent) of the client. The client
    /// calls several observers in the order in which they were added. Without an observer, it makes no event.
    ///
    /// Defaults to none. Redisson has observers in its commercial edition only.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Maps each lock's name to a group. Observers count locks by their groups, because a client may have any number
    /// of names, which are too many for a metrics system. Use few groups. The client truncates a group to 64 bytes.
    /// A lock with an empty group is in no group.
    ///
    /// The client calls the function once for each handle, in the caller's task. If it panics, that call panics.
    ///
    /// Defaults to no group. Redisson has no such setting.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> lockdog::Result<()> {
    /// let client = lockdog::Client::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     // `orders:42` is one of the `orders`.
    ///     .lock_group(|name| name.split(':').next().unwrap_or_default().into())
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_group<F>(mut self, group: F) -> Self
    where
        F: Fn(&str) -> Cow<'_, str> + Send + Sync + 'static,
    {
        self.lock_group = Some(Arc::new(group));
        self
    }
}
