//! Another owner holds one member: the call keeps nothing and waits for that member.

use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockdog::config::{Backoff, Reentry, Wake};
use lockdog::{Owner, Unlocked};
use tokio::task::JoinSet;

use super::{Fixture, LONG, SOON, ms, multi, waiter};
use crate::support::{eventually, timed, until_ok};

/// A wait of zero is one attempt, and its members are released.
#[tokio::test]
async fn a_failed_attempt_keeps_nothing_and_does_not_wait() {
    let test = Fixture::start(3).await;
    for busy in [(0, "a"), (1, "b"), (2, "c")] {
        let elsewhere = test.held_elsewhere(busy.0, busy.1).await;
        let lock = test.multi(&[(0, "a"), (0, "x"), (1, "b"), (2, "c")]);
        for request in [lock.try_lock(), lock.try_lock().wait(ms(0))] {
            let (taken, took) = timed(request.into_future()).await;
            assert!(taken.unwrap().is_none());
            // Without a message the waiter would poll again after LONG.
            assert!(took < LONG / 2, "{took:?}");
        }
        assert!(!lock.is_held().await.unwrap());
        elsewhere.unlock().await.unwrap();
        test.assert_clean().await;
    }
}

/// While it waits for one member, the others are free.
#[tokio::test]
async fn a_wait_holds_nothing_and_ends_in_time() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&[(0, "a"), (0, "b"), (1, "c")]);
    let others = test.others().await;
    for busy in [(0, "b"), (1, "c")] {
        let elsewhere = test.held_elsewhere(busy.0, busy.1).await;
        let (waiting, free) = tokio::join!(
            timed(lock.try_lock().wait(ms(1_500)).into_future()),
            async {
                tokio::time::sleep(ms(150)).await;
                let mut taken = 0;
                for _ in 0..20 {
                    let a = others[0].lock("a").try_lock().await.unwrap();
                    taken += i32::from(a.is_some());
                    drop(a);
                    tokio::time::sleep(ms(10)).await;
                }
                taken
            }
        );
        let (outcome, took) = waiting;
        match outcome {
            Ok(None) => {}
            // On a busy machine the first answer may be late.
            Err(late) if late.is_timeout() => {}
            other => panic!("{other:?}"),
        }
        assert!((ms(1_500)..SOON).contains(&took), "{took:?}");
        assert!(free >= 10, "it was free at {free} of 20 reads");
        elsewhere.unlock().await.unwrap();
        test.assert_clean().await;
    }
}

/// A message of the busy member wakes the waiter. Every timer is a minute long.
#[tokio::test]
async fn a_message_of_the_busy_member_wakes_the_waiter() {
    let test = Fixture::start(2).await;
    for busy in [(0, "a"), (0, "b"), (1, "c")] {
        let patient = test
            .servers
            .clients_with(|client| client.poll_cap(ms(60_000)))
            .await;
        let lock = multi(&patient, &[(0, "a"), (0, "b"), (1, "c")]);
        let elsewhere = test.held_elsewhere(busy.0, busy.1).await;
        let waiting = waiter(&lock);
        let channel = format!("redisson_lock__channel:{{{}}}", busy.1);
        eventually(SOON, "it listens for the one that blocks", async || {
            test.servers.redis[busy.0].channels().await == [channel.clone()]
        })
        .await;
        tokio::time::sleep(ms(100)).await;
        assert!(!waiting.is_finished());
        elsewhere.unlock().await.unwrap();
        let guard = tokio::time::timeout(SOON, waiting).await;
        let guard = guard.expect("it is woken").unwrap();
        guard.unlock().await.unwrap();
        drop((lock, patient));
        test.assert_clean().await;
    }
}

/// Two busy members one after the other: each wakes the waiter.
#[tokio::test]
async fn a_waiter_moves_from_one_busy_member_to_the_next() {
    let test = Fixture::start(2).await;
    let patient = test
        .servers
        .clients_with(|client| client.poll_cap(ms(60_000)))
        .await;
    let lock = multi(&patient, &[(0, "a"), (0, "b"), (1, "c")]);
    let mut elsewhere = Vec::new();
    for (server, name) in [(0, "a"), (0, "b"), (1, "c")] {
        elsewhere.push(test.held_elsewhere(server, name).await);
    }
    let waiting = waiter(&lock);
    for guard in elsewhere {
        tokio::time::sleep(ms(200)).await;
        assert!(!waiting.is_finished());
        guard.unlock().await.unwrap();
    }
    let guard = tokio::time::timeout(SOON, waiting).await;
    guard.expect("it is woken").unwrap().unlock().await.unwrap();
    drop((lock, patient));
    test.assert_clean().await;
}

