//! The shutdown of a client whose server refuses its commands.

use std::time::Duration;

use lockdog::Error;

use super::SOON;
use crate::fixture::patient;
use crate::support::{Proxy, RedisServer, eventually, timed};
use crate::turn::refusal;

#[tokio::test]
async fn a_client_that_is_refused_without_replicas_shuts_down_quickly() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = patient(server.url()).build().await.unwrap();
    let guard = client.lock("held").lock().await.unwrap();
    redis
        .cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .await;
    let error = refusal(&client.lock("l")).await;
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "NOREPLICAS"),
        "{error}"
    );
    let (report, took) = timed(client.shutdown()).await;
    // `held` is still held and `l` is not. The outcome of an unanswered attempt is unknown.
    assert!(
        report.released == 0 && report.unconfirmed >= 1,
        "{report:?}"
    );
    assert!(redis.exists("held").await && !redis.exists("l").await);
    assert!(took < PATIENCE, "{took:?}");
    drop(guard);
}

#[tokio::test]
async fn a_client_with_an_invalidated_password_shuts_down_quickly() {
    let server = RedisServer::builder().password("before").start().await;
    let redis = server.redis().await;
    let proxy = Proxy::start(&server).await;
    let client = patient(proxy.url().to_owned()).build().await.unwrap();
    let guard = client.lock("held").lock().await.unwrap();
    redis.cmd(&["CONFIG", "SET", "requirepass", "after"]).await;
    assert!(proxy.cut_all() >= 1);
    eventually(SOON, "all are gone", async || proxy.connections() == 0).await;
    let error = refusal(&client.lock("l")).await;
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"),
        "{error}"
    );
    let (report, took) = timed(client.shutdown()).await;
    // `held`, and `l` for each acquire that was not answered.
    assert!(
        report.released == 0 && report.unconfirmed >= 1,
        "{report:?}"
    );
    assert!(took < PATIENCE, "{took:?}");
    drop(guard);
}

/// Two command timeouts: the shutdown waits this long for a silent server.
const PATIENCE: Duration = Duration::from_secs(20);
