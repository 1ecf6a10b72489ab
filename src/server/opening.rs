//! Opens connections for commands.

use std::time::Duration;

use super::connection::{Connection, ConnectionParts};
use super::endpoint::{Endpoint, Locator};
use super::failure::Failure;
use super::login::log_in;
use super::socket::Socket;
use super::user_connector::Purpose;
use super::wire::open;
use crate::observe::Role;

impl Endpoint {
    /// A connection for callers' commands, within `limit`. The current runtime drives it.
    pub(crate) async fn open(&self, limit: Duration) -> Result<Connection, Failure> {
        let opened = in_time(limit, self.open_for_callers(limit)).await;
        self.opened(Role::Commands, opened)
    }

    /// Like [`Endpoint::open_own`], with a strict `limit`.
    pub(super) async fn open_own_in_time(&self, limit: Duration) -> Result<Connection, Failure> {
        let opened = in_time(limit, self.open_own(limit)).await;
        self.opened(Role::Replicas, opened)
    }

    /// A connection that is not shared. It comes from the pool if no address is known.
    pub(crate) async fn open_own(&self, limit: Duration) -> Result<Connection, Failure> {
        self.open_for(Purpose::Commands, limit).await
    }

    /// Like [`Endpoint::open_own`], for the watchdog.
    pub(super) async fn open_for_renewals(&self, limit: Duration) -> Result<Connection, Failure> {
        self.open_for(Purpose::Renewals, limit).await
    }

    async fn open_for_callers(&self, limit: Duration) -> Result<Connection, Failure> {
        let Some(pool) = &self.pool else {
            return self.open_own(limit).await;
        };
        let (mut multiplexed, pooled) = pool.take().await?;
        // Every call has its own time limit, which the pool's limit might cut short.
        multiplexed.set_response_timeout(NO_LIMIT);
        let kept = ConnectionParts::Pooled(pooled);
        // The pool decides how many commands the connection queues. If its queue is full, commands behind a
        // batch could overtake it.
        let socket = Socket::pooled(multiplexed);
        let connection = Connection::new(socket, &self.identity, None, 0, kept);
        connection.handshake(None, limit).await?;
        Ok(connection)
    }

    async fn open_for(&self, purpose: Purpose, limit: Duration) -> Result<Connection, Failure> {
        #[cfg(test)]
        if let Locator::Simulated(wiring) = &self.route {
            return self.open_simulated(wiring).await;
        }
        let (client, term) = self.find(limit).await?;
        let Some(client) = client else {
            return Box::pin(self.open_for_callers(limit)).await;
        };
        let server = self.server(&client);
        let opening = async {
            let user_connector = self.user_connector.as_ref();
            let connect = |client: redis::Client| async move {
                match user_connector {
                    None => Ok((open(&client, limit).await?, ConnectionParts::Nothing)),
                    Some(user_connector) => {
                        // Boxed: it is rare, and would otherwise enlarge the future of every call.
                        let opened = Box::pin(user_connector.open(&client, purpose)).await;
                        opened.map(|(opened, driver)| (opened, ConnectionParts::Driver(driver)))
                    }
                }
            };
            let logins = self.logins.as_ref();
            let (multiplexed, kept) = log_in(logins, &client, purpose, limit, connect).await?;
            let socket = match &self.route {
                // The keys of one command of a cluster must have one slot, and callers' keys rarely do.
                Locator::Member(_) => Socket::unbatched(multiplexed),
                _ => Socket::batched(multiplexed),
            };
            let connection = Connection::new(socket, &self.identity, server.clone(), term, kept);
            connection.handshake(self.name.as_deref(), limit).await?;
            Ok(connection)
        };
        let opened = tokio::select! {
            opened = opening => opened,
            // The connection would lead to the previous master. Other callers wait for this attempt, so it
            // ends now.
            () = self.identity.term.until_over(term) => {
                Err(Failure::Unsent("the master was switched".into()))
            }
        };
        match (&self.route, &server) {
            // The sentinels chose the server, so no other code can add its address to the failure.
            (Locator::Sentinel(_), Some(server)) => opened.map_err(|failure| failure.at(server)),
            _ => opened,
        }
    }
}

async fn in_time(
    limit: Duration,
    opening: impl Future<Output = Result<Connection, Failure>>,
) -> Result<Connection, Failure> {
    let opened = tokio::time::timeout(limit, opening).await;
    opened.unwrap_or_else(|_| Err(Failure::Unsent("no connection in time".into())))
}

/// Longer than the longest command timeout.
const NO_LIMIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
