//! The semaphore whose permits have leases. PE1 to PE5 are the invariants of `docs/design.md`.

mod basics;
mod by_id;
mod catalogue;
mod cluster;
mod counts;
mod faults;
mod input;
mod leases;
mod nemesis;
mod parts;
mod replay;
mod waits;

use std::time::Duration;

use lockdog::{Client, ClientBuilder, PermitId, PermitSemaphore};

use crate::support::eventually;
use crate::support::prelude::{LONG, SOON, ms, poll_once};

/// The semaphore under test, and the number of its permits.
struct Seats {
    seats: PermitSemaphore,
    total: u32,
}

type Fixture = crate::fixture::Fixture<Seats>;

impl Fixture {
    async fn with_permits(total: u32) -> Self {
        Self::with(total, |builder| builder).await
    }

    async fn with(total: u32, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let own = |client: &Client| Seats {
            seats: client.permit_semaphore(NAME),
            total,
        };
        let test = Self::of(set, own).await;
        assert!(test.seats.try_set_permits(total).await.unwrap());
        test
    }

    /// The semaphore through a client whose waiters are woken only by messages and expiries during the
    /// test.
    async fn another(&self) -> PermitSemaphore {
        let client = self.connect(|builder| builder.poll_cap(LONG));
        client.await.permit_semaphore(NAME)
    }

    /// The number of free permits in Redis.
    async fn free(&self) -> i64 {
        self.redis.ask(&["GET", NAME]).await
    }

    /// The permits in use and when each expires, in ms since 1970.
    async fn in_use(&self) -> Vec<(PermitId, f64)> {
        let found: Vec<(Vec<u8>, f64)> = self
            .redis
            .ask(&["ZRANGE", IN_USE, "0", "-1", "WITHSCORES"])
            .await;
        let id = |bytes: Vec<u8>| PermitId::from_bytes(bytes.try_into().expect("16 bytes"));
        let in_use = found.into_iter().map(|(bytes, ends)| (id(bytes), ends));
        in_use.collect()
    }

    /// PE1: no permit is lost, and none is made.
    async fn assert_total(&self) {
        let script = "return redis.call('get', KEYS[1]) + redis.call('zcard', KEYS[2])";
        let total: i64 = self.redis.ask(&["EVAL", script, "2", NAME, IN_USE]).await;
        assert_eq!(total, i64::from(self.total));
    }

    /// Waits until all permits are free again, also those that the background releases.
    async fn eventually_free(&self) {
        eventually(SOON, "all permits are free", async || {
            self.free().await == i64::from(self.total) && self.in_use().await.is_empty()
        })
        .await;
    }

    /// The server's clock, in ms since 1970.
    async fn now(&self) -> f64 {
        let [seconds, micros]: [f64; 2] = self.redis.ask::<Vec<f64>>(&["TIME"]).await[..]
            .try_into()
            .expect("two numbers");
        seconds * 1_000.0 + micros / 1_000.0
    }

    /// Waits until a waiter is subscribed and had time for the poll that follows.
    async fn a_waiter_listens(&self) {
        eventually(SOON, "a waiter listens", async || {
            self.redis.channels().await.contains(&CHANNEL.to_owned())
        })
        .await;
        tokio::time::sleep(ms(100)).await;
    }
}

const NAME: &str = "seats";
const IN_USE: &str = "{seats}:timeout";
const CHANNEL: &str = "redisson_sc:{seats}";

/// Redisson's expiry time of a permit that never expires.
const NEVER: f64 = 922_337_203_685_477.0;

/// A lease that a busy machine can renew in time.
const LEASE: Duration = Duration::from_secs(6);
