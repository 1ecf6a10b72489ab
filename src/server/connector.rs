//! Connections over a byte stream that the user brings, in place of an address.

use std::fmt;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// Opens connections to one server, in place of a URL: through a tunnel, a proxy of its own, or a pipe
/// to a server in the same process, as `lockdog-test` has. For
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
    /// Opens one connection. The client opens several, and new ones for those that break; it limits
    /// each attempt to its command timeout, and drops the future then. A panic in here, or in a stream,
    /// is a failed attempt or a broken connection, and nothing more. A call that blocks its thread holds
    /// up callers on the runtime that it is made on; on the client's own thread it holds up no renewal, and
    /// one that never returns keeps a thread of its own for good.
    ///
    /// # Errors
    ///
    /// Any. The client shows its text, so it must hold no secret.
    #[expect(
        clippy::type_complexity,
        reason = "a name for it would be one more to learn"
    )]
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>>;

    /// What errors and logs call the server; no secret.
    fn address(&self) -> String;

    /// Which clock the leases of its server run by.
    ///
    /// Defaults to the machine's.
    fn time(&self) -> Time {
        Time::Machine
    }
}

/// A stream of bytes in both directions. Every type that can be one is one. No method of it may block
/// its thread: renewals wait for it. The client drops a stream with its connection, whatever it still
/// waits for.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Transport for T {}

/// A clock, and with it where a client's background work is done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Time {
    /// The machine's, which goes on while the machine sleeps. The background has a thread of its own.
    #[default]
    Machine,
    /// tokio's, which tests can pause. The background is a task of the runtime that the client is built
    /// on, because another runtime has another clock: code that blocks that runtime delays renewals.
    /// For tests only.
    Tokio,
}
