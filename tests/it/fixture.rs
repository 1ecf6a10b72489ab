//! What a test has of its servers.

use std::ops::Deref;
use std::time::Instant;

use futures_util::future::join_all;
use lockdog::{Client, ClientBuilder};

use crate::support::prelude::{SOON, ms};
use crate::support::{Redis, RedisServer};

/// A server, the test's own connection to it, a client, and what the tests of a kind have beside these, such as the
/// lock under test.
pub(crate) struct Fixture<Own = (), Server = RedisServer> {
    /// Dropped first, so that its server still runs.
    pub(crate) client: Client,
    own: Own,
    pub(crate) redis: Redis,
    pub(crate) server: Server,
}

impl<Own> Fixture<Own> {
    /// With further settings of the client, of which `own` is made.
    pub(crate) async fn of(
        set: impl FnOnce(ClientBuilder) -> ClientBuilder,
        own: impl FnOnce(&Client) -> Own,
    ) -> Self {
        let server = RedisServer::start().await;
        let (redis, client) = (server.redis().await, set(patient(server.url())));
        Self::at(server, redis, client, own).await
    }

    /// Another client of the server, as another process has it.
    pub(crate) async fn connect(&self, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        connected(set(patient(self.server.url()))).await
    }
}

impl<Own, Server> Fixture<Own, Server> {
    /// With a client that reaches the server in a way of its own, for example through a proxy.
    pub(crate) async fn at(
        server: Server,
        redis: Redis,
        client: ClientBuilder,
        own: impl FnOnce(&Client) -> Own,
    ) -> Self {
        let client = connected(client).await;
        Self {
            own: own(&client),
            client,
            redis,
            server,
        }
    }
}

impl<Own, Server> Deref for Fixture<Own, Server> {
    type Target = Own;

    fn deref(&self) -> &Own {
        &self.own
    }
}

/// Several servers, and the test's own connection to each.
pub(crate) struct Servers {
    pub(crate) all: Vec<RedisServer>,
    pub(crate) redis: Vec<Redis>,
}

impl Servers {
    pub(crate) async fn start(number: usize) -> Self {
        let all = join_all((0..number).map(|_| RedisServer::start())).await;
        let redis = join_all(all.iter().map(RedisServer::redis)).await;
        Self { all, redis }
    }

    /// A client of each server.
    pub(crate) async fn clients(&self) -> Vec<Client> {
        self.clients_with(|builder| builder).await
    }

    pub(crate) async fn clients_with(
        &self,
        set: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Vec<Client> {
        let builder = |server: &RedisServer| set(Client::builder().url(server.url()));
        join_all(self.all.iter().map(builder).map(connected)).await
    }
}

/// A client whose commands a busy machine answers in time, so that none fails and none is sent again.
pub(crate) fn patient(url: String) -> ClientBuilder {
    Client::builder().url(url).command_timeout(ms(10_000))
}

/// On a busy machine connecting may take longer than one command may. A loop, so that its future can be sent to
/// another thread.
pub(crate) async fn connected(builder: ClientBuilder) -> Client {
    let deadline = Instant::now() + SOON;
    loop {
        match builder.clone().build().await {
            Ok(client) => return client,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(ms(20)).await;
    }
}
