//! A watchdog that fails from within keeps nobody in the dark.

use lockdog::LostReason;
use tracing::span;

use super::{SAFETY, connect};
use crate::support::{RedisServer, logs};

/// Design: invariant 11. The user's subscriber panics at the first event of a lost lock, on the
/// watchdog's thread, and again when the panic itself is reported.
#[test]
fn a_panic_of_the_watchdog_is_told_to_every_guard() {
    logs::alone(
        "watchdog::panics::a_panic_of_the_watchdog_is_told_to_every_guard",
        async {
            tracing::subscriber::set_global_default(Panicking).expect("it is the only one");
            let server = RedisServer::start().await;
            let redis = server.redis().await;
            let client = connect(&server.url()).await;
            let kept = client.lock("kept").lock().await.unwrap();
            let deleted = client.lock("deleted").lock().await.unwrap();
            let token = kept.lost_token();
            redis.cmd(&["DEL", "deleted"]).await;
            tokio::time::timeout(SAFETY, token.cancelled())
                .await
                .expect("the guard is told");
            assert!(!kept.is_valid());
            assert_eq!(kept.lost().await.reason(), LostReason::Watchdog);
            assert_eq!(deleted.lost().await.reason(), LostReason::NotOurs);
            // The loop goes on: what the guards leave is released, and locks are kept again.
            drop((kept, deleted));
            let again = tokio::time::timeout(SAFETY, client.lock("kept").lock().into_future())
                .await
                .expect("it is free")
                .unwrap();
            tokio::time::sleep(super::LEASE * 2).await;
            assert!(again.is_valid());
        },
    );
}

struct Panicking;

impl tracing::Subscriber for Panicking {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        panic!("the subscriber panics");
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
