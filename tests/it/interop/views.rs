//! What each side sees of the other's locks.

use std::time::Duration;

use lockdog::report::Ttl;
use lockdog::{Client, Error, Owner, Unlocked};

use super::{holder, without_timers};
use crate::support::RedisServer;
use crate::support::redisson::Redisson;

#[tokio::test]
async fn java_sees_a_reentrant_lockdog_hold_as_one_field_with_its_count() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let client = Client::connect(server.url()).await.unwrap();
    let (t1, lock) = (java.thread("t1"), client.lock("orders"));
    assert!(!t1.is_locked("orders").await);

    let mut guards = Vec::new();
    for count in 1..=3 {
        guards.push(lock.lock().await.unwrap());
        let (field, seen) = holder(&redis, "orders").await.unwrap();
        assert!(field.starts_with(&format!("{}:", client.id())), "{field}");
        assert_eq!(seen, count.to_string());
    }
    assert!(t1.is_locked("orders").await);
    assert!(!t1.is_held("orders").await);
    assert_eq!(t1.hold_count("orders").await, 0);
    assert!(!t1.try_lock("orders").await);
    assert!(t1.unlock("orders").await.unwrap_err().is_not_owner());

    for count in [2, 1] {
        let unlocked = guards.pop().unwrap().unlock().await.unwrap();
        assert_eq!(unlocked, Unlocked::StillHeld { count });
        let (_, seen) = holder(&redis, "orders").await.unwrap();
        assert_eq!(seen, count.to_string());
        assert!(t1.is_locked("orders").await);
    }
    let unlocked = guards.pop().unwrap().unlock().await.unwrap();
    assert_eq!(unlocked, Unlocked::Released);
    assert!(!t1.is_locked("orders").await);
    assert!(t1.try_lock("orders").await);
    t1.unlock("orders").await.unwrap();
    redis.assert_clean().await;
}

#[tokio::test]
async fn lockdog_sees_a_reentrant_java_hold_with_its_field_and_count() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let client = Client::connect(server.url()).await.unwrap();
    let (t1, lock) = (java.thread("t1"), client.lock("orders"));
    assert!(lock.holder().await.unwrap().is_none());

    for count in 1..=3 {
        t1.lock("orders").await;
        let seen = lock.holder().await.unwrap().unwrap();
        assert_eq!(
            (seen.field().to_owned(), seen.count),
            (t1.field().await, count)
        );
        assert!(!seen.ours);
        assert!(matches!(seen.ttl, Ttl::Expires(ttl) if ttl <= Duration::from_secs(30)));
    }
    assert!(lock.is_locked().await.unwrap());
    assert!(!lock.is_held().await.unwrap());
    assert_eq!(lock.hold_count().await.unwrap(), 0);
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(matches!(lock.unlock().await, Err(Error::NotHeld(_))));

    for count in [2, 1] {
        t1.unlock("orders").await.unwrap();
        let seen = lock.holder().await.unwrap().unwrap();
        assert_eq!(seen.count, count);
        assert!(lock.is_locked().await.unwrap());
    }
    t1.unlock("orders").await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    assert!(lock.holder().await.unwrap().is_none());
    let guard = lock.try_lock().await.unwrap().expect("it is free");
    guard.unlock().await.unwrap();
    redis.assert_clean().await;
}

#[tokio::test]
async fn both_sides_see_the_same_ttl() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let client = without_timers(&server).build().await.unwrap();
    let (t1, lock) = (java.thread("t1"), client.lock("orders"));
    let ours = async || match lock.remaining_ttl().await.unwrap() {
        None => -2,
        Some(Ttl::Persistent) => -1,
        Some(Ttl::Expires(ttl)) => ttl.as_millis() as i64,
    };
    assert_eq!(
        (ours().await, t1.remaining_ttl_ms("orders").await),
        (-2, -2)
    );

    for lease in [20_000, 50_000] {
        t1.lock_for("orders", Duration::from_millis(lease)).await;
        // Asked one after the other, a TTL can only have fallen.
        let seen = [
            ours().await,
            t1.remaining_ttl_ms("orders").await,
            ours().await,
        ];
        assert!(seen.is_sorted_by(|a, b| a >= b), "{seen:?}");
        let lease = lease as i64;
        assert!(
            seen[0] <= lease && seen[2] > lease - 15_000,
            "{seen:?} of {lease}"
        );
        t1.unlock("orders").await.unwrap();

        let lease = Duration::from_millis(lease as u64);
        let guard = lock.lock().lease(lease).await.unwrap();
        let seen = [
            ours().await,
            t1.remaining_ttl_ms("orders").await,
            ours().await,
        ];
        assert!(seen.is_sorted_by(|a, b| a >= b), "{seen:?}");
        let lease = lease.as_millis() as i64;
        assert!(
            seen[0] <= lease && seen[2] > lease - 15_000,
            "{seen:?} of {lease}"
        );
        guard.unlock().await.unwrap();
    }

    let guard = lock.lock().await.unwrap();
    redis.cmd(&["PERSIST", "orders"]).await;
    assert_eq!(
        (ours().await, t1.remaining_ttl_ms("orders").await),
        (-1, -1)
    );
    guard.unlock().await.unwrap();
    assert_eq!(
        (ours().await, t1.remaining_ttl_ms("orders").await),
        (-2, -2)
    );
    redis.assert_clean().await;
}

/// Java's thread 1 and our owner 1 are two.
#[tokio::test]
async fn a_lockdog_owner_with_the_number_of_a_java_thread_does_not_reenter_its_hold() {
    let server = RedisServer::start().await;
    let java = Redisson::start(&server.url()).await;
    let client = Client::connect(server.url()).await.unwrap();
    let (t1, lock) = (java.thread("t1"), client.lock("orders"));
    t1.lock("orders").await;

    let field = t1.field().await;
    let id = field.rsplit_once(':').unwrap().1.parse().unwrap();
    let owner = Owner::from_id(id);

    assert!(lock.try_lock().owner(&owner).await.unwrap().is_none());
    assert!(!lock.is_held_by(&owner).await.unwrap());
    assert!(lock.unlock().owner(&owner).await.is_err());
    assert!(t1.is_held("orders").await);
    t1.unlock("orders").await.unwrap();

    let guard = lock.lock().owner(&owner).await.unwrap();
    assert!(!t1.try_lock("orders").await);
    assert!(!t1.is_held("orders").await);
    guard.unlock().await.unwrap();
}
