//! The semaphore whose permits have no leases. SE1 to SE5 are the invariants of `docs/design.md`.

mod basics;
mod cancel;
mod catalogue;
mod cluster;
mod counts;
mod faults;
mod hand_over;
mod input;
mod ledger;
mod nemesis;
mod parts;
pub(crate) mod replay;
mod scripts;
mod waits;

use lockdog::{Client, ClientBuilder, Semaphore};

use crate::support::prelude::{LONG, SOON, ms, poll_once};
use crate::support::wait::becomes_true;
use crate::support::{Redis, eventually};

/// The semaphore under test, and the number of its permits.
struct Seats {
    seats: Semaphore,
    total: u32,
}

type Fixture = crate::fixture::Fixture<Seats>;

impl Fixture {
    async fn with_permits(total: u32) -> Self {
        Self::with(total, |builder| builder).await
    }

    async fn with(total: u32, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let own = |client: &Client| Seats {
            seats: client.semaphore(NAME),
            total,
        };
        let test = Self::of(set, own).await;
        assert!(test.seats.try_set_permits(total).await.unwrap());
        test
    }

    /// The semaphore through a client whose waiters are woken only by messages during the test.
    async fn another(&self) -> Semaphore {
        let client = self.connect(|builder| builder.poll_cap(LONG));
        client.await.semaphore(NAME)
    }

    /// The number of free permits in Redis.
    async fn free(&self) -> i64 {
        self.redis.ask(&["GET", NAME]).await
    }

    /// How many permits each request has, by the ledger.
    async fn shares(&self) -> Vec<u32> {
        let found: Vec<(String, f64)> = self
            .redis
            .ask(&["ZRANGEBYSCORE", LEDGER, "1", "2147483647", "WITHSCORES"])
            .await;
        let mut shares: Vec<u32> = found.into_iter().map(|(_, has)| has as u32).collect();
        shares.sort_unstable();
        shares
    }

    /// SE1: no permit is lost, and none is made.
    async fn assert_total(&self) {
        let script = "local sum = redis.call('get', KEYS[1]) \
            local found = redis.call('zrangebyscore', KEYS[2], 1, 2147483647, 'withscores') \
            for i = 2, #found, 2 do sum = sum + found[i] end return sum";
        let total: i64 = self.redis.ask(&["EVAL", script, "2", NAME, LEDGER]).await;
        assert_eq!(total, i64::from(self.total));
    }

    /// Waits until all permits are free again, also those that the background releases.
    async fn eventually_free(&self) {
        let is_free =
            async || self.free().await == i64::from(self.total) && self.shares().await.is_empty();
        if !becomes_true(SOON, is_free).await {
            let ledger: Vec<(String, f64)> = self
                .redis
                .ask(&["ZRANGE", LEDGER, "0", "-1", "WITHSCORES"])
                .await;
            panic!(
                "{} permits are free, in the ledger: {ledger:?}",
                self.free().await
            );
        }
    }

    /// Waits until this number of permits is free and these are in use, also after background releases.
    async fn eventually_shared(&self, free: i64, shares: &[u32]) {
        eventually(SOON, "a part came back", async || {
            self.free().await == free && self.shares().await == shares
        })
        .await;
    }

    /// Waits until no client holds anything, also after background releases.
    async fn eventually_without_holds(&self) {
        eventually(SOON, "nothing is held", async || {
            self.client.holds().is_empty() && self.shares().await.is_empty()
        })
        .await;
    }

    /// Waits until a waiter is subscribed and had time for the poll that follows.
    async fn somebody_waits(&self) {
        eventually(SOON, "a waiter is subscribed", async || {
            self.redis.channels().await.contains(&CHANNEL.to_owned())
        })
        .await;
        tokio::time::sleep(ms(100)).await;
    }
}

const NAME: &str = "seats";
const LEDGER: &str = "lockdog_ledger:{seats}";
const CHANNEL: &str = "redisson_sc:{seats}";
