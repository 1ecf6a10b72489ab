//! Tests on real servers of one server's part in a quorum, which no public call shows by itself.

mod acl;
mod asleep;
mod epoch;
mod identity;
mod member;
mod register;
mod settle;
mod suspicion;
mod term;
mod unreachable_cluster;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Client, ClientBuilder};
use crate::clock::Moment;
use crate::key::{LockKey, kind};
use crate::script::{self, InstanceChecks, InstanceReply, MarkReply};
use crate::server::{Failure, Sent};
use crate::session::Core;
use crate::support::prelude::{LONG, SOON, ms};
use crate::support::{Proxy, Redis, RedisServer, until_ok};

/// A client of one server, as a quorum's driver uses it.
struct TestCaller {
    client: Client,
    core: Arc<Core>,
    key: LockKey,
}

/// A caller, its server, and a network between them that can fail.
struct TestMember {
    /// Dropped first, while its server still runs.
    caller: TestCaller,
    proxy: Proxy,
    redis: Redis,
    server: RedisServer,
}

impl TestCaller {
    /// For the lock with this name.
    fn new(client: Client, name: &str) -> Self {
        Self {
            core: client.lock(name).session().core().clone(),
            client,
            key: LockKey::new(&kind::PLAIN, name, None).expect("it is a name"),
        }
    }

    async fn connect(url: String) -> Self {
        let client = Client::connect(url).await;
        Self::new(client.expect("the server is reachable"), "l")
    }

    fn now(&self) -> Moment {
        self.core.clock.now()
    }

    fn reborn(&self) -> Option<Moment> {
        self.core.server.lost_at("").seen
    }

    /// A first acquire with this field, for a lease that outlives the test.
    async fn acquire(&self, field: &str, guards: InstanceChecks) -> Result<InstanceReply, Failure> {
        self.acquire_to(field, 1, LONG, guards).await
    }

    async fn acquire_to(
        &self,
        field: &str,
        target: u32,
        lease: Duration,
        guards: InstanceChecks,
    ) -> Result<InstanceReply, Failure> {
        let server = &self.core.server;
        let time = server.time_box(self.now());
        let sent = &mut Sent::default();
        script::acquire_member(server, &self.key, field, target, lease, guards, time, sent).await
    }

    async fn mark(&self, field: &str, token: u64) -> Result<MarkReply, Failure> {
        self.mark_for(field, token, LONG).await
    }

    async fn mark_for(
        &self,
        field: &str,
        token: u64,
        lease: Duration,
    ) -> Result<MarkReply, Failure> {
        let server = &self.core.server;
        let time = server.time_box(self.now());
        let sent = &mut Sent::default();
        script::mark(server, &self.key, field, token, lease, time, sent).await
    }

    /// Sends any command of the client on the callers' connection.
    async fn ask(&self) {
        let locked = self.client.lock("other").is_locked().await;
        locked.expect("nothing is wrong with the server");
    }
}

impl TestMember {
    async fn start() -> Self {
        Self::with(|client| client).await
    }

    /// Starts it with these settings of the client.
    async fn with(set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        Self::on(RedisServer::start().await, set).await
    }

    async fn on(server: RedisServer, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let proxy = Proxy::start(&server).await;
        let redis = server.redis().await;
        let builder = set(Client::builder().url(proxy.url()));
        let client = until_ok(SOON, async || builder.clone().build().await).await;
        Self {
            caller: TestCaller::new(client, "l"),
            proxy,
            redis,
            server,
        }
    }

    /// A new view of the server, which may have been away.
    async fn look_again(&mut self) {
        self.redis = self.server.redis().await;
    }

    async fn server_us(&self) -> u64 {
        let (seconds, micros): (u64, u64) = self.redis.ask(&["TIME"]).await;
        seconds * 1_000_000 + micros
    }
}

impl Deref for TestMember {
    type Target = TestCaller;

    fn deref(&self) -> &TestCaller {
        &self.caller
    }
}

/// Checks only the lock.
const PLAIN: InstanceChecks = InstanceChecks {
    quarantine: None,
    register: false,
};

/// Checks the lock and its register.
const FENCED: InstanceChecks = InstanceChecks {
    quarantine: None,
    register: true,
};

/// Checks the lock, its register and the server's epoch.
fn with_quarantine(quarantine: Duration) -> InstanceChecks {
    InstanceChecks {
        quarantine: Some(quarantine),
        register: true,
    }
}

/// A quarantine that outlives every test.
const LONGEST: Duration = Duration::from_secs(120);

const EPOCH: &str = "lockdog:epoch";
const REGISTER: &str = "lockdog_token:{l}";
