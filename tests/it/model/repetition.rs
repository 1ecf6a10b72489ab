//! From which sending of a repeated acquire its deadline counts.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockdog::Client;

use crate::support::prelude::SOON;
use crate::support::{Action, Proxy, RedisServer, named};

/// Invariant 2: a hold's deadline counts from the first sending of its acquire, whichever sending
/// was answered.
#[tokio::test]
async fn the_deadline_of_a_repeated_acquire_counts_from_the_first_sending() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(SOON);
    let client = client.build().await.unwrap();
    let lock = client.lock("repeated");
    // The script is known from here on, so that an acquire is one command.
    lock.lock().await.unwrap().unlock().await.unwrap();

    let first_seen: Arc<Mutex<Option<Instant>>> = Arc::default();
    let seen = first_seen.clone();
    let is_evalsha = named("EVALSHA");
    let cut = proxy.on(
        move |args| {
            let fits = is_evalsha(args);
            if fits {
                seen.lock().unwrap().get_or_insert_with(Instant::now);
            }
            fits
        },
        Action::ExecuteThenCut,
    );
    let loading = proxy
        .on(
            named("EVALSHA"),
            Action::ReplyWith("-LOADING wait".to_owned()),
        )
        .times(5);
    let lease = Duration::from_secs(20);
    let guard = lock.lock().lease(lease).await.unwrap();
    cut.wait_hits(1).await;
    loading.wait_hits(5).await;

    // The proxy sees a command after it was sent, and the next one is sent after that.
    let first_seen = first_seen.lock().unwrap().expect("the command was seen");
    let deadline = Instant::now() + guard.remaining();
    let latest = first_seen + lease - lease / 100 - Duration::from_millis(2);
    assert!(
        deadline <= latest,
        "{:?} too late",
        deadline.duration_since(latest)
    );
    guard.unlock().await.unwrap();
    server.redis().await.assert_clean().await;
}
