//! Normal operation logs the start of each client, and nothing else that an operator has to read.

use lockdog::Client;
use tracing::Level;

use super::{Fixture, SOON, ms, renewed, waiter};
use crate::support::{Logs, dead_port, eventually, logs};

#[test]
fn normal_operation_logs_only_the_start_of_clients() {
    logs::alone(
        "lock::logs::normal_operation_logs_only_the_start_of_clients",
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
            let loud = logs.loud();
            assert!(loud.is_empty(), "{loud:?}");
            let starts = logs.at_least(Level::INFO);
            assert_eq!(starts.len(), 3, "{starts:?}");
            for client in [&test.client, &one, &two] {
                let id = format!(" client={} ", client.id());
                assert!(starts.iter().any(|line| line.text.contains(&id)), "{id}");
            }
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

/// The first three do not connect, because they are lazy.
#[tokio::test]
async fn a_client_logs_its_start_once_and_without_its_user_and_password() {
    let (logs, _recording) = Logs::of_this_thread();
    let started = || {
        let mut lines = logs.at_least(Level::INFO);
        lines.retain(|line| line.text.contains("client started"));
        lines
    };
    for (number, (url, deployment, server)) in [
        ("redis://ann:hunter2@127.0.0.1:1/3", "server", "127.0.0.1:1"),
        (
            "redis+sentinel://ann:hunter2@127.0.0.1:1/orders",
            "sentinel",
            "sentinel master orders",
        ),
        (
            "redis+cluster://ann:hunter2@127.0.0.1:1,127.0.0.1:2",
            "cluster",
            "cluster 127.0.0.1:1,127.0.0.1:2",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let client = Client::builder().url(url).lazy(true).build().await;
        let client = client.unwrap();
        let lines = started();
        assert_eq!(lines.len(), number + 1, "{lines:?}");
        let line = &lines[number];
        assert_eq!(
            (line.level, &*line.target),
            (Level::INFO, "lockdog::client")
        );
        for part in [
            format!(" client={}", client.id()),
            format!(" version=\"{}\"", env!("CARGO_PKG_VERSION")),
            format!(" deployment=\"{deployment}\""),
            format!(" server=\"{server}\""),
        ] {
            assert!(line.text.contains(&part), "{part}: {line:?}");
        }
        for secret in ["ann", "hunter2"] {
            assert!(!line.text.contains(secret), "{line:?}");
        }
    }
    // A client that cannot connect does not start.
    let nowhere = Client::builder().url(format!("redis://127.0.0.1:{}", dead_port()));
    nowhere.command_timeout(ms(300)).build().await.unwrap_err();
    assert_eq!(started().len(), 3);
}
