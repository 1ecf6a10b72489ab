//! How many permits there are.

use super::{Fixture, IN_USE, LONG, NAME};

#[tokio::test]
async fn a_semaphore_has_as_many_permits_as_it_is_given() {
    let test = Fixture::with_permits(3).await;
    let counts = async || {
        let seats = &test.seats;
        (
            seats.available().await.unwrap(),
            seats.acquired().await.unwrap(),
            seats.permits().await.unwrap(),
        )
    };
    assert_eq!(counts().await, (3, 0, 3));
    assert!(!test.seats.try_set_permits(9).await.unwrap());
    let two = test.seats.acquire_many(2).await.unwrap();
    assert_eq!(counts().await, (1, 2, 3));
    test.seats.set_permits(5).await.unwrap();
    assert_eq!(counts().await, (3, 2, 5));
    test.seats.set_permits(1).await.unwrap();
    assert_eq!(counts().await, (-1, 2, 1));
    assert!(two.is_valid());
    test.seats.add_permits(2).await.unwrap();
    assert_eq!(counts().await, (1, 2, 3));
    test.seats.add_permits(-1).await.unwrap();
    assert_eq!(counts().await, (0, 2, 2));
    assert!(test.seats.try_acquire().await.unwrap().is_none());
    two.release().await.unwrap();
    assert_eq!(counts().await, (2, 0, 2));
}

#[tokio::test]
async fn a_semaphore_that_does_not_exist_has_no_permits() {
    let test = Fixture::with_permits(3).await;
    let other = test.client.permit_semaphore("other");
    assert_eq!(other.permits().await.unwrap(), 0);
    assert!(other.try_acquire().await.unwrap().is_none());
    other.add_permits(2).await.unwrap();
    assert_eq!(other.available().await.unwrap(), 2);
    assert!(!other.try_set_permits(9).await.unwrap());
    let zero = test.client.permit_semaphore("zero");
    assert!(zero.try_set_permits(0).await.unwrap());
    assert!(!zero.try_set_permits(1).await.unwrap());
}

/// Redisson's `expire()` is about both keys, and its `addPermits` loses the first one's TTL.
#[tokio::test]
async fn the_keys_expire_together() {
    let test = Fixture::with_permits(3).await;
    test.redis.cmd(&["PEXPIRE", NAME, "200000"]).await;
    let permit = test.seats.acquire().lease(LONG).await.unwrap();
    let ttl = test.redis.pttl(IN_USE).await;
    assert!((100_000..=200_000).contains(&ttl), "{ttl}");
    test.seats.add_permits(1).await.unwrap();
    test.seats.set_permits(9).await.unwrap();
    permit.release().await.unwrap();
    let ttl = test.redis.pttl(NAME).await;
    assert!((100_000..=200_000).contains(&ttl), "{ttl}");
}
