//! Where connections come from: an address, or a pool that the user brought.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::Context;
use super::address::Address;
use super::connection::Connection;
use super::failure::Failure;
use super::identity::Identity;
use super::sentinel::Sentinels;
use super::user_connector::UserConnector;
use super::user_pool::UserPool;
use super::wire::{client, password};
use crate::clock::{Clock, Moment};
use crate::error::Error;

/// Opens connections to one deployment.
pub(crate) struct Endpoint {
    pub(super) route: Locator,
    pub(super) pool: Option<UserPool>,
    pub(super) name: Option<String>,
    /// Opens connections in place of the route's address.
    pub(super) user_connector: Option<UserConnector>,
    /// Who the server is, as its connections learn it.
    pub(super) identity: Arc<Identity>,
    /// Takes the place of all.
    #[cfg(test)]
    pub(super) simulated: Option<crate::simulation::Wiring>,
}

/// How a connection finds its server.
pub(super) enum Locator {
    /// Only a pool knows.
    Unknown,
    Fixed(Box<redis::Client>),
    /// A master of a cluster: nobody any more once it is none.
    Member(Box<redis::ConnectionInfo>),
    Sentinel(Arc<Sentinels>),
}

impl Endpoint {
    /// At least one of `address` and `pool` is there: callers' commands prefer the pool, everything
    /// that runs on lockdog's own thread the address.
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
                "give a url, sentinels or a pool".to_owned(),
            ));
        }
        let shown = address
            .as_ref()
            .map_or_else(|| "pool".to_owned(), Address::shown);
        let is_elected = matches!(address, Some(Address::Sentinel { .. }));
        let identity = Arc::new(Identity::new(clock.clone(), shown, is_elected));
        let connector = address.as_ref().and_then(Address::connector);
        let user_connector = connector.map(|connector| UserConnector::new(connector, context));
        let route = match address {
            None => Locator::Unknown,
            Some(Address::Server(info) | Address::Connector { info, .. }) => {
                Locator::Fixed(Box::new(client(info)?))
            }
            Some(Address::Cluster { .. }) => {
                return Err(Error::invalid("url", "it is that of a cluster".to_owned()));
            }
            Some(Address::Sentinel {
                name,
                sentinels,
                master,
            }) => {
                let clients = sentinels.into_iter().map(client);
                let clients = clients.collect::<Result<_, _>>()?;
                let identity = identity.clone();
                let context = context.clone();
                Locator::Sentinel(Arc::new(Sentinels::new(
                    name, clients, master, context, identity,
                )))
            }
        };
        Ok(Self {
            route,
            pool,
            name,
            user_connector,
            identity,
            #[cfg(test)]
            simulated: None,
        })
    }

    /// One master of a cluster.
    pub(super) fn member(info: redis::ConnectionInfo, name: Option<String>, clock: &Clock) -> Self {
        let identity = Identity::new(clock.clone(), info.addr().to_string(), true);
        Self {
            route: Locator::Member(Box::new(info)),
            pool: None,
            name,
            user_connector: None,
            identity: Arc::new(identity),
            #[cfg(test)]
            simulated: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn simulated(wiring: crate::simulation::Wiring, clock: &Clock) -> Self {
        let address = "simulated".to_owned();
        Self {
            route: Locator::Unknown,
            pool: None,
            name: None,
            user_connector: None,
            identity: Arc::new(Identity::new(clock.clone(), address, false)),
            simulated: Some(wiring),
        }
    }

    /// How many runtimes may have a connection for callers of their own, beside the one that further
    /// runtimes share.
    pub(super) fn runtimes(&self) -> usize {
        let Some(pool) = &self.pool else {
            return RUNTIMES;
        };
        // Without an address the watchdog, and what waits for replicas, take theirs out of it, too.
        let others = match &self.route {
            Locator::Unknown => 3,
            Locator::Fixed(_) | Locator::Member(_) | Locator::Sentinel(_) => 1,
        };
        pool.max_size().saturating_sub(others).min(RUNTIMES)
    }

    /// Where this leads to, where a deployment has several servers.
    pub(super) fn server(&self, client: &redis::Client) -> Option<Arc<str>> {
        match &self.route {
            Locator::Member(_) | Locator::Sentinel(_) => {
                Some(client.get_connection_info().addr().to_string().into())
            }
            Locator::Unknown | Locator::Fixed(_) => None,
        }
    }

    /// Whom to connect to now, and its term; `None` if only a pool knows.
    pub(super) async fn find(
        &self,
        limit: Duration,
    ) -> Result<(Option<redis::Client>, u64), Failure> {
        match &self.route {
            Locator::Unknown => Ok((None, 0)),
            Locator::Fixed(client) => {
                let term = self.identity.term();
                Ok((Some(client.as_ref().clone()), term))
            }
            Locator::Member(_) if self.identity.term() > 0 => {
                let cause = "it is no master of the cluster any more";
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

    /// It opened this connection.
    pub(super) fn has(&self, connection: &Connection) -> bool {
        connection.is_of(&self.identity)
    }

    /// Host and port, a unix socket's path, a master's name, or "pool"; never a user or password.
    pub(super) fn address(&self) -> String {
        self.identity.address().to_owned()
    }

    /// Keeps looking who the master is, this often, where that can change. Never ends.
    pub(crate) async fn watch(&self, every: Duration) {
        match &self.route {
            Locator::Sentinel(sentinels) => sentinels.watch(every).await,
            Locator::Unknown | Locator::Fixed(_) | Locator::Member(_) => {
                std::future::pending().await
            }
        }
    }

    /// Sentinels may be asked at once: see [`SingleFlight::retry_now`](super::single_flight::SingleFlight::retry_now).
    pub(super) fn retry_now(&self) {
        if let Locator::Sentinel(sentinels) = &self.route {
            sentinels.retry_now();
        }
    }

    #[cfg(test)]
    pub(super) fn is_delayed(&self) -> bool {
        matches!(&self.route, Locator::Sentinel(sentinels) if sentinels.is_delayed())
    }

    /// Waits until sentinels named the master that were asked after this moment, or another one.
    pub(super) async fn confirm(&self, since: Moment) {
        if let Locator::Sentinel(sentinels) = &self.route {
            tokio::select! {
                () = sentinels.confirm(since) => {}
                () = self.identity.until_over(self.identity.term()) => {}
            }
        }
    }

    /// Hears of each master that comes after the present one.
    pub(crate) fn term_changes(&self) -> watch::Receiver<u64> {
        self.identity.term_changes()
    }

    /// Another server is the master from now on; see [`Endpoint::log_term`].
    pub(crate) fn end_term(&self) {
        self.identity.end_term();
    }

    /// Wakes those who wait for the end of a term. A waker is the caller's code: no lock may be held.
    pub(crate) fn log_term(&self) {
        self.identity.log_term();
    }

    /// Waits until this is no master of a cluster any more.
    pub(super) async fn until_left(&self) {
        match &self.route {
            Locator::Member(_) => self.identity.until_over(0).await,
            Locator::Unknown | Locator::Fixed(_) | Locator::Sentinel(_) => {
                std::future::pending().await
            }
        }
    }

    /// It took over from another server, and may know less than that one knew.
    pub(super) fn succeed(&self) {
        self.identity.succeed();
    }

    /// It may have been replaced and have taken over again.
    pub(super) fn doubt(&self) {
        self.identity.doubt();
    }

    /// Another server may take this one's place, with less than this one knew.
    pub(crate) fn is_switched(&self) -> bool {
        self.identity.is_elected()
    }

    /// Fails if nobody has said for a lease, or some seconds, that the master in use is the master: one
    /// of before that comes back must not prolong anything.
    pub(crate) fn vouch(&self, now: Moment, lease: Duration) -> Result<(), Failure> {
        match &self.route {
            Locator::Sentinel(sentinels)
                if now.since(sentinels.named()) > lease.max(SOME_SECONDS) =>
            {
                let cause = "no sentinel has named this master for a lease";
                Err(Failure::Unsent(cause.into()))
            }
            _ => Ok(()),
        }
    }
}

/// Shows where connections go, never with what password.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("address", &self.address())
            .field("pool", &self.pool.is_some())
            .finish_non_exhaustive()
    }
}

/// More than a machine has cores, as a rule: services have a runtime for each of them at most.
const RUNTIMES: usize = 64;

/// Some questions to the sentinels.
const SOME_SECONDS: Duration = Duration::from_secs(3);
