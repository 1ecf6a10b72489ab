//! Waiters that are not polled, or whose client is dead.

use super::*;
use crate::support::{Direction, Proxy};

#[tokio::test]
async fn a_future_that_is_polled_once_delays_the_others_by_a_little_only() {
    let test = Fixture::with(|builder| builder.poll_cap(ms(100)).fair_absence(LONG)).await;
    let held = test.another().await.lock().await.unwrap();
    let mut left = Box::pin(IntoFuture::into_future(
        test.lock.lock().owner(&Owner::new()),
    ));
    assert!(poll_once(&mut left).await.is_none());
    test.eventually_queued(1).await;
    let entry = test.queue().await.remove(0);
    let second = queued_besides(&test, &entry).await;
    held.unlock().await.unwrap();
    // Its own client drops it from the queue, although its presence lasts.
    let guard = tokio::time::timeout(SOON, second)
        .await
        .expect("in time")
        .unwrap();
    guard.unlock().await.unwrap();
    // When it is polled again, it enters the queue again and gets the lock.
    let guard = tokio::time::timeout(SOON, left)
        .await
        .expect("in time")
        .unwrap();
    guard.unlock().await.unwrap();
    test.eventually_empty().await;
}

/// The server calls this waiter, and its client finds it absent. It has no command in flight that others
/// could take over: its next query comes after a poll cap.
#[tokio::test]
async fn a_future_that_is_left_while_it_is_first_is_undone_by_its_client() {
    let test = Fixture::with(|builder| builder.poll_cap(ms(1_000)).fair_absence(LONG)).await;
    let held = test.another().await.lock().await.unwrap();
    let mut left = Box::pin(test.lock.lock().owner(&Owner::new()).into_future());
    assert!(poll_once(&mut left).await.is_none());
    test.eventually_queued(1).await;
    let entry = test.queue().await.remove(0);
    eventually(SOON, "its query is answered, and it listens", async || {
        assert!(poll_once(&mut left).await.is_none());
        let channel = format!("{CHANNELS}{entry}");
        test.redis.channels().await.contains(&channel)
    })
    .await;
    for _ in 0..5 {
        tokio::time::sleep(ms(30)).await;
        assert!(poll_once(&mut left).await.is_none());
    }
    let second = queued_besides(&test, &entry).await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, second).await;
    guard.expect("in time").unwrap().unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, left).await;
    guard.expect("in time").unwrap().unlock().await.unwrap();
    test.eventually_empty().await;
}

#[tokio::test]
async fn a_waiter_of_a_dead_client_is_dropped_after_its_absence() {
    let test = Fixture::with(|builder| builder.poll_cap(ms(100)).fair_absence(ms(1_000))).await;
    let held = test.another().await.lock().await.unwrap();
    let now = async || {
        let now: [u64; 2] = test.redis.ask::<Vec<u64>>(&["TIME"]).await[..]
            .try_into()
            .unwrap();
        now[0] * 1_000
    };
    // As a crash leaves it: an entry of a lockdog client that was present until now.
    let began = now().await;
    let (soon, late) = (began + 2_000, began + 1_000_000);
    let dead = "5f6b8a3e-26a7-4f6b-9c1e-0d2f3a4b5c6d:t1.7";
    test.redis.cmd(&["RPUSH", QUEUE, dead]).await;
    test.redis
        .cmd(&["ZADD", PLACES, &late.to_string(), dead])
        .await;
    test.redis
        .cmd(&["ZADD", PRESENCE, &soon.to_string(), dead])
        .await;
    let waiter = queued_besides(&test, dead).await;
    held.unlock().await.unwrap();
    let queue = test.queue().await;
    if now().await < soon {
        assert_eq!(queue[0], dead, "it was dropped while it was present");
    }
    let guard = tokio::time::timeout(SOON, waiter)
        .await
        .expect("in time")
        .unwrap();
    assert!(
        now().await + 1_000 >= soon,
        "it was dropped while it was present"
    );
    guard.unlock().await.unwrap();
    test.eventually_empty().await;
}

/// FA6: an entry without a presence would count as a Redisson waiter until its score.
#[tokio::test]
async fn a_waiter_of_a_dead_client_is_dropped_although_no_client_sent_a_query_for_long() {
    let set = |builder: ClientBuilder| builder.poll_cap(ms(250)).fair_absence(ms(1_000));
    let test = Fixture::with(set).await;
    let held = test.another().await.lock().lease(LONG).await.unwrap();
    let proxy = Proxy::start(&test.server).await;
    let dead = set(Client::builder().url(proxy.url()));
    let dead = dead.build().await.unwrap().fair_lock(NAME);
    let left = test.queued(&dead).await;
    proxy.blackhole(Direction::ToServer);
    left.abort();
    // Five times the absence.
    tokio::time::sleep(ms(5_000)).await;
    assert!(proxy.counts().blackholed > 0, "it left the queue");
    let waiter = test.queued_beside(&test.lock).await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiter).await;
    guard.expect("in time").unwrap().unlock().await.unwrap();
    test.eventually_empty().await;
}

