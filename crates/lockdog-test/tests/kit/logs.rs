//! The names of locks in logs.

use std::time::Duration;

use lockdog::report::lock_hash;
use lockdog_test::Server;
use tokio::time::sleep;

use crate::support::logs::Warnings;

/// The warning of a client with these settings about the loss of a lock with this name.
async fn warning(log_names: bool, name: &str) -> String {
    let server = Server::new();
    let client = server
        .builder()
        .name_mapper(|name| format!("app:{name}"))
        .log_names(log_names)
        .build()
        .await
        .unwrap();
    let lock = client.lock(name);
    assert_eq!(lock.hash(), lock_hash(&format!("app:{name}")));
    let (warnings, _recording) = Warnings::of_this_thread();
    let guard = lock.lock().await.unwrap();
    server.lose(&format!("app:{name}"));
    guard.lost().await;
    sleep(Duration::from_secs(1)).await;
    let mut warning = warnings.with("lock lost");
    assert_eq!(warning.len(), 1, "{warning:?}");
    warning.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_warning_names_its_lock_by_the_hash_of_its_key() {
    let line = warning(false, "orders").await;
    // printf %s app:orders | sha1sum
    assert!(line.contains("lock.hash=c306687e0a6894a9"), "{line}");
    assert!(!line.contains("orders"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_logs_names_has_them_beside_the_hash() {
    let line = warning(true, "orders").await;
    assert!(line.contains(" lock=\"orders\" lock.hash="), "{line}");
}
