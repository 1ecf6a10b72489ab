//! Fenced locks on the test server, whose clock is tokio's.

use std::time::Duration;

use lockdog::Owner;
use lockdog_test::Server;

#[tokio::test(start_paused = true)]
async fn a_token_is_at_least_the_clock_that_the_test_moves() {
    let server = Server::new();
    let client = server.client().await;
    let lock = client.fenced_lock("stock:42");
    let lease = Duration::from_secs(60);
    let late = lock.lock().lease(lease).await.unwrap();
    let first = late.token().unwrap();
    late.lost().await;
    let next = lock.lock().owner(&Owner::new()).await.unwrap();
    let second = next.token().unwrap();
    let passed = u64::try_from((lease * 9 / 10).as_micros()).unwrap();
    assert!(second >= first + passed, "{second} comes after {first}");
    assert_eq!(late.token(), Some(first));
    next.unlock().await.unwrap();
    let from_one = client.fenced_lock_from_one("small");
    for number in 1..3 {
        let guard = from_one.lock().await.unwrap();
        assert_eq!(guard.token(), Some(number));
        guard.unlock().await.unwrap();
    }
}
