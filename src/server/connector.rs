//! The user's own way to open byte streams to a server, in place of an address.

use std::fmt;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// Opens connections to one server, in place of a URL: through a tunnel, a special proxy, or a pipe
/// to a server in the same process, as `lockdog-test` does. For
/// [`ClientBuilder::connector`](crate::ClientBuilder::connector).
///
/// # Examples
///
/// ```no_run
/// use std::io;
/// use std::pin::Pin;
///
/// use lockdog::config::{Connector, Transport};
/// use tokio::net::UnixStream;
///
/// #[derive(Debug)]
/// struct Socket(&'static str);
///
/// impl Connector for Socket {
///     fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>> {
///         let path = self.0;
///         Box::pin(async move { Ok(Box::new(UnixStream::connect(path).await?) as Box<dyn Transport>) })
///     }
///
///     fn address(&self) -> String {
///         self.0.to_owned()
///     }
/// }
///
/// # async fn example() -> lockdog::Result<()> {
/// let client = lockdog::Client::builder().connector(Socket("/run/redis")).build().await?;
/// # Ok(())
/// # }
/// ```
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Opens one connection. The client opens several, and replaces those that break. It limits
    /// each attempt to its command timeout and then drops the future.
    ///
    /// A panic in this method, or in a stream, only fails the attempt or breaks the connection. A
    /// call that blocks its thread delays callers on the same runtime. On the client's own thread
    /// it does not delay renewals, but a call that never returns occupies an extra thread forever.
    ///
    /// # Errors
    ///
    /// Any. The client shows the error's text, so it must not contain a secret.
    #[expect(
        clippy::type_complexity,
        reason = "a name for it would be one more to learn"
    )]
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>>;

    /// The server's name in errors and logs. It must not contain a secret.
    fn address(&self) -> String;

    /// The clock that the server's leases follow.
    ///
    /// Defaults to the machine's.
    fn time(&self) -> Time {
        Time::Machine
    }
}

/// A stream of bytes in both directions. It is implemented for every type that meets the bounds.
/// Its methods must not block their thread, because renewals wait for it. The client drops a stream
/// with its connection, even if reads or writes are pending.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Transport for T {}

/// A clock. It also decides where a client's background work runs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Time {
    /// The machine's clock, which also runs while the machine sleeps. The background has its own
    /// thread.
    #[default]
    Machine,
    /// tokio's clock, which tests can pause. The background is a task on the runtime where the
    /// client is built, because another runtime has another clock. Code that blocks that runtime
    /// delays renewals. For tests only.
    Tokio,
}
