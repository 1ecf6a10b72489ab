//! Many acquires of one owner.

use lockdog::{Client, Lock, Owner, Unlocked};

use super::{Fixture, Kind, LONG, SOON, each_kind, ms, renewed};
use crate::support::eventually;

each_kind! {
    reentrant: {
        nested_calls_of_one_task_reenter_across_awaits 2
        spawned_children_reenter_in_the_scope_of_their_owner
        an_explicit_owner_reenters_from_any_task
        a_shorter_inner_lease_does_not_shorten_the_hold
        a_longer_inner_lease_lengthens_the_hold
        an_inner_lease_neither_shortens_a_watched_hold_nor_ends_its_renewal
        a_watched_acquire_inside_a_fixed_lease_is_renewed_until_it_ends
    }
    reentrant_without_modes: {
        the_count_is_shared_by_all_handles_of_a_name
    }
}

async fn nested_calls_of_one_task_reenter_across_awaits(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let task = tokio::spawn(async move {
        let outer = lock.lock().await.unwrap();
        // The task may continue on another worker.
        tokio::time::sleep(ms(10)).await;
        handler(&lock, 3).await;
        outer.unlock().await.unwrap()
    });
    assert_eq!(task.await.unwrap(), Unlocked::Released);
    test.redis.assert_clean().await;
    assert!(test.redis.keys().await.is_empty());
}

async fn spawned_children_reenter_in_the_scope_of_their_owner(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let owner = Owner::new();
    owner
        .scope(async {
            let guard = lock.lock().await.unwrap();
            let child = |lock: Lock| async move {
                let inner = lock.try_lock().await.unwrap();
                inner.map(|inner| inner.hold_count())
            };
            let wrapped = tokio::spawn(Owner::current().scope(child(lock.clone())));
            assert_eq!(wrapped.await.unwrap(), Some(2));
            let bare = tokio::spawn(child(lock.clone()));
            assert_eq!(bare.await.unwrap(), None, "it is another owner");
            guard.unlock().await.unwrap();
        })
        .await;
    test.redis.assert_clean().await;
}

async fn an_explicit_owner_reenters_from_any_task(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let owner = Owner::from_id(9);
    let guard = lock.lock().owner(&owner).await.unwrap();
    let request = lock.try_lock().owner(&owner);
    let inner = tokio::spawn(async move { request.await.unwrap() });
    let inner = inner.await.unwrap().expect("it is the same owner");
    assert_eq!(inner.owner(), owner);
    assert_eq!((guard.hold_count(), inner.hold_count()), (2, 2));
    assert!(lock.try_lock().await.unwrap().is_none());
    // In any order.
    assert_eq!(
        guard.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
    test.redis.assert_clean().await;
}

async fn the_count_is_shared_by_all_handles_of_a_name(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let mut guards = Vec::new();
    for count in 1..=10 {
        guards.push(test.lock("l").lock().await.unwrap());
        let fields = test.redis.hash("l").await;
        assert_eq!(
            fields.into_values().collect::<Vec<_>>(),
            [count.to_string()]
        );
        assert!(guards.iter().all(|guard| guard.hold_count() == count));
        assert_eq!(test.lock("l").hold_count().await.unwrap(), count);
    }
    while let Some(guard) = guards.pop() {
        let left = guards.len() as u32;
        let unlocked = guard.unlock().await.unwrap();
        match left {
            0 => assert_eq!(unlocked, Unlocked::Released),
            count => assert_eq!(unlocked, Unlocked::StillHeld { count }),
        }
    }
    assert!(test.redis.keys().await.is_empty());
}

async fn a_shorter_inner_lease_does_not_shorten_the_hold(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let outer = lock.lock().lease(LONG).await.unwrap();
    let inner = lock.lock().lease(ms(50)).await.unwrap();
    assert!(test.redis.pttl("l").await > 60_000);
    assert!(outer.remaining() > SOON && inner.remaining() > SOON);
    tokio::time::sleep(ms(80)).await;
    assert!(outer.is_valid() && inner.is_valid());
    inner.unlock().await.unwrap();
    assert!(test.redis.pttl("l").await > 60_000);
    outer.unlock().await.unwrap();
}

async fn a_longer_inner_lease_lengthens_the_hold(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let outer = lock.lock().lease(ms(20_000)).await.unwrap();
    let inner = lock.lock().lease(LONG).await.unwrap();
    assert!(test.redis.pttl("l").await > 60_000);
    inner.unlock().await.unwrap();
    assert!(
        test.redis.pttl("l").await > 60_000,
        "an inner unlock leaves the lease"
    );
    assert!(outer.remaining() > ms(60_000));
    outer.unlock().await.unwrap();
}

async fn an_inner_lease_neither_shortens_a_watched_hold_nor_ends_its_renewal(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let client = watched(&test).await;
    let lock = kind.lock(&client, "l");
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().lease(ms(20)).await.unwrap();
    inner.unlock().await.unwrap();
    // The renewal comes well after the inner lease.
    renewed(&[&outer]).await;
    assert!(outer.is_valid() && test.redis.exists("l").await);
    outer.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

async fn a_watched_acquire_inside_a_fixed_lease_is_renewed_until_it_ends(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let client = watched(&test).await;
    let lock = kind.lock(&client, "l");
    let outer = lock.lock().lease(ms(4_000)).await.unwrap();
    let inner = lock.lock().await.unwrap();
    renewed(&[&outer, &inner]).await;
    assert!(outer.is_valid() && inner.is_valid());
    assert!(client.holds()[0].watched);
    inner.unlock().await.unwrap();
    assert!(!client.holds()[0].watched);
    // No client renews it any more, so it expires although its guard exists.
    let freed = async || !test.redis.exists("l").await;
    eventually(SOON, "the fixed lease ran out", freed).await;
    assert!(!outer.is_valid());
    assert!(outer.unlock().await.unwrap_err().is_lost());
}

async fn handler(lock: &Lock, depth: u32) {
    let before = lock.hold_count().await.unwrap();
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.hold_count(), before + 1);
    tokio::time::sleep(ms(1)).await;
    if depth > 0 {
        Box::pin(handler(lock, depth - 1)).await;
    }
    let left = guard.unlock().await.unwrap();
    assert_eq!(
        left,
        Unlocked::StillHeld {
            count: before as u32
        }
    );
}

async fn watched(test: &Fixture) -> Client {
    Client::builder()
        .url(test.server.url())
        .watchdog_lease(ms(4_800))
        .build()
        .await
        .unwrap()
}
