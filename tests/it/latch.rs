//! The count-down latch. CL1 to CL4 are the invariants of `docs/design.md`.

mod basics;
mod cluster;
mod faults;
mod nemesis;
pub(crate) mod replay;
mod waits;

use lockdog::{Client, ClientBuilder, CountDownLatch};

use crate::support::prelude::{LONG, SOON, ms, poll_once};
use crate::support::{Redis, RedisServer, eventually};

/// A server, one client with a latch, and the test's own connection.
struct Fixture {
    server: RedisServer,
    redis: Redis,
    client: Client,
    start: CountDownLatch,
}

impl Fixture {
    /// `count` is that of the latch, if it has one.
    async fn of(count: Option<i64>) -> Self {
        let server = RedisServer::start().await;
        let redis = server.redis().await;
        let client = Client::connect(server.url()).await.expect("it runs");
        let start = client.count_down_latch(NAME);
        if let Some(count) = count {
            assert!(start.try_set_count(count).await.unwrap());
        }
        Self {
            server,
            redis,
            client,
            start,
        }
    }

    /// The latch as seen by a client whose waiters only messages wake while the test lasts.
    async fn another(&self) -> CountDownLatch {
        self.with(|builder| builder.poll_cap(LONG)).await
    }

    async fn with(&self, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> CountDownLatch {
        let client = set(Client::builder().url(self.server.url()));
        let client = client.build().await.expect("it runs");
        client.count_down_latch(NAME)
    }

    /// Waits until a waiter is subscribed, and a while longer for its next query.
    async fn somebody_waits(&self) {
        eventually(SOON, "a waiter is subscribed", async || {
            self.redis.channels().await.contains(&CHANNEL.to_owned())
        })
        .await;
        tokio::time::sleep(ms(100)).await;
    }
}

const NAME: &str = "start";
const CHANNEL: &str = "redisson_countdownlatch__channel__{start}";
