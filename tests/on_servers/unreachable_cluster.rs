//! A cluster without an answering node.

use std::time::Instant;

use tokio::net::TcpListener;

use super::{TestCaller, ms};
use crate::client::Client;

/// All callers share one query, and none waits longer than its own time limit.
#[tokio::test]
async fn callers_that_share_the_first_cluster_query_keep_their_own_timeouts() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let client = Client::builder()
        .url(format!("redis+cluster://{address}"))
        .lazy(true)
        .build()
        .await
        .unwrap();
    let caller = TestCaller::new(client, "l");
    let began = Instant::now();
    let calls = (0..12).map(|number| {
        let lock = caller.client.lock(format!("l{number}"));
        async move { lock.try_lock().wait(ms(1000)).await }
    });
    for answer in futures_util::future::join_all(calls).await {
        let error = answer.expect_err("no server answers");
        assert!(error.is_retriable(), "{error}");
    }
    // Far less than the sum of all their time limits.
    let took = began.elapsed();
    assert!(took < ms(9000), "{took:?}");
}
