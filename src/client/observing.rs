//! The settings of what observers see.

use std::borrow::Cow;
use std::sync::Arc;

use super::ClientBuilder;
use crate::observe::Observer;

impl ClientBuilder {
    /// Adds an observer, which is told each [`ClientEvent`](crate::observe::ClientEvent) of the client. Several observers are
    /// told in the order in which they were added. Without one, no event is made.
    ///
    /// Defaults to none. Redisson has such a thing in its commercial edition only.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Maps each lock's name to the group that observers count it in. A client has any number of names, and a
    /// system of metrics is no place for them; let the groups be few. More than 64 bytes of a group are cut off.
    /// An empty group is none.
    ///
    /// It is called once for each handle, in the caller's task. If it panics, that call panics.
    ///
    /// Defaults to no group.
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
