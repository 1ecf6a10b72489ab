//! One server of a deployment: the connections to it, and what is known of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::Context;
use super::ack::Acker;
use super::background_connection::BackgroundConnection;
use super::callers::Callers;
use super::connection::Connection;
use super::data_loss::DataLoss;
use super::endpoint::Endpoint;
use super::failure::Failure;
use super::health::Health;

/// One server: the one of a standalone deployment, whoever the sentinels' master is, or one master of
/// a cluster.
pub(crate) struct Node {
    endpoint: Arc<Endpoint>,
    context: Context,
    /// What callers share.
    callers: Callers,
    /// What the watchdog's thread has for itself.
    own: BackgroundConnection,
    /// What waits for its replicas.
    acker: Acker,
    health: Health,
}

impl Node {
    /// `suspicions` is told when the server falls silent.
    pub(super) fn new(endpoint: Endpoint, context: &Context, suspicions: &Arc<Notify>) -> Self {
        Self {
            callers: Callers::new(context, endpoint.runtimes()),
            endpoint: Arc::new(endpoint),
            own: BackgroundConnection::new(context),
            acker: Acker::new(context),
            context: context.clone(),
            health: Health::new(suspicions.clone()),
        }
    }

    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    pub(super) fn acker(&self) -> &Acker {
        &self.acker
    }

    /// Host and port, a unix socket's path, a master's name, or "pool"; never a user or password.
    pub(crate) fn address(&self) -> String {
        self.endpoint.address()
    }

    /// A connection for the callers on this runtime, opened if there is none, within `limit`.
    pub(crate) async fn connection(&self, limit: Duration) -> Result<Connection, Failure> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let Ok(runtime) = Handle::try_current() else {
            return Err(Failure::Unsent("called outside of a tokio runtime".into()));
        };
        if self.context.background.is(&runtime) {
            return Box::pin(self.own_connection(limit)).await;
        }
        let (endpoint, context) = (&self.endpoint, &self.context);
        // Boxed: it is rare, and part of every call otherwise.
        let opened = self.callers.connection(&runtime, endpoint, context, limit);
        Box::pin(opened).await
    }

    /// The connection of the callers on this runtime, if there is one.
    pub(crate) fn current(&self) -> Option<Connection> {
        self.callers.current()
    }

    /// A connection that is there, whichever runtime drives it.
    pub(crate) fn any_connection(&self) -> Option<Connection> {
        let own = || self.own.current();
        self.current().or_else(own).or_else(|| self.callers.any())
    }

    /// The connection of the watchdog's thread, opened if there is none.
    pub(crate) async fn own_connection(&self, limit: Duration) -> Result<Connection, Failure> {
        self.own
            .connection(&self.endpoint, &self.context, limit)
            .await
    }

    /// Gives up a connection that broke or does not answer: the next one who asks opens another.
    pub(crate) fn abandon(&self, connection: &Connection) {
        self.callers.remove(connection);
        self.own.abandon(connection);
    }

    /// Asks the server to close a connection that was given up, so that nothing sent on it runs any
    /// more; true if it is closed. It may not be permitted, and its id may not be known. For the
    /// watchdog's thread only.
    pub(crate) async fn kill(&self, old: &Connection, limit: Duration) -> bool {
        self.own
            .kill(&self.endpoint, &self.context, old, limit)
            .await
    }

    /// Closes the callers' connections once nobody waits for an answer on them; those to come are
    /// opened at once.
    pub(super) fn disconnect(&self) {
        self.callers.clear();
        self.acker.disconnect();
    }

    /// Says that the server does not answer. Until it does, the client's own thread asks it one
    /// question at a time, and everybody else had better ask nothing.
    pub(crate) fn suspect(&self, failure: &Failure) {
        self.health.suspect(failure);
    }

    /// Why the server is thought not to answer, if it is.
    pub(crate) fn suspected(&self) -> Option<Failure> {
        self.health.suspected()
    }

    /// The server answered a probe.
    pub(crate) fn answered(&self) {
        self.retry_now();
        if self.health.answered() {
            tracing::debug!(
                target: "lockdog::server",
                server = self.address(), "the server answers again"
            );
        }
    }

    /// Whoever waits to connect, or to ask where the server is, waits no longer.
    pub(super) fn retry_now(&self) {
        self.callers.retry_now();
        self.own.retry_now();
        self.acker.retry_now();
        self.endpoint.retry_now();
    }

    /// Waits until it is no server of the deployment any more.
    pub(crate) async fn until_left(&self) {
        self.endpoint.until_left().await;
    }

    /// When this client last saw that the server is another than before, and so may have come back
    /// without its data. Known before an answer of the new one is given.
    pub(super) fn loss(&self) -> DataLoss {
        self.endpoint.identity().loss()
    }

    /// Looks who the server is, on the connection of the watchdog's thread. For that thread only.
    pub(super) async fn look(&self, limit: Duration) -> Result<(), Failure> {
        let look = async {
            let connection = self.own_connection(limit).await?;
            let looked = connection.look(limit).await;
            if !looked.as_ref().is_err_and(Failure::is_ambiguous) {
                return looked;
            }
            // The server may have been started anew: opening another connection looks, too.
            self.abandon(&connection);
            self.own_connection(limit).await.map(drop)
        };
        let looked = tokio::time::timeout(limit, Box::pin(look)).await;
        looked.unwrap_or_else(|_| Err(Failure::silent(limit)))
    }

    /// A server answered here whose set-up nobody has looked at: how many answered so far.
    pub(crate) fn unchecked(&self) -> Option<u64> {
        self.endpoint.identity().unchecked()
    }

    /// Somebody looked at how the last of so many is set up.
    pub(crate) fn checked(&self, met: u64) {
        self.endpoint.identity().checked(met);
    }

    /// The server is this one, as it says itself, and its data is what it should be.
    pub(super) fn trust(&self, who: String) {
        self.endpoint.identity().trust(who);
    }
}

