//! Permits that are divided, joined and handed over.

use super::{Fixture, LEASE, LONG, SOON, ms};
use crate::support::eventually;

#[tokio::test]
async fn parts_of_permits_are_released_by_themselves() {
    let test = Fixture::with_permits(5).await;
    let mut rest = test.seats.acquire_many(5).await.unwrap();
    let all = rest.ids();
    test.redis.reset_stats().await;
    assert!(rest.split(0).is_none() && rest.split(5).is_none() && rest.split(6).is_none());
    let mut two = rest.split(2).unwrap();
    assert_eq!((rest.count(), two.count()), (3, 2));
    let ids = [rest.ids(), two.ids()].concat();
    assert_eq!(ids, all);
    let one = two.split(1).unwrap();
    one.release().await.unwrap();
    assert_eq!(test.free().await, 1);
    rest.merge(two).unwrap();
    assert_eq!(rest.count(), 4);
    let sent = test.redis.commandstats().await;
    assert_eq!(sent.get("evalsha"), Some(&1), "only the release is sent");
    rest.release().await.unwrap();
    test.eventually_free().await;
}

#[tokio::test]
async fn only_permits_of_one_semaphore_and_client_are_joined() {
    let test = Fixture::with_permits(5).await;
    let other = test.client.permit_semaphore("other");
    other.set_permits(2).await.unwrap();
    let mut ours = test.seats.acquire().await.unwrap();
    for foreign in [
        other.acquire().await.unwrap(),
        test.another().await.acquire().await.unwrap(),
    ] {
        let back = ours.merge(foreign).unwrap_err();
        assert!(back.is_valid());
        back.release().await.unwrap();
    }
    assert_eq!(ours.count(), 1);
}

/// PE5: of several permits each one counts by itself.
#[tokio::test]
async fn the_loss_of_one_permit_leaves_the_others() {
    let test = Fixture::with(3, |client| client.watchdog_lease(LEASE)).await;
    let mut permits = test.seats.acquire_many(3).await.unwrap();
    let ids = permits.ids();
    let token = permits.lost_token();
    let first = permits.split(1).unwrap();
    let [kept, lost] = [ids[0], ids[1]];
    assert_eq!(permits.ids(), [kept, lost]);
    test.another().await.release(&[lost]).await.unwrap();
    // The next renewal reports it.
    tokio::time::timeout(SOON, permits.lost()).await.unwrap();
    tokio::time::timeout(SOON, token.cancelled()).await.unwrap();
    assert!(!permits.is_valid() && first.is_valid());
    let kept_part = permits.split(1).unwrap();
    assert_eq!((permits.is_valid(), kept_part.is_valid()), (true, false));
    let error = kept_part.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    permits.release().await.unwrap();
    first.release().await.unwrap();
    // PE3: the lost one was released once.
    test.eventually_free().await;
}

#[tokio::test]
async fn a_token_follows_the_permits_of_its_value() {
    let test = Fixture::with(3, |client| client.watchdog_lease(LEASE)).await;
    let another = test.another().await;
    let mut ours = test.seats.acquire_many(2).await.unwrap();
    let joined = test.seats.acquire().await.unwrap();
    let (token, id) = (ours.lost_token(), joined.ids());
    let left = ours.split(1).unwrap();
    let left_token = left.lost_token();
    ours.merge(joined).unwrap();
    another.release(&left.ids()).await.unwrap();
    tokio::time::timeout(SOON, left_token.cancelled())
        .await
        .unwrap();
    assert!(!token.is_cancelled(), "that permit was split off");
    another.release(&id).await.unwrap();
    tokio::time::timeout(SOON, token.cancelled()).await.unwrap();
}

#[tokio::test]
async fn ids_that_were_taken_end_with_their_lease_or_by_hand() {
    let test = Fixture::with_permits(3).await;
    let by_hand = test.seats.acquire_many(2).await.unwrap().into_ids();
    let lease = ms(4_000);
    let expiring = test.seats.acquire().lease(lease).await.unwrap().into_ids();
    assert!(
        test.client.holds().is_empty(),
        "no owner holds them any more"
    );
    assert_eq!(test.in_use().await.len(), 3);
    let report = test.client.shutdown().await;
    assert_eq!(report.released, 0);
    assert_eq!(test.in_use().await.len(), 3);
    let another = test.another().await;
    another.release(&by_hand).await.unwrap();
    assert_eq!(test.free().await, 2);
    eventually(SOON, "the lease ends", async || {
        another.lease_of(&expiring[0]).await.unwrap().is_none()
    })
    .await;
    let all = another.try_acquire_many(3).lease(LONG).await.unwrap();
    assert!(all.is_some());
}
