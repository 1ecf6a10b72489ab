//! Releases that the server does not answer.

use std::time::Duration;

use lockdog::Error;
use lockdog_test::Server;
use tokio::time::sleep;

use crate::support::locks::Fixture;
use crate::support::logs::Warnings;

const TEXT: &str = "a lock could not be released yet";

#[tokio::test(start_paused = true)]
async fn a_release_of_a_dropped_guard_that_takes_over_a_second_logs_one_warning() {
    let server = Server::new();
    let client = server.client().await;
    let lock = client.lock("orders");
    let (warnings, _recording) = Warnings::of_this_thread();
    let guard = lock.lock().lease(Duration::from_secs(60)).await.unwrap();
    server.refuse("evalsha", "LOADING the dataset is in memory", 1_000);
    drop(guard);
    sleep(Duration::from_millis(900)).await;
    assert_eq!(warnings.with(TEXT), [""; 0]);
    sleep(Duration::from_secs(10)).await;
    let logged = warnings.with(TEXT);
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].starts_with("lockdog::lock "), "{logged:?}");
    assert!(
        logged[0].contains("LOADING") && logged[0].contains("lock.hash="),
        "{logged:?}"
    );
    server.refuse("evalsha", "-", 0);
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_unlock_of_any_shape_reports_the_cause_and_the_duration() {
    for fixture in Fixture::each().await {
        let guard = fixture.lock().await.unwrap();
        // A background acquire of the third server of a quorum ends.
        sleep(Duration::from_secs(1)).await;
        fixture.servers.iter().for_each(Server::freeze);
        let error = guard.unlock().await.unwrap_err();
        let Error::UnlockUnconfirmed(unlock) = &error else {
            panic!("{error}")
        };
        assert_eq!(unlock.waited(), Duration::from_secs(3));
        let text = error.to_string();
        let wanted = "the server did not confirm the unlock: lock=\"orders\" waited=3000ms; ";
        let is_whole = unlock.lock() != "orders";
        assert!(text.starts_with(wanted) || is_whole, "{text}");
        assert!(text.contains(" waited=3000ms; "), "{text}");
        // Of several, each server with what it did not answer.
        assert!(
            text.matches("no answer").count() == fixture.servers.len(),
            "{text}"
        );
        fixture.servers.iter().for_each(Server::thaw);
        for server in &fixture.servers {
            server.assert_clean().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_long_after_an_inner_unlock_is_released_by_one_command() {
    let server = Server::new();
    let lock = server.client().await.lock("orders");
    // From now on the server has the script of the release.
    drop(lock.lock().await.unwrap());
    server.assert_clean().await;
    let outer = lock.lock().await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    // Longer than an unlock may take before it counts as slow.
    sleep(Duration::from_secs(2)).await;
    let sent = || {
        let commands = server.commands();
        let is_script = |command: &&Vec<String>| command[0].to_lowercase().starts_with("eval");
        commands.iter().filter(is_script).count()
    };
    let before = sent();
    server.delay(Duration::from_millis(500));
    drop(outer);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.holder("orders"), None);
    assert_eq!(sent() - before, 1);
}
