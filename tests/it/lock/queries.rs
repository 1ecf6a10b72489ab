//! The queries of a lock, its client and its guards.

use lockdog::error::LostReason;
use lockdog::report::Ttl;
use lockdog::{Client, Owner};

use super::{Fixture, Kind, LONG, SOON, each_kind, ms};
use crate::support::eventually;

each_kind! {
    every: {
        a_free_lock_has_no_holder_no_ttl_and_no_count
        a_late_force_unlock_does_not_free_the_next_holders_lock
    }
    without_modes: {
        a_foreign_hash_field_is_reported_as_the_holder
    }
    reentrant: {
        guard_and_view_report_the_same_state
        the_client_lists_what_it_holds
    }
    reentrant_without_modes: {
        the_holder_is_reported_as_redis_has_it
    }
    published: {
        a_force_unlock_wakes_the_waiters_of_every_client
        keys_and_channels_use_the_mapped_name
    }
}

async fn a_free_lock_has_no_holder_no_ttl_and_no_count(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    assert_eq!(lock.name(), "l");
    assert!(!lock.is_locked().await.unwrap());
    assert!(!lock.is_held().await.unwrap());
    assert_eq!(lock.hold_count().await.unwrap(), 0);
    assert_eq!(lock.remaining_ttl().await.unwrap(), None);
    assert!(lock.holder().await.unwrap().is_none());
    assert!(!lock.force_unlock().await.unwrap());
    assert!(test.client.holds().is_empty());
    assert!(test.redis.keys().await.is_empty());
}

async fn the_holder_is_reported_as_redis_has_it(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let (ours, other) = (test.lock("l"), test.another().await);
    let owner = Owner::new();
    let guard = ours.lock().owner(&owner).lease(LONG).await.unwrap();
    let _inner = ours.lock().owner(&owner).lease(LONG).await.unwrap();
    let fields = test.redis.hash("l").await;
    let holder = ours.holder().await.unwrap().expect("it is held");
    assert!(fields.contains_key(holder.field()));
    assert_eq!((holder.count, holder.ours), (2, true));
    assert!(matches!(holder.ttl, Ttl::Expires(left) if left <= LONG && left > SOON));
    // The client's id is the field's prefix, as in Redisson.
    assert_eq!(holder.client_id(), Some(test.client.id()));
    assert_eq!(holder.owner(), owner.to_string());
    assert!(holder.is_lockdog() && !holder.is_write());
    let seen = kind
        .lock(&other, "l")
        .holder()
        .await
        .unwrap()
        .expect("it is held");
    assert_eq!(
        (seen.field(), seen.count, seen.ours),
        (holder.field(), 2, false)
    );
    assert_ne!(other.id(), test.client.id());
    assert!(guard.is_valid());
}

async fn a_foreign_hash_field_is_reported_as_the_holder(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let java = "8a5a4b7e-4b5b-4c1e-8f43-0d3e3f0b6a11:42";
    test.redis.cmd(&["HSET", "l", java, "3"]).await;
    let holder = test.lock("l").holder().await.unwrap();
    let holder = holder.expect("it is held");
    assert_eq!(
        (holder.field(), holder.count, holder.ours),
        (java, 3, false)
    );
    assert_eq!(holder.ttl, Ttl::Persistent);
    assert_eq!((holder.owner(), holder.is_lockdog()), ("42", false));
}

async fn guard_and_view_report_the_same_state(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let owner = Owner::new();
    let held = lock
        .lock()
        .owner(&owner)
        .lease(LONG)
        .with(|held| async move {
            assert_eq!((held.owner(), held.name()), (owner, "l"));
            assert_eq!(held.hold_count(), 1);
            assert!(held.is_valid() && !held.lost_token().is_cancelled());
            assert!(held.remaining() > SOON && held.remaining() <= LONG);
            let guard = lock.lock().owner(&owner).await.unwrap();
            assert_eq!((guard.owner(), guard.name()), (owner, "l"));
            assert_eq!((guard.hold_count(), held.hold_count()), (2, 2));
            assert!(guard.is_valid() && !guard.lost_token().is_cancelled());
            assert!(guard.remaining() > SOON);
            held
        })
        .await
        .unwrap();
    // The view exists longer than its guard.
    eventually(SOON, "the inner guard is settled", async || {
        !test.redis.exists("l").await
    })
    .await;
    assert!(!held.is_valid());
    assert_eq!((held.hold_count(), held.remaining()), (0, ms(0)));
    assert_eq!(held.lost().await.reason(), LostReason::Released);
}

