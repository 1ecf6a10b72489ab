//! A lost lock is reported in time, with its reason.

use std::time::Instant;

use lockdog::Client;
use lockdog::error::LostReason;

use super::{SOON, ms, through};
use crate::support::{Action, Direction, Proxy, RedisServer, until_ok};
use crate::turn::answered;

#[tokio::test]
async fn hanging_renewals_do_not_delay_a_lost_token() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = through(&proxy).command_timeout(ms(10_000));
    let client = client.watchdog_lease(ms(6000)).build().await;
    let client = client.unwrap();
    let mut crowd = Vec::new();
    for i in 0..1900 {
        crowd.push(client.lock(format!("l{i}")).lock().await.unwrap());
    }
    let start = crowd[0].remaining();
    // While sixteen batches hang, from about a third of the first lease to two thirds.
    let mut watchers = Vec::new();
    for past in [2700, 3000, 3300, 3600] {
        let lease = start.saturating_sub(ms(6000 - past)).max(ms(500));
        let lock = client.lock(format!("f{past}"));
        // On a busy machine the answer may come after a short lease.
        let guard = until_ok(SOON, async || lock.lock().lease(lease).await).await;
        let deadline = Instant::now() + guard.remaining();
        watchers.push(tokio::spawn(async move {
            guard.lost_token().cancelled().await;
            deadline.elapsed()
        }));
    }
    proxy.blackhole(Direction::ToServer);
    for watcher in watchers {
        let late = watcher.await.unwrap();
        // A batch that hangs would take a command timeout.
        assert!(late < ms(8_000), "notified {late:?} after the deadline");
    }
    assert!(proxy.counts().blackholed > 0);
    proxy.heal();
}

#[tokio::test]
async fn max_hold_is_named_as_the_reason_of_its_loss() {
    let server = RedisServer::start().await;
    let client = Client::builder()
        .url(server.url())
        .watchdog_lease(ms(4_800))
        .build()
        .await
        .unwrap();
    for max_hold in [2_000, 6_400] {
        let lock = client.lock("l");
        // On a busy machine the answer may come after a short bound.
        let guard = answered(async || lock.lock().max_hold(ms(max_hold)).await).await;
        let lost = guard.lost().await;
        assert_eq!(lost.reason(), LostReason::MaxHold, "{lost}");
    }
}

#[tokio::test]
async fn a_settlement_that_hangs_in_connecting_delays_no_renewal_beyond_its_lease() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = through(&proxy)
        .watchdog_lease(ms(6000))
        .command_timeout(ms(10_000))
        .build()
        .await
        .unwrap();
    let guard = client.lock("l").lock().await.unwrap();
    let dropped = client.lock("dropped").lock().await.unwrap();
    let is_id = |args: &[String]| args[0] == "CLIENT" && args[1] == "ID";
    let rule = proxy.on(is_id, Action::DropReply);
    // Its settlement is the first to open the background's connection.
    drop(dropped);
    tokio::time::sleep(ms(8000)).await;
    assert_eq!(rule.hits(), 1);
    assert!(guard.is_valid());
}
