//! The examples of the README, as they stand there.

use std::time::Duration;

use lockdog::{Client, Result};
use lockdog_test::Server;

/// Two hours of work under a lock.
async fn nightly_report(client: Client) -> Result<()> {
    let work = |_held| tokio::time::sleep(Duration::from_secs(7200));
    client.lock("nightly").with(work).await
}

async fn made_unless_busy(client: &Client) -> Result<bool> {
    let Some(guard) = client.lock("nightly").try_lock().await? else {
        return Ok(false);
    };
    guard.unlock().await?;
    Ok(true)
}

fn examples(page: &'static str, fence: &str) -> Vec<&'static str> {
    let rest = page.split(fence).skip(1);
    rest.filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_examples_of_the_readme_are_these() {
    let here = include_str!("readme.rs");
    let own = examples(include_str!("../../README.md"), "```rust\n");
    assert_eq!(own.len(), 4);
    // It is no doctest there: lockdog itself does not depend on its test kit.
    let library = examples(include_str!("../../../../README.md"), "```rust,ignore\n");
    assert_eq!(library.len(), 1);
    for example in own.into_iter().chain(library) {
        assert!(
            here.contains(example),
            "another one is in the README:\n{example}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_report_stops_when_its_lock_is_lost() {
    let server = Server::new();
    let job = tokio::spawn(nightly_report(server.client().await));
    tokio::time::sleep(Duration::from_secs(3600)).await; // renewed 360 times
    server.lose("nightly");
    assert!(job.await.unwrap().unwrap_err().is_lost());
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_report_is_not_made_twice() {
    let server = Server::new();
    let client = server.client().await;
    let other = server.steal("nightly");
    assert!(!made_unless_busy(&client).await.unwrap());
    drop(other); // releases it
    assert!(made_unless_busy(&client).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_report_stops_when_the_server_does() {
    let server = Server::new();
    let job = tokio::spawn(nightly_report(server.client().await));
    tokio::time::sleep(Duration::from_secs(60)).await;
    server.freeze();
    assert!(job.await.unwrap().unwrap_err().is_lost());
    server.thaw();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_too_short_is_noticed() {
    let lock = Server::new().client().await.lock("nightly");
    let guard = lock.lock().lease(Duration::from_secs(5)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await; // the work
    assert!(!guard.is_valid());
}