#[tokio::test]
async fn a_waiter_of_redisson_is_dropped_when_its_score_has_passed() {
    let test = Fixture::start().await;
    let held = test.another().await.lock().await.unwrap();
    test.redis.cmd(&["RPUSH", QUEUE, "java:1"]).await;
    test.redis.cmd(&["ZADD", PLACES, "1", "java:1"]).await;
    let waiter = test.queued_beside(&test.lock).await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiter).await;
    let guard = guard.expect("in time").unwrap();
    guard.unlock().await.unwrap();
    test.eventually_empty().await;
}

#[tokio::test]
async fn the_presence_of_all_waiters_is_renewed_while_their_own_client_has_the_lock() {
    let set = |builder: ClientBuilder| builder.poll_cap(ms(250)).fair_absence(ms(8_000));
    let test = Fixture::with(set).await;
    let held = test.lock.lock().await.unwrap();
    let first = test.queued(&test.lock).await;
    let second = test.queued(&test.lock).await;
    let order = test.queue().await;
    let third = test.queued(&test.another_with(set).await).await;
    let presence = async || {
        let ends: Vec<f64> = test
            .redis
            .ask(&["ZMSCORE", PRESENCE, &order[0], &order[1]])
            .await;
        ends[0].min(ends[1])
    };
    let before = presence().await;
    eventually(
        SOON,
        "the presence was renewed after an absence",
        async || presence().await > before + 8_000.0,
    )
    .await;
    assert_eq!(test.queue().await[..2], order);
    held.unlock().await.unwrap();
    for waiter in [first, second, third] {
        let guard = tokio::time::timeout(SOON, waiter)
            .await
            .expect("in time")
            .unwrap();
        guard.unlock().await.unwrap();
    }
    test.eventually_empty().await;
}

/// FA5, although only its list entry was deleted.
#[tokio::test]
async fn a_waiter_without_an_entry_in_the_list_gets_one_again() {
    let test = Fixture::with(|builder| builder.poll_cap(ms(200))).await;
    let held = test.another().await.lock().await.unwrap();
    let waiter = test.queued(&test.lock).await;
    let entry = test.queue().await.remove(0);
    test.redis.cmd(&["RPUSH", QUEUE, "java:1"]).await;
    test.redis
        .cmd(&["ZADD", PLACES, "9999999999999", "java:1"])
        .await;
    test.redis.cmd(&["LPOP", QUEUE]).await;
    eventually(SOON, "it is first again", async || {
        test.queue().await == [&*entry, "java:1"]
    })
    .await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiter).await;
    guard.expect("in time").unwrap().unlock().await.unwrap();
}

/// FA5: Redisson drops the first waiter if its score has passed by Redisson's clock.
#[tokio::test]
async fn a_waiter_that_redisson_dropped_comes_back_to_the_front() {
    let test = Fixture::with(|builder| builder.poll_cap(ms(200))).await;
    let held = test.another().await.lock().await.unwrap();
    let waiter = test.queued(&test.lock).await;
    let entry = test.queue().await.remove(0);
    test.redis.cmd(&["RPUSH", QUEUE, "java:1"]).await;
    test.redis
        .cmd(&["ZADD", PLACES, "9999999999999", "java:1"])
        .await;
    test.redis.cmd(&["LPOP", QUEUE]).await;
    test.redis.cmd(&["ZREM", PLACES, &entry]).await;
    eventually(SOON, "it is first again", async || {
        test.queue().await.first() == Some(&entry)
    })
    .await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiter).await;
    let guard = guard.expect("in time").unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn waiters_survive_the_loss_of_any_key() {
    for lost in [
        vec![QUEUE],
        vec![PLACES],
        vec![PRESENCE],
        vec![NAME],
        vec![NAME, QUEUE, PLACES, PRESENCE],
    ] {
        let test = Fixture::with(|builder| builder.poll_cap(ms(100))).await;
        let other = test.another_with(|builder| builder.poll_cap(ms(100))).await;
        let held = other.lock().await.unwrap();
        let mut waiters = Vec::new();
        for lock in [&test.lock, &other, &test.lock, &other] {
            waiters.push(test.queued(lock).await);
        }
        let mut delete = vec!["DEL"];
        delete.extend(&lost);
        let deleted: i64 = test.redis.ask(&delete).await;
        assert_eq!(deleted as usize, lost.len());
        // The hash is gone, so there is nothing to unlock.
        drop(held);
        // The order between clients is lost with the list, so each waiter ends its turn in its own task.
        let turns = waiters.into_iter().map(async |waiter| {
            let guard = tokio::time::timeout(SOON, waiter).await;
            let guard = guard.unwrap_or_else(|_| panic!("{lost:?}")).unwrap();
            guard.unlock().await.unwrap();
        });
        futures_util::future::join_all(turns).await;
        test.eventually_empty().await;
    }
}

/// Starts a task that waits, and waits until it is in the queue. Its client may drop the other entry
/// meanwhile.
async fn queued_besides(test: &Fixture, other: &str) -> JoinHandle<Guard> {
    let waiter = crate::turn::waiter(&test.lock);
    eventually(SOON, "it is in the queue", async || {
        test.queue().await.iter().any(|entry| entry != other)
    })
    .await;
    waiter
}
