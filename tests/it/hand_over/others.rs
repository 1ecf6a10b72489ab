//! Other clients see a handed-over lock as a held lock.

use lockdog::{Client, Owner};

use super::{LONG, SOON, ms};
use crate::support::RedisServer;
use crate::support::redisson::Redisson;

/// Redisson sees one field of a lockdog owner and a TTL.
#[tokio::test]
async fn redisson_sees_a_handed_over_lock_as_held() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let thread = java.thread("t");
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("l");
    let mut held = lock.lock().owner(&Owner::new()).await.unwrap();
    let mut fields = Vec::new();
    for lease in [LONG, SOON, LONG * 2] {
        let next = lock.lock().lease(lease).owner(&Owner::new());
        let next = tokio::spawn(next.into_future());
        tokio::task::yield_now().await;
        held.unlock().await.unwrap();
        held = tokio::time::timeout(SOON, next)
            .await
            .unwrap()
            .unwrap()
            .unwrap();

        assert!(thread.is_locked("l").await);
        assert!(!thread.is_held("l").await && !thread.try_lock("l").await);
        let left = thread.remaining_ttl_ms("l").await;
        let lease = lease.as_millis() as i64;
        assert!(
            left <= lease && left > lease - SOON.as_millis() as i64,
            "{left}"
        );
        let hash = redis.hash("l").await;
        assert_eq!(hash.values().collect::<Vec<_>>(), ["1"]);
        let field = hash.into_keys().next().unwrap();
        assert!(field.starts_with(&client.id().to_string()), "{field}");
        assert!(!fields.contains(&field));
        fields.push(field);
        assert!(thread.unlock("l").await.unwrap_err().is_not_owner());
    }
    // A Java thread waits for it and gets it as after any release.
    let waiting = thread.start_lock_for("l", LONG);
    tokio::time::sleep(ms(300)).await;
    held.unlock().await.unwrap();
    tokio::time::timeout(SOON, waiting.value()).await.unwrap();
    thread.unlock("l").await.unwrap();
    redis.assert_clean().await;
    assert!(redis.keys().await.is_empty());
}
