//! lockdog's clients of a server, without a network.

use std::fmt;
use std::io;
use std::pin::Pin;

use lockdog::config::{Connector, Time, Transport};
use lockdog::{Client, ClientBuilder};

use crate::server::Server;

impl Server {
    /// A client of this server, with lockdog's own settings. Its leases run by tokio's clock, and it
    /// keeps the server alive.
    ///
    /// # Panics
    ///
    /// If the server does not let it connect: it is frozen, or refuses what a client asks first.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it leaves nothing behind.
    pub async fn client(&self) -> Client {
        match self.builder().build().await {
            Ok(client) => client,
            Err(error) => panic!("no client of the test server: {error}"),
        }
    }

    /// A client of this server, for settings of its own: it is what [`Client::builder`] makes, with the
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

/// Connects to a server of this process.
struct Pipes(Server);

impl Connector for Pipes {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>> {
        let server = self.0.clone();
        Box::pin(async move { Ok(Box::new(server.connect()) as Box<dyn Transport>) })
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
