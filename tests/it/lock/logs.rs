//! Normal operation logs the start of each client, and nothing else that an operator has to read.

use lockdog::Client;
use tracing::Level;

use super::{Fixture, SOON, ms, patient, renewed, waiter};
use crate::support::{Logs, dead_port, eventually, logs, until_ok};

#[test]
fn normal_operation_logs_only_the_start_of_clients() {
    logs::alone(
        "lock::logs::normal_operation_logs_only_the_start_of_clients",
        async {
            let logs = Logs::of_this_process();
            let mut loud = Vec::new();
            // A busy machine may answer late, which is logged.
            for _ in 0..4 {
                let (before, starts) = (logs.loud().len(), logs.at_least(Level::INFO).len());
                let clients = operate_normally().await;
                loud = logs.loud().split_off(before);
                if loud.is_empty() {
                    let starts = logs.at_least(Level::INFO).split_off(starts);
                    assert_eq!(starts.len(), clients.len(), "{starts:?}");
                    for id in clients {
                        let id = format!(" client={id} ");
                        assert!(starts.iter().any(|line| line.text.contains(&id)), "{id}");
                    }
                    break;
                }
            }
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

/// Returns the ids of the clients that started.
async fn operate_normally() -> [String; 3] {
    let test = Fixture::start().await;
    let one = patient(test.server.url()).watchdog_lease(ms(6_000));
    let one = one.build().await.unwrap();
    let two = test.without_polling().await;
    let ids = [&test.client, &one, &two].map(|client| client.id().to_string());
    let guard = one.lock("l").lock().await.unwrap();
    let waiting = waiter(&two.lock("l"));
    let listens = async || test.redis.channels().await.len() == 1;
    eventually(SOON, "the waiter listens", listens).await;
    let lock = two.lock("l");
    let busy = until_ok(SOON, async || lock.try_lock().wait(ms(2_500)).await);
    assert!(busy.await.is_none());
    renewed(&[&guard]).await;
    guard.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    drop(next);
    lock.with(|_| async {}).await.unwrap();
    for client in [&one, &two, &test.client] {
        client.shutdown().await;
    }
    ids
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
