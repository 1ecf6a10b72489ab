//! The small programs to start with.

use super::nested_handlers::Http;
use super::program::Program;
use crate::support::prelude::SOON;
use crate::support::{RedisServer, eventually};

async fn leaves_nothing(server: &RedisServer) {
    let redis = server.redis().await;
    redis.assert_clean().await;
    assert_eq!(redis.keys().await, [""; 0]);
}

#[tokio::test]
async fn the_plain_example_acquires_and_releases_its_lock() {
    let server = RedisServer::start().await;
    let output = Program::run("plain", &[&server.url()]).await;
    assert_eq!(output.len(), 2, "{output:#?}");
    assert!(output[0].starts_with("working, safe for "), "{output:#?}");
    assert_eq!(output[1], "done");
    leaves_nothing(&server).await;
}

#[tokio::test]
async fn a_handler_cancelled_by_a_timeout_layer_leaves_no_lock() {
    let server = RedisServer::start().await;
    let mut service = Program::start("timeout_layer", &[&server.url(), "127.0.0.1:0"]);
    let address = service.says("listening on ").await;
    let mut http = Http::connect(&address).await;
    // The work would take a hundred times its time limit.
    let (status, _) = http.post("/slow").await;
    assert_eq!(status, 408);
    // On a busy machine this work may exceed its time limit, too.
    eventually(SOON, "it works in time", async || {
        http.post("/fast").await == (200, "worked".to_owned())
    })
    .await;
    service.terminate();
    let (status, output) = service.end().await;
    assert!(status.success(), "{status}: {output:#?}");
    leaves_nothing(&server).await;
}

#[tokio::test]
async fn one_node_runs_the_job_even_if_it_ends_before_the_other_node_tries() {
    let server = RedisServer::start().await;
    let output = Program::run("scheduled_job", &[&server.url()]).await;
    assert_eq!(
        output,
        ["node 1 ran the job: true", "node 2 ran the job: false"]
    );
    let redis = server.redis().await;
    assert!(redis.exists("example:scheduled_job").await);
}

#[tokio::test]
async fn blocking_threads_exclude_each_other() {
    let server = RedisServer::start().await;
    let output = Program::run("threads", &[&server.url()]).await;
    assert_eq!(output, ["4 threads counted to 40"]);
    leaves_nothing(&server).await;
}

/// Each version is created once: no reader renews what another reader has renewed since.
#[tokio::test]
async fn readers_that_upgrade_renew_each_version_once() {
    let server = RedisServer::start().await;
    let output = Program::run("read_write_cache", &[&server.url()]).await;
    assert_eq!(output, ["8 readers saw 3 versions, renewed 3 times"]);
    leaves_nothing(&server).await;
}

#[tokio::test]
async fn the_logs_of_the_example_report_the_lost_lock() {
    let server = RedisServer::start().await;
    let output = Program::run("logging", &[&server.url()]).await;
    let is_loss = |line: &&String| {
        line.contains(" WARN lockdog::lock: lock lost ") && line.contains("reason=\"forced\"")
    };
    assert_eq!(output.iter().filter(is_loss).count(), 1, "{output:#?}");
    leaves_nothing(&server).await;
}
