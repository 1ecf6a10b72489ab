//! Connections over streams that a user's connector opens.
//!
//! The connector and its streams are the user's code. A panic there only fails the attempt or breaks
//! the connection. The code runs in tasks of its own, so callers wait no longer than for any other
//! connection (design: invariant 14).

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::Context;
use super::caught::{Caught, CaughtCall, CaughtStream, PANICKED};
use super::connector::Connector;
use super::connector_calls::ConnectorCalls;
use super::failure::Failure;
use super::wire::{config, password};
use crate::background::Background;
use crate::panics;

/// A user's connector.
pub(super) struct UserConnector {
    connector: Arc<dyn Connector>,
    calls: UserCalls,
}

/// Calls of the user's code on extra threads.
#[derive(Clone)]
pub(super) struct UserCalls {
    background: Background,
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
        Self {
            connector,
            calls: UserCalls::new(context),
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
        in_own_task(async move {
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
        in_own_task(async move {
            let (stream, info) = (stream.await?, client.get_connection_info());
            let opened = PubSub::new(info.redis_settings(), stream).await;
            opened.map_err(|error| Failure::of_connect(&error, password(info)))
        })
        .await
    }

    /// Calls the connector.
    fn stream(
        &self,
        purpose: Purpose,
    ) -> impl Future<Output = Result<CaughtStream, Failure>> + Send + use<> {
        let connector = self.connector.clone();
        (self.calls).call(purpose, move || CaughtCall::new(|| connector.connect()))
    }
}

impl UserCalls {
    pub(super) fn new(context: &Context) -> Self {
        // No attempt to connect waits longer than this.
        let timeout = context.command_timeout;
        // A renewal must be answered within its lease, so the calls that it waits for get a part of that.
        let for_renewals = timeout.min(context.watchdog_lease / 6);
        Self {
            background: context.background.clone(),
            commands: ConnectorCalls::new(CALLS_AT_ONCE, timeout),
            renewals: ConnectorCalls::new(CALLS_AT_ONCE, for_renewals),
            messages: ConnectorCalls::new(1, FOR_MESSAGES),
        }
    }

    /// With limits of its own: calls for one server never delay those for another.
    pub(super) fn separate(&self) -> Self {
        Self {
            background: self.background.clone(),
            commands: self.commands.separate(),
            renewals: self.renewals.separate(),
            messages: self.messages.separate(),
        }
    }

    /// Makes a call of the user's code: on an extra thread if a blocking call would stop the watchdog.
    pub(super) fn call<T: Send + 'static, M>(
        &self,
        purpose: Purpose,
        make: M,
    ) -> impl Future<Output = Result<Caught<T>, Failure>> + Send + use<T, M>
    where
        M: FnOnce() -> CaughtCall<T> + Send + 'static,
    {
        let background = self.background.clone();
        let calls = match purpose {
            Purpose::Commands => &self.commands,
            Purpose::Renewals => &self.renewals,
            Purpose::Messages => &self.messages,
        };
        let calls = calls.clone();
        async move {
            let runtime = Handle::current();
            if !background.is(&runtime) {
                return make().await;
            }
            let call = calls.begin()?;
            // Cancelled when this future is dropped. Otherwise a call that never completes would occupy the
            // thread.
            let given_up = CancellationToken::new();
            let _gives_up = given_up.clone().drop_guard();
            let connecting = spawn_blocking(move || {
                let _ends_with_this = call;
                let connecting = async { make().await };
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

/// Runs the work in its own task. The task ends when the caller drops this future.
async fn in_own_task<T: Send + 'static>(
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
/// More than one, because abandoned attempts may not have returned yet.
const CALLS_AT_ONCE: usize = 3;
/// Long, because waiters without messages still have their timers.
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
    async fn renewals_retry_within_their_lease_when_every_connector_call_hangs() {
        let context = Context {
            command_timeout: Duration::from_secs(10),
            ..Context::here(&Clock::of_tokio())
        };
        assert_eq!(context.watchdog_lease, Duration::from_secs(30));
        let connector = UserConnector::new(Arc::new(Nowhere), &context);
        let mut hanging = Vec::new();
        for seconds in [5, 10, 10, 0] {
            let call = connector.calls.renewals.begin();
            hanging.push(call.unwrap_or_else(|refused| panic!("{}", refused.words())));
            sleep(Duration::from_secs(seconds)).await;
        }
    }
}