/// The end of a lease wakes the waiter without a message.
#[tokio::test]
async fn the_ttl_of_the_busy_member_wakes_the_waiter() {
    let test = Fixture::start(2).await;
    let patient = test
        .servers
        .clients_with(|client| client.poll_cap(ms(60_000)))
        .await;
    let lock = multi(&patient, &[(0, "a"), (1, "c")]);
    let elsewhere = test.others().await[1].lock("c");
    let mut asked = Instant::now();
    let held = until_ok(SOON, async || {
        // Before the server counts.
        asked = Instant::now();
        elsewhere.lock().lease(ms(1_500)).await
    })
    .await;
    held.forget();
    let guard = tokio::time::timeout(SOON, lock.lock().into_future()).await;
    let guard = guard.expect("its timers are a minute long").unwrap();
    assert!(asked.elapsed() >= ms(1_490), "{:?}", asked.elapsed());
    guard.unlock().await.unwrap();
    test.assert_clean().await;
}

#[tokio::test]
async fn a_second_owner_waits_for_the_first() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&[(0, "a"), (0, "b"), (1, "c")]);
    // One owner of the same clients, and one of others.
    let others = multi(&test.others().await, &[(1, "c"), (0, "b"), (0, "a")]);
    for second in [&lock, &others] {
        let guard = lock.lock().lease(LONG).await.unwrap();
        let waiting = waiter(second);
        tokio::time::sleep(ms(300)).await;
        assert!(!waiting.is_finished());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        let next = tokio::time::timeout(SOON, waiting).await;
        next.expect("it gets it").unwrap().unlock().await.unwrap();
    }
    test.assert_clean().await;
}

/// A guard that was just dropped does not make the lock busy.
#[tokio::test]
async fn an_attempt_right_after_a_drop_succeeds() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&[(0, "a"), (0, "b"), (1, "c")]);
    for _ in 0..50 {
        let guard = lock.try_lock().await.unwrap().expect("it was dropped");
        drop(guard);
        let single = test.clients[0].lock("b").try_lock().await.unwrap();
        drop(single.expect("it was dropped"));
    }
    test.assert_clean().await;
}

/// The multi lock is served after earlier waiters of one member and before later ones.
#[tokio::test]
async fn a_waiter_keeps_its_place_in_the_queue_of_the_busy_member() {
    let test = Fixture::start(1).await;
    let single = test.clients[0].lock("a");
    let lock = test.multi(&[(0, "a"), (0, "b")]);
    let first = single.lock().owner(&Owner::new()).await.unwrap();
    let (granted, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for number in 0..6 {
        let (single, lock, granted) = (single.clone(), lock.clone(), granted.clone());
        tasks.spawn(async move {
            let guard = if number % 2 == 0 {
                single.lock().owner(&Owner::new()).await
            } else {
                lock.lock().owner(&Owner::new()).await
            };
            granted.send(number).unwrap();
            // The guard is dropped, because an unlock may hand the lock over, and only plain waiters
            // can receive that.
            drop(guard.unwrap());
        });
        // A multi lock sends an attempt before it enters the queue.
        eventually(SOON, "it waits in the queue", async || {
            test.clients[0].stats().waiters == number + 1
        })
        .await;
    }
    drop(first);
    drop(granted);
    let mut seen = Vec::new();
    while let Some(number) = order.recv().await {
        seen.push(number);
    }
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    test.assert_clean().await;
}

/// Without messages the waiter polls.
#[tokio::test]
async fn a_polling_client_gets_the_lock() {
    let test = Fixture::start(2).await;
    let backoff = Backoff::constant(ms(20));
    let polling = test
        .servers
        .clients_with(|client| client.wake(Wake::Poll(backoff)).poll_cap(ms(60_000)))
        .await;
    let lock = multi(&polling, &[(0, "a"), (1, "c")]);
    let elsewhere = test.held_elsewhere(1, "c").await;
    let waiting = waiter(&lock);
    tokio::time::sleep(ms(200)).await;
    assert!(!waiting.is_finished());
    assert!(test.servers.redis[1].channels().await.is_empty());
    elsewhere.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting).await;
    guard
        .expect("it tries again")
        .unwrap()
        .unlock()
        .await
        .unwrap();
    test.assert_clean().await;
}