#[cfg(test)]
mod on_servers {
    use super::*;
    use crate::client::Client;
    use crate::server::{PendingWrite, ReplicaAck, Replicas};
    use crate::support::{RedisServer, free_port};

    #[tokio::test]
    async fn a_caller_that_looked_too_early_opens_no_second_connection() {
        let server = RedisServer::start().await;
        let client = Client::connect(server.url()).await.unwrap();
        let node = node(&client);
        let first = node.connection(SOON).await.unwrap();
        let second = node.open().await.unwrap();
        assert!(second.is(&first));
    }

    #[tokio::test]
    async fn a_hurry_reaches_all_who_connect() {
        let server = RedisServer::start().await;
        let client = Client::connect(server.url()).await.unwrap();
        let node = node(&client);
        let on = node.connection(SOON).await.unwrap();
        server.kill();
        node.abandon(&on);
        node.open().await.err().expect("it is away");
        node.own_connection(SOON).await.err().expect("it is away");
        let ack = ReplicaAck::Require {
            replicas: Replicas::Count(1),
            timeout: SOON,
        };
        let written = PendingWrite::new(redis::cmd("PING"), &on);
        let clock = &node.context.clock;
        let acknowledged = node.acknowledge(ack, written, clock, clock.now() + SOON);
        acknowledged.await.unwrap_err();
        assert_eq!(node.delayed(), [true, true, true, false]);
        client.lock("l").session().core().server.retry_now();
        assert_eq!(node.delayed(), [false; 4]);
    }

    #[tokio::test]
    async fn a_shutdown_does_not_wait_to_ask_where_the_server_is() {
        let nobody = format!("127.0.0.1:{}", free_port());
        let url = format!("redis+sentinel://{nobody}/orders");
        let client = Client::builder().url(url).lazy(true).build().await.unwrap();
        let node = node(&client);
        node.open().await.err().expect("no sentinel is there");
        assert!(node.delayed()[3]);
        client.shutdown().await;
        assert!(!node.delayed()[3]);
    }

    fn node(client: &Client) -> Arc<Node> {
        let core = client.lock("l").session().core().clone();
        core.server.node("").expect("there is one")
    }

    impl Node {
        /// A connection for the callers on this runtime, as for one who found none.
        async fn open(&self) -> Result<Connection, Failure> {
            let (endpoint, context) = (&self.endpoint, &self.context);
            let runtime = Handle::current();
            let opened = self.callers.connection(&runtime, endpoint, context, SOON);
            opened.await
        }

        /// Who would wait before the next attempt: callers, the watchdog's thread, what waits for
        /// replicas, and the question to the sentinels.
        fn delayed(&self) -> [bool; 4] {
            [
                self.callers.is_delayed(),
                self.own.is_delayed(),
                self.acker.is_delayed(),
                self.endpoint.is_delayed(),
            ]
        }
    }

    /// A safety net for what takes milliseconds on an idle machine.
    const SOON: Duration = Duration::from_secs(30);
}
