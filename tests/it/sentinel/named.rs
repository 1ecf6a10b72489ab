//! The server that an error names: the queried master, independent of its name at the sentinels.

use lockdog::{Client, Error, Owner};

use super::{SOON, ms};
use crate::support::sentinels::MASTER;
use crate::support::{RedisServer, Sentinels, eventually, until_ok};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_names_the_master_that_was_asked_before_and_after_a_switch() {
    let all = Sentinels::start().await;
    let old = &all.servers[0];
    old.redis().await.cmd(&["SET", "wrong", "text"]).await;
    let client = Client::builder().url(all.url()).command_timeout(ms(2000));
    let client = until_ok(SOON, async || client.clone().build().await).await;
    eventually(SOON, "the master refuses it", async || {
        // On a busy machine an attempt may end before the answer comes.
        let error = failure(&client, "wrong").await;
        matches!(error, Error::Refused { .. }) && names(&error, old)
    })
    .await;
    let new = all.failover().await;
    eventually(SOON, "the new master is asked", async || {
        // An attempt that is still connecting names no server.
        let error = failure(&client, "wrong").await;
        assert!(!names(&error, old) || !names(&error, new), "{error}");
        matches!(error, Error::Refused { .. }) && names(&error, new)
    })
    .await;

    // It stays the master for the rest of the test.
    for sentinel in &all.sentinels {
        let (what, value) = ("down-after-milliseconds", "600000");
        let redis = sentinel.redis().await;
        redis.cmd(&["SENTINEL", "SET", MASTER, what, value]).await;
    }
    new.pause();
    eventually(SOON, "the attempt is not answered", async || {
        let error = failure(&client, "l").await;
        // On a busy machine the client may just open a connection, which has no server to name.
        let is_connecting = error.to_string().contains("no connection in time");
        is_connecting || error.is_timeout() && names(&error, new)
    })
    .await;
    new.kill();
    eventually(SOON, "it cannot be connected to", async || {
        let error = failure(&client, "l").await;
        matches!(error, Error::Unavailable { .. }) && names(&error, new)
    })
    .await;
    client.shutdown().await;
}

async fn failure(client: &Client, name: &str) -> Error {
    let tried = client.lock(name).try_lock().owner(&Owner::new()).await;
    tried.expect_err("no server grants it")
}

fn names(error: &Error, server: &RedisServer) -> bool {
    error
        .to_string()
        .contains(&format!("127.0.0.1:{}", server.port()))
}
