//! Opens connections: to an address, or from the caller's pool.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Context;
use super::address::Address;
use super::connection::Connection;
use super::failure::Failure;
use super::identity::Identity;
use super::login::Logins;
use super::sentinel::Sentinels;
use super::single_flight::Attempt;
use super::user_connector::UserConnector;
use super::user_pool::UserPool;
use super::wire::{client, password};
use crate::clock::Moment;
use crate::error::Error;

/// Opens connections to one deployment.
pub(crate) struct Endpoint {
    pub(super) route: Locator,
    pub(super) pool: Option<UserPool>,
    pub(super) name: Option<String>,
    /// Opens connections in place of the address.
    pub(super) user_connector: Option<UserConnector>,
    /// The users and passwords, if the caller's code gives them.
    pub(super) logins: Option<Logins>,
    /// The server's identity, which its connections report.
    pub(super) identity: Arc<Identity>,
}

/// How the client finds the server.
pub(super) enum Locator {
    /// Only the pool knows the server.
    Unknown,
    Fixed(Box<redis::Client>),
    /// A master of a cluster. Connecting fails once it is no master any more.
    Member(Box<redis::ConnectionInfo>),
    Sentinel(Arc<Sentinels>),
    /// A server of a simulated run.
    #[cfg(test)]
    Simulated(crate::simulation::Wiring),
}

impl Endpoint {
    /// At least one of `address` and `pool` is given. Callers' commands prefer the pool. Everything
    /// on lockdog's own thread prefers the address.
    pub(crate) fn new(
        address: Option<Address>,
        pool: Option<UserPool>,
        name: Option<String>,
        context: &Context,
    ) -> Result<Self, Error> {
        let clock = &context.clock;
        if address.is_none() && pool.is_none() {
            return Err(Error::invalid(
                "client",
                "set a url, sentinels or a pool".to_owned(),
            ));
        }
        let shown = address
            .as_ref()
            .map_or_else(|| "pool".to_owned(), Address::shown);
        let is_elected = matches!(address, Some(Address::Sentinel { .. }));
        let identity = Identity::new(clock.clone(), shown, is_elected);
        let identity = Arc::new(identity.observed(&context.observers));
        let connector = address.as_ref().and_then(Address::connector);
        let user_connector = connector.map(|connector| UserConnector::new(connector, context));
        let route = match address {
            None => Locator::Unknown,
            Some(Address::Server(info) | Address::Connector { info, .. }) => {
                Locator::Fixed(Box::new(client(info)?))
            }
            Some(Address::Cluster { .. }) => {
                return Err(Error::invalid("url", "this is a cluster URL".to_owned()));
            }
            Some(Address::Sentinel {
                name,
                sentinels,
                master,
            }) => {
                let identity = identity.clone();
                let context = context.clone();
                Locator::Sentinel(Arc::new(Sentinels::new(
                    name, sentinels, master, context, identity,
                )?))
            }
        };
        Ok(Self {
            route,
            pool,
            name,
            user_connector,
            logins: None,
            identity,
        })
    }

    /// The endpoint of one master of a cluster.
    pub(super) fn member(
        info: redis::ConnectionInfo,
        name: Option<String>,
        context: &Context,
    ) -> Self {
        let address = info.addr().to_string();
        let identity = Identity::new(context.clock.clone(), address, true);
        Self {
            route: Locator::Member(Box::new(info)),
            pool: None,
            name,
            user_connector: None,
            logins: None,
            identity: Arc::new(identity.observed(&context.observers)),
        }
    }

    /// Logs in with the credentials that the caller's code gives, if there is such code.
    pub(super) fn logging_in(mut self, logins: Option<&Logins>) -> Self {
        self.logins = logins.map(Logins::separate);
        self
    }

    /// How many runtimes may have their own callers' connection. All further runtimes share one
    /// more.
    pub(super) fn runtimes(&self) -> usize {
        let Some(pool) = &self.pool else {
            return RUNTIMES;
        };
        // Without an address, the watchdog's connection and the one for `WAIT` also come from the pool.
        let others = match &self.route {
            Locator::Unknown => 3,
            _ => 1,
        };
        pool.max_size().saturating_sub(others).min(RUNTIMES)
    }

    /// The server's address, if the deployment has several servers.
    pub(super) fn server(&self, client: &redis::Client) -> Option<Arc<str>> {
        match &self.route {
            Locator::Member(_) | Locator::Sentinel(_) => {
                Some(client.get_connection_info().addr().to_string().into())
            }
            _ => None,
        }
    }

