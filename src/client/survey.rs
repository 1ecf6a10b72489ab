//! The locks and connections of all clients, as the servers show them.

use super::Client;
use crate::background::ensure_runtime;
use crate::error::Result;
use crate::survey::{self, ConnectionInfo, LockInfo, Locks};

impl Client {
    /// The lock of this name, as its key in Redis shows it: its kind, its holders and its listeners, of all clients.
    /// Use it in support tools and admin pages. Redisson has no such call.
    ///
    /// The client's name mapper is applied to the name. The client sends several commands; if the lock changes
    /// between them, the result may mix the states before and after the change. If the user may not run some of the
    /// commands, the client leaves them out where possible.
    ///
    /// # Errors
    ///
    /// - [`Error::Refused`](crate::Error::Refused) if the user may use neither `HSCAN` nor `HGETALL`.
    /// - [`Error::Timeout`](crate::Error::Timeout) or [`Error::Unavailable`](crate::Error::Unavailable) if the server
    ///   did not answer within the command timeout.
    /// - [`Error::Invalid`](crate::Error::Invalid) for an invalid name, and outside a tokio runtime.
    /// - [`Error::Closed`](crate::Error::Closed) after a shutdown.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<LockInfo> {
        let lock = self.lock(name);
        let key = lock.key()?.key().to_owned();
        let core = self.session.core();
        ensure_runtime()?;
        core.ensure_open()?;
        // Boxed, because a future of several commands is large.
        Box::pin(survey::inspect(core, &key)).await
    }

    /// The locks of all clients on the servers whose keys match this pattern, a pattern of `SCAN`. A key is found if
    /// its content is that of a lock; its name does not matter. Redisson has no such call.
    ///
    /// This call sends nothing; [`Locks::next`] does. It uses `SCAN` and never `KEYS`, so it blocks no server for
    /// long. It also reads each hash that matches, so a narrow pattern saves commands. The user needs
    /// `+scan` and `+hscan` in addition to the documented permissions, and
    /// `+type +get +zcard` for semaphores.
    pub fn locks(&self, pattern: impl AsRef<str>) -> Locks {
        Locks::new(self.session.clone(), pattern.as_ref())
    }

    /// The connections of all clients to the servers of this client. The user needs `+client|list`.
    /// Redisson has no such call.
    ///
    /// The connections of the client with the id `id` have the name `lockdog/{id}`, unless
    /// [`ClientBuilder::client_name`](crate::ClientBuilder::client_name) says otherwise.
    ///
    /// # Errors
    ///
    /// - [`Error::Refused`](crate::Error::Refused) if the user may not use `CLIENT LIST`.
    /// - [`Error::Timeout`](crate::Error::Timeout) or [`Error::Unavailable`](crate::Error::Unavailable) if a server
    ///   did not answer within the command timeout.
    /// - [`Error::Invalid`](crate::Error::Invalid) outside a tokio runtime, [`Error::Closed`](crate::Error::Closed)
    ///   after a shutdown.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn connections(&self) -> Result<Vec<ConnectionInfo>> {
        let core = self.session.core();
        ensure_runtime()?;
        core.ensure_open()?;
        Box::pin(survey::connections(core)).await
    }
}
