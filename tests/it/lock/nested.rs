//! A nested call whose outer hold is gone.

use lockdog::error::LostReason;
use lockdog::{Error, Owner};

use super::{Fixture, LONG, SOON, ms};
use crate::support::{eventually, until_ok};

#[tokio::test]
async fn a_nested_call_reports_that_the_outer_hold_was_deleted() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let guard = lock.lock().lease(LONG).await.unwrap();
    tokio::time::sleep(ms(30)).await;
    test.redis.cmd(&["DEL", "l"]).await;
    let error = lock.lock().await.unwrap_err();
    let Error::Lost(lost) = &error else {
        panic!("{error}")
    };
    assert!(error.is_lost() && !error.is_retriable() && !error.may_be_held());
    assert_eq!(lost.reason(), LostReason::NotOurs);
    assert_eq!(
        (lost.lock(), lost.owner()),
        ("l", &*guard.owner().to_string())
    );
    assert!(lost.held_for() >= ms(30) && lost.since_renewal() >= ms(30));
    let text = error.to_string();
    for part in [
        "lock=\"l\"".to_owned(),
        format!("owner={}", guard.owner()),
        "acquired=".to_owned(),
        "last good renewal=".to_owned(),
        "drop its guard".to_owned(),
    ] {
        assert!(text.contains(&part), "{part:?} is not in {text:?}");
    }
    // The call got no new grant, and the hold stays lost while the guard exists.
    assert!(!test.redis.exists("l").await);
    assert!(!guard.is_valid());
    assert!(lock.try_lock().await.unwrap_err().is_lost());
    assert!(lock.try_lock().wait(ms(50)).await.unwrap_err().is_lost());
    // Other owners are not affected.
    drop(lock.lock().owner(&Owner::new()).await.unwrap());
    drop(guard);
    let again = lock.lock().await.unwrap();
    assert_eq!(again.hold_count(), 1);
    again.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_nested_call_reports_that_the_outer_lease_expired() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let guard = until_ok(SOON, async || lock.lock().lease(ms(1_000)).await).await;
    eventually(SOON, "the lease is over", async || !guard.is_valid()).await;
    let error = lock.lock().await.unwrap_err();
    let Error::Lost(lost) = &error else {
        panic!("{error}")
    };
    assert_eq!(lost.reason(), LostReason::Deadline);
    assert!(guard.unlock().await.unwrap_err().is_lost());
    lock.lock().await.unwrap().unlock().await.unwrap();
}

/// Invariant 4.
#[tokio::test]
async fn a_nested_call_does_not_take_the_lock_of_the_next_holder() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let guard = lock.lock().lease(LONG).await.unwrap();
    test.redis.cmd(&["DEL", "l"]).await;
    let other = test.another().await;
    let taken = other.lock("l").lock().await.unwrap();
    assert!(lock.lock().await.unwrap_err().is_lost());
    let fields = test.redis.hash("l").await;
    assert_eq!(fields.len(), 1, "{fields:?}");
    assert!(
        fields
            .keys()
            .all(|field| field.starts_with(&other.id().to_string()))
    );
    // The late unlock of the lost hold does not change the new one.
    assert!(guard.unlock().await.unwrap_err().is_lost());
    assert_eq!(test.redis.hash("l").await, fields);
    taken.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn an_inner_unlock_reports_that_the_hold_is_gone() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    test.redis.cmd(&["DEL", "l"]).await;
    assert!(inner.unlock().await.unwrap_err().is_lost());
    assert_eq!(outer.lost().await.reason(), LostReason::NotOurs);
    assert!(outer.lost_token().is_cancelled());
    assert_eq!((outer.hold_count(), outer.remaining()), (0, ms(0)));
    assert!(outer.unlock().await.unwrap_err().is_lost());
    assert!(test.client.holds().is_empty());
    assert!(test.redis.keys().await.is_empty());
}
