//! Many holds at once: few commands, spread over the period, and no hold depends on another.

use std::time::Instant;

use lockdog::Guard;
use lockdog::error::LostReason;
use tokio::time::{sleep, timeout};

use super::{
    LEASE, PERIOD, SAFETY, builder, connected, hold_many, is_renewal, renewals, scripts_run,
};
use crate::support::{Proxy, Redis, RedisServer};

const LOCKS: usize = 1000;

#[tokio::test]
async fn a_thousand_locks_acquired_at_once_take_one_renewal_command_per_hundred_and_period() {
    let many = Many::connect().await;
    let guards = hold_many(&many.client, "at-once", LOCKS).await;
    many.count_renewals(guards).await;
}

#[tokio::test]
async fn a_thousand_locks_acquired_one_by_one_take_no_more_renewal_commands() {
    let many = Many::connect().await;
    let mut guards = Vec::new();
    for i in 0..LOCKS / 25 {
        guards.extend(hold_many(&many.client, &format!("spread:{i}"), 25).await);
        sleep(PERIOD * 25 / LOCKS as u32).await;
    }
    many.count_renewals(guards).await;
}

#[tokio::test]
async fn one_bad_entry_does_not_harm_others_of_its_batch() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connected(builder(proxy.url()).command_timeout(SAFETY)).await;
    let redis = server.redis().await;
    let mut guards = hold_many(&client, "b", 20).await;
    redis
        .cmd(&["SET", "b:3", "no hash", "PX", "60000", "XX"])
        .await;
    redis.cmd(&["DEL", "b:7"]).await;
    redis.cmd(&["HSET", "b:7", "somebody:1", "1"]).await;
    redis.cmd(&["PEXPIRE", "b:7", "60000"]).await;
    let wrong_type = guards.remove(3);
    let taken = guards.remove(6);
    let deadline = Instant::now() + wrong_type.remaining();
    let (lost, other) = timeout(SAFETY, async {
        tokio::join!(wrong_type.lost(), taken.lost())
    })
    .await
    .expect("both are notified of the loss");
    println!(
        "notified {:?} before the deadline",
        deadline - Instant::now()
    );
    assert_eq!(lost.reason(), LostReason::Deadline);
    assert_eq!(other.reason(), LostReason::NotOurs);
    let with_bad = |args: &[String]| is_renewal(args) && args.len() > 10;
    assert!(proxy.count(with_bad) > 0, "it was a batch");
    sleep(LEASE).await;
    assert!(guards.iter().all(Guard::is_valid));
    assert_eq!(redis.ask::<String>(&["GET", "b:3"]).await, "no hash");
    assert!(redis.pttl("b:7").await > 40_000);
    for guard in guards {
        guard.unlock().await.expect("it was held all the time");
    }
    drop((wrong_type, taken));
    assert_eq!(redis.hash("b:7").await["somebody:1"], "1");
    redis.assert_clean().await;
}

#[tokio::test]
async fn no_command_renews_more_than_a_hundred_names() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connected(builder(proxy.url()).command_timeout(SAFETY)).await;
    let guards = hold_many(&client, "a", 250).await;
    proxy.wait_for(is_renewal, 6).await;
    sleep(PERIOD).await;
    let names: Vec<usize> = names_per_renewal(&proxy);
    assert!(names.iter().all(|names| *names <= 100), "{names:?}");
    assert!(names.contains(&100), "{names:?}");
    assert!(guards.iter().all(Guard::is_valid));
}

struct Many {
    _server: RedisServer,
    proxy: Proxy,
    redis: Redis,
    client: lockdog::Client,
}

impl Many {
    async fn connect() -> Self {
        let server = RedisServer::start().await;
        let proxy = Proxy::start(&server).await;
        let client = connected(builder(proxy.url()).command_timeout(SAFETY)).await;
        Self {
            redis: server.redis().await,
            _server: server,
            proxy,
            client,
        }
    }

    /// Counts at the server over several periods, after a first one with large batches.
    async fn count_renewals(self, guards: Vec<Guard>) {
        let periods = 5;
        sleep(PERIOD).await;
        let (began, before) = (Instant::now(), renewals(&self.proxy));
        self.redis.reset_stats().await;
        sleep(PERIOD * periods).await;
        let commands = scripts_run(&self.redis).await as usize;
        let names = names_per_renewal(&self.proxy).split_off(before);
        let elapsed = began.elapsed();
        println!("{commands} commands in {elapsed:?}: {names:?}");
        let rounds = elapsed.as_secs_f64() / PERIOD.as_secs_f64();
        // Ten in a period would be enough, and are by the test kit's clock (`renewals` in
        // `crates/lockdog-test`). A busy machine sends some again, and wakes up between two batches.
        let most = (LOCKS as f64 / 100.0 * (rounds + 1.0) * 3.0) as usize;
        assert!(commands <= most, "{commands} commands in {rounds} periods");
        assert!(commands >= LOCKS / 100 * 2);
        assert!(guards.iter().all(Guard::is_valid));
        drop(guards);
        self.redis.assert_clean().await;
    }
}

fn names_per_renewal(proxy: &Proxy) -> Vec<usize> {
    let commands = proxy.commands();
    let renewals = commands.iter().filter(|seen| is_renewal(&seen.args));
    renewals
        .map(|seen| seen.args[2].parse().expect("the number of keys"))
        .collect()
}
