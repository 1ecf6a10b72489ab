//! Clients of a server, without a network.

use std::fmt;
use std::io;
use std::pin::Pin;

use lockdog::config::{Connector, Time, Transport};
use lockdog::{Client, ClientBuilder};

use crate::core::ENDED;
use crate::server::Server;

impl Server {
    /// A client of this server, with lockdog's default settings. Its leases run by tokio's clock. The
    /// client keeps the server alive.
    ///
    /// # Panics
    ///
    /// If the server does not accept the client: it is frozen, or refuses the client's first commands.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it has no lasting effect.
    pub async fn client(&self) -> Client {
        match self.builder().build().await {
            Ok(client) => client,
            Err(error) => panic!("no client could connect to the test server: {error}"),
        }
    }

    /// A builder of clients of this server, for other settings: a [`Client::builder`] with the
    /// connector set.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockdog::Result<()> {
    /// let server = lockdog_test::Server::new();
    /// let client = server.builder().watchdog_lease(Duration::from_secs(3)).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(&self) -> ClientBuilder {
        Client::builder().connector(Pipes(self.clone()))
    }
}

/// Connects to a server in this process.
struct Pipes(Server);

impl Connector for Pipes {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>> {
        let server = self.0.clone();
        Box::pin(async move {
            let (stream, is_served) = server.open();
            match is_served {
                true => Ok(Box::new(stream) as Box<dyn Transport>),
                false => Err(io::Error::other(ENDED)),
            }
        })
    }

    fn address(&self) -> String {
        "the test server".to_owned()
    }

    fn time(&self) -> Time {
        Time::Tokio
    }
}

impl fmt::Debug for Pipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pipes")
    }
}
