//! Connections over streams that a user's connector opens.
//!
//! The connector and its streams are the user's code. All of it runs in separate tasks. A panic
//! there only fails the attempt, and callers wait no longer than for any other connection (design:
//! invariant 14).

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::Context;
use super::connector::{Connector, Transport};
use super::connector_calls::ConnectorCalls;
use super::failure::Failure;
use super::wire::{config, password};
use crate::background::Background;
use crate::panics;

/// A user's connector.
pub(super) struct UserConnector {
    connector: Arc<dyn Connector>,
    background: Background,
    /// The connector's calls on extra threads.
    commands: Arc<ConnectorCalls>,
    renewals: Arc<ConnectorCalls>,
    messages: Arc<ConnectorCalls>,
}

/// The purpose of a connection. Connector calls for one purpose never delay those for another.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// Callers on many runtimes, and the waiting for replicas: one of each at a time.
    Commands,
    /// All work of the watchdog.
    Renewals,
    Messages,
}

/// Drives a connection's reads and writes. On drop it ends and drops the user's stream, because an
/// answer that never comes would keep both alive.
pub(super) struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl UserConnector {
    pub(super) fn new(connector: Arc<dyn Connector>, context: &Context) -> Self {
        // No attempt to connect waits longer than this.
        let patience = context.command_timeout;
        Self {
            connector,
            background: context.background.clone(),
            commands: ConnectorCalls::new(CALLS_AT_ONCE, patience),
            renewals: ConnectorCalls::new(CALLS_AT_ONCE, patience),
            messages: ConnectorCalls::new(1, FOR_MESSAGES),
        }
    }

    /// A connection for commands. The current runtime drives it. Every call has its own time limit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    pub(super) async fn open(
        &self,
        client: &redis::Client,
        purpose: Purpose,
    ) -> Result<(MultiplexedConnection, Driver), Failure> {
        let (stream, client) = (self.stream(purpose), client.clone());
        apart(async move {
            let (stream, info) = (stream.await?, client.get_connection_info());
            let opened =
                MultiplexedConnection::new_with_config(info.redis_settings(), stream, config());
            let opened = opened.await;
            let (connection, driver) =
                opened.map_err(|error| Failure::of_connect(&error, password(info)))?;
            #[expect(clippy::disallowed_methods, reason = "it ends with the connection")]
            let driver = tokio::spawn(driver);
            Ok((connection, Driver(driver.abort_handle())))
        })
        .await
    }

    /// Like [`UserConnector::open`], for messages.
    ///
    /// # Cancel safety
    ///
    /// Same as [`UserConnector::open`].
    pub(super) async fn open_pubsub(&self, client: &redis::Client) -> Result<PubSub, Failure> {
        let (stream, client) = (self.stream(Purpose::Messages), client.clone());
        apart(async move {
            let (stream, info) = (stream.await?, client.get_connection_info());
            let opened = PubSub::new(info.redis_settings(), stream).await;
            opened.map_err(|error| Failure::of_connect(&error, password(info)))
        })
        .await
    }

    /// Calls the connector: on an extra thread if a blocking call would stop the watchdog.
    fn stream(
        &self,
        purpose: Purpose,
    ) -> impl Future<Output = Result<Box<dyn Transport>, Failure>> + Send + use<> {
        let (connector, background) = (self.connector.clone(), self.background.clone());
        let calls = match purpose {
            Purpose::Commands => &self.commands,
            Purpose::Renewals => &self.renewals,
            Purpose::Messages => &self.messages,
        };
        let calls = calls.clone();
        async move {
            let runtime = Handle::current();
            if !background.is(&runtime) {
                return connect(&*connector).await;
            }
            let call = calls.begin()?;
            // Without it a future that never completes would occupy the thread.
            let given_up = CancellationToken::new();
            let _gives_up = given_up.clone().drop_guard();
            let connecting = spawn_blocking(move || {
                let _ends_with_this = call;
                let connecting = async { connect(&*connector).await };
                runtime.block_on(given_up.run_until_cancelled(connecting))
            });
            match connecting.await {
                Ok(Some(opened)) => opened,
                Ok(None) => Err(Failure::Unsent(ABORTED.into())),
                Err(error) => Err(ended(error)),
            }
        }
    }
}

async fn connect(connector: &dyn Connector) -> Result<Box<dyn Transport>, Failure> {
    let opened = connector.connect().await;
    opened.map_err(|error| Failure::Unsent(error.to_string().into()))
}

/// Runs the work in its own task. The task ends when the caller drops this future.
async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Ok(opened)) => opened,
        Some(Err(error)) => Err(ended(error)),
        None => Err(Failure::Unsent(ABORTED.into())),
    }
}

fn ended(error: JoinError) -> Failure {
    let Ok(panic) = error.try_into_panic() else {
        return Failure::Unsent(ABORTED.into());
    };
    panics::discard(panic);
    Failure::Unsent(PANICKED.into())
}

const PANICKED: &str = "the connector, or a stream that it opened, panicked";
const ABORTED: &str = "the attempt to connect was aborted: its runtime has ended";
/// An abandoned attempt may still be about to return.
const CALLS_AT_ONCE: usize = 3;
/// Waiters without messages poll, so there is no hurry.
const FOR_MESSAGES: Duration = Duration::from_secs(60);
