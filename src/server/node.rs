//! One server of a deployment: its connections and its state.

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
use crate::observe::{ConnectionChange, Role};

/// One server: that of a standalone deployment, the sentinels' current master, or one master of a
/// cluster.
pub(crate) struct Node {
    endpoint: Arc<Endpoint>,
    context: Context,
    /// The callers' connections.
    callers: Callers,
    /// The watchdog's own connection.
    own: BackgroundConnection,
    /// Waits for its replicas.
    acker: Acker,
    health: Health,
}

impl Node {
    /// `suspicions` is notified when the server becomes silent.
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

    /// Host and port, the path of a unix socket, a master's name, or "pool". Never a user or
    /// password.
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
        // Boxed: it is rare, and would otherwise enlarge the future of every call.
        let opened = self.callers.connection(&runtime, endpoint, context, limit);
        Box::pin(opened).await
    }

    /// The connection of the callers on this runtime, if there is one.
    pub(crate) fn current(&self) -> Option<Connection> {
        self.callers.current()
    }

    pub(super) fn serves_callers(&self) -> bool {
        self.callers.any().is_some()
    }

    pub(super) fn serves_background(&self) -> bool {
        self.own.current().is_some()
    }

    /// An open connection, whichever runtime drives it.
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

    /// Abandons a connection that broke or does not answer. The next use opens another one.
    pub(crate) fn abandon(&self, connection: &Connection) {
        if self.callers.remove(connection) {
            self.endpoint
                .notify(Role::Commands, ConnectionChange::Closed);
        }
        if self.own.abandon(connection) {
            self.endpoint
                .notify(Role::Watchdog, ConnectionChange::Closed);
        }
    }

    /// Abandons a connection on which a command got no answer, for commands that are sent to this node itself. The
    /// connection may be half open, and no later command would detect it.
    pub(crate) fn abandon_unanswered<T>(
        &self,
        answer: &Result<T, Failure>,
        connection: &Connection,
    ) {
        if let Err(Failure::Silent { .. } | Failure::Broken(_)) = answer {
            self.abandon(connection);
        }
    }

    /// Asks the server to close an abandoned connection, so that no command sent on it can run any
    /// more. True if it is closed. The user may lack the permission, or the connection's id may be
    /// unknown. For the watchdog's thread only.
    pub(crate) async fn kill(&self, old: &Connection, limit: Duration) -> bool {
        self.own
            .kill(&self.endpoint, &self.context, old, limit)
            .await
    }

    /// Closes the callers' connections once no call waits for an answer on them. The next call opens new ones,
    /// without a pause.
    pub(super) fn disconnect(&self) {
        self.callers.clear();
        self.acker.disconnect();
    }

    /// The client has ended: closes all connections once no call waits for an answer on them. Callers get no other
    /// ones, even if they began before the end and are polled only now.
    pub(super) fn end(&self) {
        self.callers.close();
        self.acker.disconnect();
        self.own.close();
    }

    /// Reports that the server does not answer. Until it does, the client's own thread sends
    /// probes, and others should send nothing.
    pub(crate) fn suspect(&self, failure: &Failure) {
        self.health.suspect(failure);
    }

    /// The reason why the server is suspected to be silent, if it is.
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

    /// Ends the pauses before attempts to connect and before queries to the sentinels.
    pub(super) fn retry_now(&self) {
        self.callers
            .each_attempt(&mut |attempt| attempt.retry_now());
        self.own.attempt().retry_now();
        self.acker.attempt().retry_now();
        if let Some(attempt) = self.endpoint.attempt() {
            attempt.retry_now();
        }
    }

    /// Waits until it is no server of the deployment any more.
    pub(crate) async fn until_left(&self) {
        self.endpoint.until_left().await;
    }

    /// When this client last noticed that the server's identity changed, so that its data may be
    /// lost. The client notices it before it returns an answer of the new server.
    pub(super) fn loss(&self) -> DataLoss {
        self.endpoint.identity().run.loss()
    }

    /// Checks the server's identity on the watchdog's connection. For the watchdog's thread only.
    pub(super) async fn check_identity(&self, limit: Duration) -> Result<(), Failure> {
        let checking = async {
            let connection = self.own_connection(limit).await?;
            let checked = connection.read_identity(limit).await;
            if !checked.as_ref().is_err_and(Failure::is_ambiguous) {
                return checked;
            }
            // The server may have been restarted. Opening another connection checks the identity
            // too.
            self.abandon(&connection);
            self.own_connection(limit).await.map(drop)
        };
        let checked = tokio::time::timeout(limit, Box::pin(checking)).await;
        checked.unwrap_or_else(|_| Err(Failure::silent(limit)))
    }

    /// If a server answered here whose configuration was not checked: the number of servers so far.
    pub(crate) fn unchecked(&self) -> Option<u64> {
        self.endpoint.identity().run.unchecked()
    }

    /// The configuration of this server and all earlier ones is checked.
    pub(crate) fn checked(&self, met: u64) {
        self.endpoint.identity().run.checked(met);
    }

    /// The server reports this identity, and the caller marks its data as complete.
    pub(super) fn trust(&self, who: String) {
        self.endpoint.identity().run.trust(who);
    }
}

#[cfg(test)]
mod on_servers {
    use super::*;
    use crate::client::Client;
    use crate::server::single_flight::Attempt;
    use crate::server::{PendingWrite, ReplicaAck, Replicas};
    use crate::support::prelude::SOON;
    use crate::support::{RedisServer, free_port};

    #[tokio::test]
    async fn a_late_caller_opens_no_second_connection() {
        let server = RedisServer::start().await;
        let client = Client::connect(server.url()).await.unwrap();
        let node = node(&client);
        let first = node.connection(SOON).await.unwrap();
        let second = node.open().await.unwrap();
        assert!(second.is(&first));
    }

    #[tokio::test]
    async fn retry_now_skips_every_backoff_of_a_node() {
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
    async fn a_shutdown_skips_the_backoff_for_finding_the_server() {
        let unused = format!("127.0.0.1:{}", free_port());
        let url = format!("redis+sentinel://{unused}/orders");
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
        /// A connection for the callers on this runtime, for a caller that found none.
        async fn open(&self) -> Result<Connection, Failure> {
            let (endpoint, context) = (&self.endpoint, &self.context);
            let runtime = Handle::current();
            let opened = self.callers.connection(&runtime, endpoint, context, SOON);
            opened.await
        }

        /// Which of these would wait before the next attempt: callers, the watchdog's thread, the
        /// waiting for replicas, and the question to the sentinels.
        fn delayed(&self) -> [bool; 4] {
            let mut callers = false;
            self.callers
                .each_attempt(&mut |attempt| callers |= attempt.is_delayed());
            [
                callers,
                self.own.attempt().is_delayed(),
                self.acker.attempt().is_delayed(),
                self.endpoint.attempt().is_some_and(Attempt::is_delayed),
            ]
        }
    }
}
