//! Java's watchdog and ours on one server.

use std::time::{Duration, Instant};

use super::{holder, java_at, ours_at};
use crate::support::RedisServer;

#[tokio::test]
async fn each_watchdog_renews_only_its_own_locks() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let (theirs, ours) = (Duration::from_secs(6), Duration::from_secs(5));
    let java = java_at(&server).watchdog_timeout(theirs).start().await;
    let client = ours_at(&server).watchdog_lease(ours).build().await.unwrap();
    let t1 = java.thread("t1");
    let mut expected = Vec::new();
    let mut guards = Vec::new();
    for n in 0..3 {
        let (java_name, our_name) = (format!("java:{n}"), format!("ours:{n}"));
        t1.lock(&java_name).await;
        guards.push(client.lock(&our_name).lock().await.unwrap());
        for (name, lease) in [(java_name, theirs), (our_name, ours)] {
            let held = holder(&redis, &name).await.unwrap();
            expected.push((name, held, lease.as_millis() as i64));
        }
    }

    // More than a lease of either client.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(7_500) {
        for (name, held, lease) in &expected {
            assert_eq!(holder(&redis, name).await.as_ref(), Some(held), "{name}");
            let ttl = redis.pttl(name).await;
            assert!((1..=*lease).contains(&ttl), "{name} has {ttl} ms left");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    for n in 0..3 {
        assert!(
            client
                .lock(format!("java:{n}"))
                .try_lock()
                .await
                .unwrap()
                .is_none()
        );
        assert!(!t1.try_lock(&format!("ours:{n}")).await);
        t1.unlock(&format!("java:{n}")).await.unwrap();
    }
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    redis.eventually_empty().await;
    redis.assert_clean().await;
}