async fn the_client_lists_what_it_holds(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let owner = Owner::from_id(5);
    let a = test
        .lock("a")
        .lock()
        .owner(&owner)
        .lease(LONG)
        .await
        .unwrap();
    let b = test.lock("b").lock().owner(&owner).await.unwrap();
    let _b2 = test.lock("b").lock().owner(&owner).await.unwrap();
    let _elsewhere = kind.lock(&test.another().await, "c").lock().await.unwrap();
    let mut holds = test.client.holds();
    holds.sort_by(|x, y| x.lock.cmp(&y.lock));
    let listed: Vec<_> = holds
        .iter()
        .map(|hold| (&*hold.lock, hold.owner, hold.count, hold.watched))
        .collect();
    assert_eq!(listed, [("a", owner, 1, false), ("b", owner, 2, true)]);
    for hold in &holds {
        // The field of the lock's hash, or the owner of a value in the group's.
        let hash = test.redis.hash(&hold.lock).await;
        let is_there = |(field, value): (&String, &String)| [field, value].contains(&&hold.field);
        assert!(hash.iter().any(is_there), "{hash:?}");
        assert!(!hold.remaining.is_zero());
    }
    assert!(holds[0].remaining > SOON);
    a.unlock().await.unwrap();
    b.unlock().await.unwrap();
    let left: Vec<_> = test
        .client
        .holds()
        .into_iter()
        .map(|hold| hold.count)
        .collect();
    assert_eq!(left, [1]);
}

async fn a_late_force_unlock_does_not_free_the_next_holders_lock(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let first = lock.lock().owner(&Owner::new()).await.unwrap();
    let seen = lock.holder().await.unwrap().expect("it is held");
    first.unlock().await.unwrap();
    let second = kind.lock(&test.another().await, "l").lock().await.unwrap();
    assert!(!lock.force_unlock().expecting(&seen).await.unwrap());
    assert!(test.redis.exists("l").await && second.is_valid());
    // The next hold of the same owner is another holder.
    second.unlock().await.unwrap();
    let owner = Owner::new();
    let third = lock.lock().owner(&owner).await.unwrap();
    let seen = lock.holder().await.unwrap().expect("it is held");
    third.unlock().await.unwrap();
    let fourth = lock.lock().owner(&owner).await.unwrap();
    assert!(!lock.force_unlock().expecting(&seen).await.unwrap());
    assert!(fourth.is_valid() && test.redis.exists("l").await);
    // With the current holder as the expected one it frees the lock, once.
    let seen = lock.holder().await.unwrap().expect("it is held");
    assert!(lock.force_unlock().expecting(&seen).await.unwrap());
    assert!(!lock.force_unlock().expecting(&seen).await.unwrap());
    assert_eq!(fourth.lost().await.reason(), LostReason::Forced);
}

async fn a_force_unlock_wakes_the_waiters_of_every_client(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let (ours, theirs) = (test.without_polling().await, test.without_polling().await);
    for (waiting, forcing) in [(&ours, &theirs), (&theirs, &theirs)] {
        let held = test.lock("l").lock().lease(LONG).await.unwrap();
        let waiter = super::waiter(&kind.lock(waiting, "l"));
        let listens = async || test.redis.channels().await.len() == 1;
        eventually(SOON, "the waiter listens", listens).await;
        assert!(kind.lock(forcing, "l").force_unlock().await.unwrap());
        let next = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
        assert!(held.unlock().await.unwrap_err().is_lost());
        next.unlock().await.unwrap();
        test.redis.assert_clean().await;
    }
}

async fn keys_and_channels_use_the_mapped_name(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let client = Client::builder()
        .url(test.server.url())
        .name_mapper(|name| format!("billing:{name}"))
        .build()
        .await
        .unwrap();
    let messages = test.redis.messages("*").await;
    let lock = kind.lock(&client, "l");
    let guard = lock.lock().await.unwrap();
    assert_eq!((lock.name(), guard.name()), ("l", "l"));
    assert_eq!(client.holds()[0].lock, "l");
    assert_eq!(test.redis.keys().await, ["billing:l"]);
    assert!(test.lock("billing:l").is_locked().await.unwrap());
    assert!(!test.lock("l").is_locked().await.unwrap());
    guard.unlock().await.unwrap();
    let message = (
        "redisson_lock__channel:{billing:l}".to_owned(),
        "0".to_owned(),
    );
    eventually(SOON, "the message was seen", async || {
        messages.seen() == [message.clone()]
    })
    .await;
    test.redis.assert_clean().await;
}
