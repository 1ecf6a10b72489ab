//! The count-down latch. CL1 to CL4 are the invariants of `docs/design.md`.

mod basics;
mod cluster;
mod faults;
mod nemesis;
pub(crate) mod replay;
mod waits;

use lockdog::{Client, ClientBuilder, CountDownLatch};

use crate::support::eventually;
use crate::support::prelude::{LONG, SOON, ms, poll_once};

/// The latch under test.
struct Start {
    start: CountDownLatch,
}

type Fixture = crate::fixture::Fixture<Start>;

impl Fixture {
    /// `count` is that of the latch, if it has one.
    async fn with_count(count: Option<i64>) -> Self {
        let own = |client: &Client| Start {
            start: client.count_down_latch(NAME),
        };
        let test = Self::of(|builder| builder, own).await;
        if let Some(count) = count {
            assert!(test.start.try_set_count(count).await.unwrap());
        }
        test
    }

    /// The latch as seen by a client whose waiters only messages wake while the test lasts.
    async fn another(&self) -> CountDownLatch {
        self.with(|builder| builder.poll_cap(LONG)).await
    }

    async fn with(&self, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> CountDownLatch {
        self.connect(set).await.count_down_latch(NAME)
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
