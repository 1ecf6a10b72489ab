//! Connections over streams that a connector of the user's opens.
//!
//! The connector and its streams are the user's code. A panic there is a failed attempt or a broken
//! connection and nothing more. It runs in tasks of its own: nobody waits longer for it than for any
//! connection (design: invariant 14).

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::Context;
use super::caught::{CaughtCall, CaughtStream, PANICKED};
use super::connector::Connector;
use super::connector_calls::ConnectorCalls;
use super::failure::Failure;
use super::wire::{config, password};
use crate::background::Background;
use crate::panics;

/// A user's connector.
pub(super) struct UserConnector {
    connector: Arc<dyn Connector>,
    background: Background,
    /// The calls of the connector on threads of their own.
    commands: Arc<ConnectorCalls>,
    renewals: Arc<ConnectorCalls>,
    messages: Arc<ConnectorCalls>,
}

/// What a connection is for. Calls of the connector for one purpose never delay those for another.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// Callers on many runtimes, and what waits for replicas: one of each at a time.
    Commands,
    /// All that the watchdog does.
    Renewals,
    Messages,
}

/// What moves a connection's bytes. It ends when this is dropped, and the user's stream with it: an
/// answer that never comes would keep both.
pub(super) struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl UserConnector {
    pub(super) fn new(connector: Arc<dyn Connector>, context: &Context) -> Self {
        // No attempt to connect waits for longer.
        let patience = context.command_timeout;
        // Renewals have a lease at most, so the calls that they wait for must not take it up.
        let for_renewals = patience.min(context.watchdog_lease / 6);
        Self {
            connector,
            background: context.background.clone(),
            commands: ConnectorCalls::new(CALLS_AT_ONCE, patience),
            renewals: ConnectorCalls::new(CALLS_AT_ONCE, for_renewals),
            messages: ConnectorCalls::new(1, FOR_MESSAGES),
        }
    }

    /// A connection for commands, driven by the runtime that this is called on. Every call brings a time
    /// limit of its own.
    ///
    /// # Cancel safety
    ///
    /// The attempt ends with it.
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

    /// As [`UserConnector::open`], a connection for messages.
    ///
    /// # Cancel safety
    ///
    /// As [`UserConnector::open`].
    pub(super) async fn open_pubsub(&self, client: &redis::Client) -> Result<PubSub, Failure> {
        let (stream, client) = (self.stream(Purpose::Messages), client.clone());
        apart(async move {
            let (stream, info) = (stream.await?, client.get_connection_info());
            let opened = PubSub::new(info.redis_settings(), stream).await;
            opened.map_err(|error| Failure::of_connect(&error, password(info)))
        })
        .await
    }

    /// Calls the connector: on a thread of its own where the watchdog would stand still with it.
    fn stream(
        &self,
        purpose: Purpose,
    ) -> impl Future<Output = Result<CaughtStream, Failure>> + Send + use<> {
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
                return CaughtCall::new(&*connector).await;
            }
            let call = calls.begin()?;
            // A future that is ready never would keep the thread otherwise.
            let given_up = CancellationToken::new();
            let _gives_up = given_up.clone().drop_guard();
            let connecting = spawn_blocking(move || {
                let _ends_with_this = call;
                let connecting = async { CaughtCall::new(&*connector).await };
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

/// Does this in a task of its own, which ends with the caller's interest in it.
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

const ABORTED: &str = "the attempt to connect was aborted: its runtime has ended";
/// An attempt that was given up may still be about to return.
const CALLS_AT_ONCE: usize = 3;
/// Who hears no messages polls, so there is no hurry.
const FOR_MESSAGES: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;

    use tokio::time::sleep;

    use super::super::connector::Transport;
    use super::*;
    use crate::clock::Clock;

    #[derive(Debug)]
    struct Nowhere;

    impl Connector for Nowhere {
        fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>> {
            Box::pin(std::future::pending())
        }

        fn address(&self) -> String {
            "nowhere".to_owned()
        }
    }

    /// So long the background waits for one attempt after the other: a sixth of the lease, and then no more
    /// than a command timeout.
    #[tokio::test(start_paused = true)]
    async fn renewals_call_again_within_their_lease_though_every_call_before_hangs() {
        let context = Context {
            command_timeout: Duration::from_secs(10),
            ..Context::here(&Clock::of_tokio())
        };
        assert_eq!(context.watchdog_lease, Duration::from_secs(30));
        let connector = UserConnector::new(Arc::new(Nowhere), &context);
        let mut hanging = Vec::new();
        for seconds in [5, 10, 10, 0] {
            let call = connector.renewals.begin();
            hanging.push(call.unwrap_or_else(|refused| panic!("{}", refused.words())));
            sleep(Duration::from_secs(seconds)).await;
        }
    }
}