    /// The server to connect to now, and its term; `None` if only a pool knows it.
    pub(super) async fn find(
        &self,
        limit: Duration,
    ) -> Result<(Option<redis::Client>, u64), Failure> {
        match &self.route {
            Locator::Unknown => Ok((None, 0)),
            #[cfg(test)]
            Locator::Simulated(_) => Ok((None, 0)),
            Locator::Fixed(client) => {
                let term = self.identity.term.current();
                Ok((Some(client.as_ref().clone()), term))
            }
            Locator::Member(_) if self.identity.term.current() > 0 => {
                let cause = "the server is no longer a master of the cluster";
                Err(Failure::Unsent(cause.into()))
            }
            Locator::Member(info) => {
                let client = redis::Client::open(info.as_ref().clone());
                let client = client.map_err(|error| Failure::of_connect(&error, password(info)))?;
                Ok((Some(client), 0))
            }
            Locator::Sentinel(sentinels) => {
                let (client, term) = sentinels.master(limit).await?;
                Ok((Some(client), term))
            }
        }
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether it opened this connection.
    pub(super) fn has(&self, connection: &Connection) -> bool {
        connection.is_of(&self.identity)
    }

    /// Host and port, the path of a unix socket, a master's name, or "pool". Never a user or
    /// password.
    pub(super) fn address(&self) -> String {
        self.identity.run.address().to_owned()
    }

    /// Repeatedly checks which server is the master, at this interval, if that can change. Never
    /// ends.
    pub(crate) async fn watch(&self, every: Duration) {
        match &self.route {
            Locator::Sentinel(sentinels) => sentinels.watch(every).await,
            _ => std::future::pending().await,
        }
    }

    /// The attempt to find the master, if sentinels know it.
    pub(super) fn attempt(&self) -> Option<&dyn Attempt> {
        match &self.route {
            Locator::Sentinel(sentinels) => Some(sentinels.attempt()),
            _ => None,
        }
    }

    /// Waits until sentinels that were asked after `since` confirmed the master or named another
    /// one.
    pub(super) async fn confirm(&self, since: Moment) {
        if let Locator::Sentinel(sentinels) = &self.route {
            tokio::select! {
                () = sentinels.confirm(since) => {}
                () = self.identity.term.until_over(self.identity.term.current()) => {}
            }
        }
    }

    /// Notifies of each new term.
    pub(crate) fn term_changes(&self) -> watch::Receiver<u64> {
        self.identity.term.changes()
    }

    /// Another server is the master from now on; see [`Endpoint::log_term`].
    pub(crate) fn end_term(&self) {
        self.identity.end_term();
    }

    /// Wakes the waiters for the end of a term. Wakers are callers' code, so no lock may be held
    /// here.
    pub(crate) fn log_term(&self) {
        self.identity.term.notify();
    }

    /// Waits until this server is no master of the cluster any more.
    pub(super) async fn until_left(&self) {
        match &self.route {
            Locator::Member(_) => self.identity.term.until_over(0).await,
            _ => std::future::pending().await,
        }
    }

    /// The server took over from another one, and may not have all of its data.
    pub(super) fn succeed(&self) {
        self.identity.run.succeed();
    }

    /// Another server may have replaced this one in between.
    pub(super) fn doubt(&self) {
        self.identity.run.doubt();
    }

    /// Whether another server may take this one's place, with less data.
    pub(crate) fn is_switched(&self) -> bool {
        self.identity.term.is_elected()
    }

    /// Fails if the current master was not confirmed as master within the last lease, or within the
    /// last seconds if the lease is shorter. An old master that comes back must not prolong a hold.
    pub(crate) fn verify(&self, now: Moment, lease: Duration) -> Result<(), Failure> {
        match &self.route {
            Locator::Sentinel(sentinels)
                if now.since(sentinels.named()) > lease.max(SOME_SECONDS) =>
            {
                let cause = "no sentinel has confirmed this master within the lease";
                Err(Failure::Unsent(cause.into()))
            }
            _ => Ok(()),
        }
    }
}

/// Shows addresses, never passwords.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address())
            .field("pool", &self.pool.is_some())
            .finish_non_exhaustive()
    }
}

/// Usually more than the number of a machine's cores. A service has at most one runtime for each
/// core.
const RUNTIMES: usize = 64;

/// Enough for several queries to the sentinels.
const SOME_SECONDS: Duration = Duration::from_secs(3);
