//! Looking at how the servers of a client are set up.

use super::Client;
use crate::background::ensure_runtime;
use crate::diagnosis::{self, Diagnosis};
use crate::error::Result;

impl Client {
    /// Looks at how the servers are set up, and says what may cost locks: eviction, no persistence, a
    /// master that grants without its replicas, a replica or a cluster's node in place of a server,
    /// an old version, a clock that is wrong, permissions that are missing. Each finding says what it
    /// means and how it is mended; what cannot be looked at is a finding, too
    /// ([`Finding::is_known`](crate::report::Finding::is_known)).
    ///
    /// The same is looked at whenever the client meets a server, and what is wrong is logged as a
    /// warning then. That leaves out what a user with the documented permissions would be refused;
    /// this asks all, by commands that change nothing, and what is refused of it stands in the server's
    /// `ACL LOG`. Redisson has nothing like it.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`](crate::Error::Timeout) or [`Error::Unavailable`](crate::Error::Unavailable) where the server cannot be reached: call it again.
    /// [`Error::Refused`](crate::Error::Refused) where it lets nobody in. [`Error::Closed`](crate::Error::Closed) after a shutdown.
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
        // Boxed: what opens connections is large.
        Box::pin(diagnosis::diagnose(&core.server, &expected)).await
    }
}
