//! Every guard is notified when the watchdog panics.

use lockdog::error::LostReason;

use super::{SAFETY, connect};
use crate::support::{RedisServer, eventually, logs};

/// Design: invariant 11. The user's subscriber panics at the first event of a lost lock, on the
/// watchdog's thread, and again when the panic itself is reported.
#[test]
fn a_panic_of_the_watchdog_is_reported_to_every_guard() {
    logs::alone(
        "watchdog::panics::a_panic_of_the_watchdog_is_reported_to_every_guard",
        async {
            tracing::subscriber::set_global_default(logs::Panicking).expect("it is the only one");
            let server = RedisServer::start().await;
            let redis = server.redis().await;
            let client = connect(&server.url()).await;
            let kept = client.lock("kept").lock().await.unwrap();
            let deleted = client.lock("deleted").lock().await.unwrap();
            let token = kept.lost_token();
            redis.cmd(&["DEL", "deleted"]).await;
            tokio::time::timeout(SAFETY, token.cancelled())
                .await
                .expect("the guard is notified of the loss");
            assert!(!kept.is_valid());
            assert_eq!(kept.lost().await.reason(), LostReason::Watchdog);
            assert_eq!(deleted.lost().await.reason(), LostReason::NotOurs);
            // The watchdog continues: it releases the locks of the guards and renews new ones.
            drop((kept, deleted));
            let again = tokio::time::timeout(SAFETY, client.lock("kept").lock().into_future())
                .await
                .expect("it is free")
                .unwrap();
            tokio::time::sleep(super::OUTLAST).await;
            assert!(again.is_valid());
        },
    );
}

/// The tasks of the client's thread are no part of the loop that panicked.
#[test]
fn a_panic_of_the_watchdog_ends_no_wait_for_a_latch() {
    logs::alone(
        "watchdog::panics::a_panic_of_the_watchdog_ends_no_wait_for_a_latch",
        async {
            tracing::subscriber::set_global_default(logs::Panicking).expect("it is the only one");
            let server = RedisServer::start().await;
            let redis = server.redis().await;
            let client = connect(&server.url()).await;
            let start = client.count_down_latch("start");
            assert!(start.try_set_count(1).await.unwrap());
            let theirs = start.clone();
            let waiting = tokio::spawn(async move { theirs.wait_zero().await });
            eventually(SAFETY, "it listens", async || {
                !redis.channels().await.is_empty()
            })
            .await;
            let kept = client.lock("kept").lock().await.unwrap();
            let _deleted = client.lock("deleted").lock().await.unwrap();
            redis.cmd(&["DEL", "deleted"]).await;
            let lost = tokio::time::timeout(SAFETY, kept.lost()).await;
            assert_eq!(
                lost.expect("the watchdog panics").reason(),
                LostReason::Watchdog
            );
            start.count_down().await.unwrap();
            let ended = tokio::time::timeout(SAFETY, waiting).await;
            ended.expect("the queries go on").unwrap().unwrap();
        },
    );
}
