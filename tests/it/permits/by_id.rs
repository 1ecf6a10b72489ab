//! What is done with permits by their ids.

use lockdog::report::Ttl;
use lockdog::{Error, PermitId};

use super::{Fixture, LONG, NEVER, SOON, ms};
use crate::support::{eventually, until_ok};

/// PE5: all or none, and PE3: once.
#[tokio::test]
async fn a_list_is_released_wholly_or_not_at_all() {
    let test = Fixture::with_permits(4).await;
    let ids = test
        .seats
        .acquire_many(3)
        .lease(LONG)
        .await
        .unwrap()
        .into_ids();
    let foreign: PermitId = "ff".repeat(16).parse().unwrap();
    let messages = test.redis.messages("*").await;
    let some = [ids[0], foreign, ids[1]];
    let error = test.seats.release(&some).await.unwrap_err();
    assert!(matches!(error, Error::PermitNotInUse { .. }), "{error}");
    assert!(!test.seats.try_release(&some).await.unwrap());
    assert_eq!((test.free().await, test.in_use().await.len()), (1, 3));
    test.seats.release(&ids[..2]).await.unwrap();
    assert_eq!((test.free().await, test.in_use().await.len()), (3, 1));
    assert!(!test.seats.try_release(&ids[..2]).await.unwrap());
    assert!(test.seats.try_release(&ids[2..]).await.unwrap());
    eventually(SOON, "two messages came", async || {
        messages.seen().len() >= 2
    })
    .await;
    let seen = format!("{:?}", messages.seen());
    // The number of free permits, not of released ones.
    assert!(seen.contains("\"3\"") && seen.contains("\"4\""), "{seen}");
    test.eventually_free().await;
}

#[tokio::test]
async fn an_expired_permit_is_not_in_use() {
    let test = Fixture::with_permits(2).await;
    let expired = until_ok(SOON, async || test.seats.acquire().lease(ms(2_000)).await).await;
    let expired = expired.into_ids();
    let living = test.seats.acquire().lease(LONG).await.unwrap().into_ids();
    eventually(SOON, "it expires", async || {
        test.seats.lease_of(&expired[0]).await.unwrap().is_none()
    })
    .await;
    assert!(!test.seats.try_release(&expired).await.unwrap());
    assert!(
        !test
            .seats
            .try_release(&[living[0], expired[0]])
            .await
            .unwrap()
    );
    assert!(!test.seats.update_lease(&expired[0], LONG).await.unwrap());
    assert!(!test.seats.remove_lease(&expired[0]).await.unwrap());
    assert!(test.seats.try_release(&living).await.unwrap());
    test.assert_total().await;
}

#[tokio::test]
async fn a_lease_is_set_exactly() {
    let test = Fixture::with_permits(1).await;
    let ids = test.seats.acquire().lease(LONG).await.unwrap().into_ids();
    let id = ids[0];
    let left = async || match test.seats.lease_of(&id).await.unwrap() {
        Some(Ttl::Expires(left)) => left,
        other => panic!("{other:?}"),
    };
    assert!(left().await > LONG / 2);
    assert!(test.seats.update_lease(&id, LONG / 10).await.unwrap());
    assert!(left().await <= LONG / 10);
    assert!(test.seats.remove_lease(&id).await.unwrap());
    assert_eq!(
        test.seats.lease_of(&id).await.unwrap(),
        Some(Ttl::Persistent)
    );
    assert_eq!(test.in_use().await[0].1, NEVER);
    assert!(test.seats.update_lease(&id, LONG).await.unwrap());
    assert!(left().await <= LONG);
    test.seats.release(&ids).await.unwrap();
    assert_eq!(test.seats.lease_of(&id).await.unwrap(), None);
}

#[tokio::test]
async fn a_client_releases_a_permit_of_another_client_by_its_id() {
    let test = Fixture::with(1, |client| client.watchdog_lease(super::LEASE)).await;
    let permit = test.seats.acquire().await.unwrap();
    let another = test.another().await;
    another.release(&permit.ids()).await.unwrap();
    assert_eq!(test.free().await, 1);
    tokio::time::timeout(SOON, permit.lost()).await.unwrap();
    drop(permit);
    tokio::time::sleep(ms(200)).await;
    // PE3.
    test.assert_total().await;
}