/// Design: invariant 9. A future that was polled and left does not keep those behind it waiting.
#[tokio::test]
async fn an_unpolled_waiter_loses_its_turn() {
    let test = Fixture::start(2).await;
    let quick = test
        .servers
        .clients_with(|client| client.poll_cap(ms(200)))
        .await;
    let lock = multi(&quick, &[(0, "a"), (1, "c")]);
    let elsewhere = test.held_elsewhere(0, "a").await;
    let mut left = lock.lock().owner(&Owner::new()).into_future();
    for _ in 0..50 {
        let polled = tokio::time::timeout(ms(2), &mut left).await;
        assert!(polled.is_err(), "a is taken");
    }
    let single = quick[0].lock("a");
    let behind = tokio::spawn(single.lock().owner(&Owner::new()).into_future());
    tokio::time::sleep(ms(100)).await;
    elsewhere.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, behind).await;
    let guard = guard
        .expect("the queue passes to the next")
        .unwrap()
        .unwrap();
    guard.unlock().await.unwrap();
    // When the future is polled again it acquires the lock.
    let guard = tokio::time::timeout(SOON, left)
        .await
        .expect("all are free")
        .unwrap();
    guard.unlock().await.unwrap();
    test.assert_clean().await;
}

/// Design: invariant 14. The first attempt is granted every member, and no poll reads the answers.
#[tokio::test]
async fn an_unpolled_first_attempt_does_not_keep_the_members() {
    let test = Fixture::start(2).await;
    let members = [(0, "a"), (0, "b"), (1, "c")];
    let lock = test.multi(&members);
    // The connections are open from here on, so that one poll sends the commands.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let lease = ms(60_000);
    let mut left = lock.lock().lease(lease).into_future();
    assert!((&mut left).now_or_never().is_none());
    eventually(SOON, "every member is granted", async || {
        let granted = members.map(|(server, name)| test.is_free(server, name));
        !join_all(granted).await.contains(&true)
    })
    .await;
    let began = Instant::now();
    let others = multi(&test.others().await, &members);
    let guard = others.try_lock().wait(lease).await.unwrap();
    let guard = guard.expect("they are released");
    assert!(began.elapsed() < lease / 2, "{:?}", began.elapsed());
    // When it is polled again, it waits behind the present holders.
    let early = tokio::time::timeout(ms(500), &mut left).await;
    assert!(early.is_err(), "{early:?}");
    guard.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, left).await;
    guard
        .expect("they are free")
        .unwrap()
        .unlock()
        .await
        .unwrap();
    test.assert_clean().await;
}

/// The owner acquires and releases again what it has already, each time: no other owner wants it,
/// so it need not back off.
#[tokio::test]
async fn a_member_held_by_the_owner_causes_no_repeated_attempts() {
    let test = Fixture::start(2).await;
    let owner = Owner::new();
    let mine = test.clients[0].lock("mine").lock().owner(&owner);
    let mine = mine.await.unwrap();
    let elsewhere = [
        test.held_elsewhere(0, "busy").await,
        test.held_elsewhere(1, "busy").await,
    ];
    for (server, reentry) in [
        (0, Reentry::Local),
        (1, Reentry::Local),
        (1, Reentry::Counted),
    ] {
        let lock = test.multi(&[(0, "mine"), (server, "busy")]);
        for redis in &test.servers.redis {
            redis.reset_stats().await;
        }
        let request = lock.try_lock().owner(&owner).reentry(reentry);
        match request.wait(ms(1_000)).await {
            Ok(None) => {}
            // On a busy machine the last answer may be late.
            Err(late) if late.is_timeout() => {}
            other => panic!("{other:?}"),
        }
        // Two attempts, one of them after the subscription, and those of the default poll cap.
        let asked = test.scripts(server).await;
        assert!((1..=6).contains(&asked), "{server} {reentry:?}: {asked}");
    }
    assert_eq!(mine.hold_count(), 1);
    let [first, second] = elsewhere;
    first.unlock().await.unwrap();
    second.unlock().await.unwrap();
    mine.unlock().await.unwrap();
    test.assert_clean().await;
}
