//! How each side sees the other's locks: first the plain lock, then each kind.

use std::time::Duration;

use lockdog::report::Ttl;
use lockdog::{Error, Owner, Unlocked};

use super::{NEVER, holder, java_at, ours_at, without_timers};
use crate::kinds;
use crate::support::RedisServer;

#[tokio::test]
async fn java_sees_a_reentrant_lockdog_hold_as_one_field_with_its_count() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let client = ours_at(&server).build().await.unwrap();
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
    let java = java_at(&server).start().await;
    let client = ours_at(&server).build().await.unwrap();
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
    let java = java_at(&server).start().await;
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
        // Two queries in a row: a TTL can only have fallen.
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

/// Java's thread 1 and our owner 1 are different owners.
#[tokio::test]
async fn a_lockdog_owner_with_the_number_of_a_java_thread_does_not_reenter_its_hold() {
    let server = RedisServer::start().await;
    let java = java_at(&server).start().await;
    let client = ours_at(&server).build().await.unwrap();
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

mod of_every_kind {
    use super::*;

    #[tokio::test]
    async fn java_reads_the_counts_and_ttls_of_lockdog_holds() {
        let server = RedisServer::start().await;
        let java = java_at(&server).start().await;
        let client = without_timers(&server).build().await.unwrap();
        let t1 = java.thread("t1");
        for kind in kinds::ALL {
            let name = kind.object;
            let (ours, theirs) = (kind.lock(&client, name), kind.java_lock(name));
            assert!(!t1.is_locked(&theirs).await, "{name}");
            let mut guards = Vec::new();
            for count in 1..=deepest(kind) {
                guards.push(ours.lock().lease(NEVER).await.unwrap());
                assert_eq!(ours.hold_count().await.unwrap(), count, "{name}");
                assert!(t1.is_locked(&theirs).await, "{name}");
                assert!(!t1.is_held(&theirs).await, "{name}");
                if reports_counts(kind) {
                    assert_eq!(t1.hold_count(&theirs).await, 0, "{name}");
                }
            }
            if reports_counts(kind) {
                let ttl = t1.remaining_ttl_ms(&theirs).await;
                let longest = NEVER.as_millis() as i64;
                assert!((longest / 2..=longest).contains(&ttl), "{name}: {ttl}");
            }
            assert!(!t1.try_lock(&theirs).await, "{name}");
            let refused = t1.unlock(&theirs).await.unwrap_err();
            assert!(refused.is_not_owner(), "{name}: {refused:?}");
            while let Some(guard) = guards.pop() {
                assert!(t1.is_locked(&theirs).await, "{name}");
                guard.unlock().await.unwrap();
            }
            assert!(!t1.is_locked(&theirs).await, "{name}");
            assert!(t1.try_lock(&theirs).await, "{name}");
            t1.unlock(&theirs).await.unwrap();
        }
        server.redis().await.assert_clean().await;
    }

    #[tokio::test]
    async fn lockdog_reads_the_counts_and_ttls_of_java_holds() {
        let server = RedisServer::start().await;
        let java = java_at(&server).start().await;
        let client = without_timers(&server).build().await.unwrap();
        let t1 = java.thread("t1");
        let field = t1.field().await;
        for kind in kinds::ALL {
            let name = kind.object;
            let (ours, theirs) = (kind.lock(&client, name), kind.java_lock(name));
            assert!(!ours.is_locked().await.unwrap(), "{name}");
            assert!(ours.holder().await.unwrap().is_none(), "{name}");
            for count in 1..=deepest(kind) {
                t1.lock_for(&theirs, NEVER).await;
                assert!(t1.is_held(&theirs).await, "{name}");
                if reports_counts(kind) {
                    assert_eq!(t1.hold_count(&theirs).await, u64::from(count), "{name}");
                }
                let seen = ours.holder().await.unwrap().expect("Java holds it");
                assert!(seen.field().starts_with(&field), "{name}: {seen:?}");
                assert_eq!(seen.count, count, "{name}");
                assert!(!seen.ours && !seen.is_lockdog(), "{name}");
            }
            let Some(Ttl::Expires(ttl)) = ours.remaining_ttl().await.unwrap() else {
                panic!("{name} has a lease");
            };
            // A write lock adds the leases of its re-entries.
            let most = NEVER * deepest(kind);
            assert!(ttl > NEVER / 2 && ttl <= most, "{name}: {ttl:?}");
            assert!(ours.is_locked().await.unwrap(), "{name}");
            assert!(!ours.is_held().await.unwrap(), "{name}");
            assert_eq!(ours.hold_count().await.unwrap(), 0, "{name}");
            assert!(ours.try_lock().await.unwrap().is_none(), "{name}");
            let refused = ours.unlock().await;
            assert!(matches!(refused, Err(Error::NotHeld(_))), "{name}");
            for _ in 0..deepest(kind) {
                assert!(ours.is_locked().await.unwrap(), "{name}");
                t1.unlock(&theirs).await.unwrap();
            }
            assert!(!ours.is_locked().await.unwrap(), "{name}");
            let guard = ours.try_lock().await.unwrap().expect("it is free");
            guard.unlock().await.unwrap();
        }
        server.redis().await.assert_clean().await;
    }

    /// Redisson's lock of values throws when it is asked for its count or its TTL.
    fn reports_counts(kind: &kinds::Kind) -> bool {
        kind.object != kinds::GROUP.object
    }

    /// How often one owner acquires it.
    fn deepest(kind: &kinds::Kind) -> u32 {
        if kind.object.starts_with("non_reentrant") {
            1
        } else {
            3
        }
    }
}
