//! Permits that are divided and joined.

use super::Fixture;

/// SE3: a part's release lowers what its request has, and the last part ends it.
#[tokio::test]
async fn parts_of_permits_are_released_by_themselves() {
    let test = Fixture::with_permits(5).await;
    let mut rest = test.seats.acquire_many(5).await.unwrap();
    test.redis.reset_stats().await;
    assert!(rest.split(0).is_none() && rest.split(5).is_none() && rest.split(6).is_none());
    let mut two = rest.split(2).unwrap();
    assert_eq!((rest.count(), two.count()), (3, 2));
    let one = two.split(1).unwrap();
    one.release().await.unwrap();
    assert_eq!((test.free().await, test.shares().await), (1, vec![4]));
    rest.merge(two).unwrap();
    assert_eq!(rest.count(), 4);
    // Joined parts of one request are divided differently.
    let taken = rest.split(2).unwrap();
    assert_eq!((rest.count(), taken.count()), (2, 2));
    let sent = test.redis.commandstats().await;
    assert_eq!(sent.get("evalsha"), Some(&1), "only the release is sent");
    drop(taken);
    rest.release().await.unwrap();
    test.eventually_free().await;
}

/// An attempt directly after the drop of a part waits for the release of that part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_was_dropped_just_now_is_free() {
    let test = Fixture::with_permits(2).await;
    let mut both = test.seats.acquire_many(2).await.unwrap();
    for _ in 0..20 {
        drop(both.split(1).unwrap());
        let one = test.seats.try_acquire().await.unwrap();
        both.merge(one.expect("it is released")).unwrap();
        assert!(test.seats.try_acquire().await.unwrap().is_none());
    }
    both.release().await.unwrap();
    test.eventually_free().await;
}

#[tokio::test]
async fn permits_of_several_requests_are_joined_and_divided() {
    let test = Fixture::with_permits(6).await;
    let mut all = test.seats.acquire().await.unwrap();
    for permits in [2, 3] {
        let more = test.seats.acquire_many(permits).await.unwrap();
        all.merge(more).unwrap();
    }
    assert_eq!((all.count(), test.shares().await), (6, vec![1, 2, 3]));
    let four = all.split(4).unwrap();
    assert_eq!((all.count(), four.count()), (2, 4));
    four.release().await.unwrap();
    assert_eq!(test.free().await, 4);
    test.assert_total().await;
    all.forget();
    test.seats.release(2).await.unwrap();
    test.eventually_free().await;
}

#[tokio::test]
async fn only_permits_of_one_semaphore_and_client_are_joined() {
    let test = Fixture::with_permits(5).await;
    let other = test.client.semaphore("other");
    other.try_set_permits(2).await.unwrap();
    let mut ours = test.seats.acquire().await.unwrap();
    for foreign in [
        other.acquire().await.unwrap(),
        test.another().await.acquire().await.unwrap(),
    ] {
        let back = ours.merge(foreign).unwrap_err();
        back.release().await.unwrap();
    }
    assert_eq!(ours.count(), 1);
}
