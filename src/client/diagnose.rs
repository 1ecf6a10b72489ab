//! Checks the configuration of a client's servers.

use super::Client;
use crate::background::ensure_runtime;
use crate::diagnosis::{self, Diagnosis};
use crate::error::Result;

impl Client {
    /// Checks the configuration of the servers for what may cost locks. Redisson has no such call.
    ///
    /// It finds eviction, missing persistence, a master that grants locks without its replicas, a replica
    /// or a cluster node in place of a single server, an old version, a wrong clock, and missing
    /// permissions. Each finding says what it means and how to fix it. A fact that cannot be checked is a
    /// finding too ([`Finding::is_known`](crate::report::Finding::is_known)).
    ///
    /// The client makes the same checks when it connects to a server that is new to it, and logs each
    /// problem as a warning. Those checks leave out the commands that the server would refuse to a user
    /// with the documented permissions. This call makes all checks. Its commands change nothing; the
    /// server lists the refused ones in its `ACL LOG`.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`](crate::Error::Timeout) or [`Error::Unavailable`](crate::Error::Unavailable) if
    ///   the server cannot be reached. Call it again.
    /// - [`Error::Refused`](crate::Error::Refused) if the server refuses the user or password.
    /// - [`Error::Closed`](crate::Error::Closed) after a shutdown.
    /// - [`Error::Invalid`](crate::Error::Invalid) outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> lockdog::Result<()> {
    /// let client = lockdog::Client::connect("redis://127.0.0.1:6379").await?;
    /// for problem in client.diagnose().await?.problems() {
    ///     eprintln!("{problem}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn diagnose(&self) -> Result<Diagnosis> {
        let core = self.session.core();
        ensure_runtime()?;
        core.ensure_open()?;
        let expected = core.settings.expected.clone().unwrap_or_default();
        // Boxed, because a future that opens connections is large.
        Box::pin(diagnosis::diagnose(&core.server, &expected)).await
    }
}
