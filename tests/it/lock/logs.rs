//! Normal operation logs nothing that an operator has to read.

use lockdog::Client;
use tracing::Level;

use super::{Fixture, SOON, ms, renewed, waiter};
use crate::support::{Logs, eventually, logs};

#[test]
fn normal_operation_logs_nothing_at_info_or_above() {
    logs::alone(
        "lock::logs::normal_operation_logs_nothing_at_info_or_above",
        async {
            let logs = Logs::of_this_process();
            let test = Fixture::start().await;
            let one = Client::builder()
                .url(test.server.url())
                .watchdog_lease(ms(6_000))
                .build()
                .await
                .unwrap();
            let two = test.without_polling().await;
            let guard = one.lock("l").lock().await.unwrap();
            let waiting = waiter(&two.lock("l"));
            let listens = async || test.redis.channels().await.len() == 1;
            eventually(SOON, "the waiter listens", listens).await;
            assert!(
                two.lock("l")
                    .try_lock()
                    .wait(ms(2_500))
                    .await
                    .unwrap()
                    .is_none()
            );
            renewed(&[&guard]).await;
            guard.unlock().await.unwrap();
            let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
            drop(next);
            two.lock("l").with(|_| async {}).await.unwrap();
            one.shutdown().await;
            two.shutdown().await;
            let loud = logs.at_least(Level::INFO);
            assert!(loud.is_empty(), "{loud:?}");
            // The recorder receives the span of every acquire, and its outcome.
            let spans: Vec<_> = logs.at_least(Level::DEBUG);
            let has = |part: &str| spans.iter().any(|line| line.text.contains(part));
            assert!(has("acquire lock=\"l\" owner="), "{spans:?}");
            assert!(
                has("acquire lockdog.outcome=\"acquired\"")
                    && has("acquire lockdog.outcome=\"busy\"")
            );
            assert!(has("acquire lockdog.waited_ms="));
        },
    );
}
