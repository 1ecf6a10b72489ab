//! Permits without leases on the test server, whose clock is tokio's.

use std::time::Duration;

use lockdog::config::{Backoff, Wake};
use lockdog_test::Server;
use tokio::time::{Instant, sleep, timeout};

const LONG: Duration = Duration::from_secs(3 * 3600);
const MOMENT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_permit_without_a_lease_is_kept_for_hours() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let seats = client.semaphore("seats");
    assert!(seats.try_set_permits(3).await.unwrap());
    let two = seats.acquire_many(2).await.unwrap();
    let theirs = other.semaphore("seats");
    let waiting = tokio::spawn(theirs.acquire_many(2).into_future());
    sleep(LONG).await;
    assert!(!waiting.is_finished());
    assert_eq!(theirs.holders().await.unwrap().len(), 1);
    two.release().await.unwrap();
    let got = timeout(LONG, waiting).await.expect("a message wakes it");
    got.unwrap().unwrap().release().await.unwrap();
    assert_eq!(seats.available().await.unwrap(), 3);
    // The marks of unknown outcomes expire. The ledger lasts as long as the number.
    sleep(LONG).await;
    let mut keys = server.keys();
    keys.retain(|key| key.starts_with("lockdog_"));
    assert_eq!(keys, ["lockdog_ledger:{seats}"]);
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_ends_with_its_time_to_live() {
    let server = Server::new();
    let client = server.client().await;
    let seats = client.semaphore("seats");
    let ttl = Duration::from_secs(600);
    assert!(seats.try_set_permits_for(2, ttl).await.unwrap());
    let one = seats.acquire().await.unwrap();
    sleep(ttl + Duration::from_secs(1)).await;
    assert!(seats.try_acquire().await.unwrap().is_none());
    // The number ended, and the permit with it.
    let lost = one.release().await.unwrap_err();
    assert!(lost.to_string().contains("lost"), "{lost}");
    assert_eq!(seats.available().await.unwrap(), 0);
    assert!(seats.try_set_permits(1).await.unwrap());
    seats.acquire().await.unwrap().release().await.unwrap();
}

/// SE4: time is virtual, so no query of an earlier moment comes late.
#[tokio::test(start_paused = true)]
async fn several_free_permits_cost_a_client_one_command_each_and_one_more() {
    let server = Server::new();
    let client = server.client().await;
    let other = server.builder().poll_cap(LONG).build().await.unwrap();
    let seats = client.semaphore("seats");
    assert!(seats.try_set_permits(5).await.unwrap());
    let five = seats.acquire_many(5).await.unwrap();
    let theirs = other.semaphore("seats");
    let waiting: Vec<_> = (0..8)
        .map(|_| tokio::spawn(theirs.acquire().into_future()))
        .collect();
    sleep(MOMENT).await;
    let before = acquires(&server);
    assert!(before > 0);
    five.release().await.unwrap();
    sleep(MOMENT).await;
    let sent = acquires(&server) - before;
    assert!((5..=6).contains(&sent), "{sent} commands for 5 permits");
    let served = waiting.iter().filter(|waiter| waiter.is_finished());
    assert_eq!(served.count(), 5);
}

/// SE6: a hand-over takes no waiter's turn to ask for the permits that are still free.
#[tokio::test(start_paused = true)]
async fn tasks_of_one_client_use_all_permits_at_the_same_time() {
    for held in [
        Duration::ZERO,
        Duration::from_millis(1),
        Duration::from_millis(10),
    ] {
        let server = Server::new();
        server.delay(Duration::from_millis(1));
        let client = server.client().await;
        let seats = client.semaphore("seats");
        assert!(seats.try_set_permits(PERMITS).await.unwrap());
        let began = Instant::now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let seats = seats.clone();
                tokio::spawn(async move {
                    for _ in 0..ROUNDS {
                        let permit = seats.acquire().await.unwrap();
                        sleep(held).await;
                        permit.release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let took = began.elapsed();
        // A hand-over takes two or three times the delay.
        let turn = held + Duration::from_millis(4);
        let most = turn * TASKS * ROUNDS / PERMITS;
        assert!(
            took < most,
            "{took:?} with {held:?} for each, at most {most:?}"
        );
        assert_eq!(seats.available().await.unwrap(), i64::from(PERMITS));
    }
}

/// SE6: one permit is free, which is too few for the first waiter. That one gets others by a hand-over.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_with_a_hand_over_calls_one_that_wants_fewer_permits() {
    let server = Server::new();
    let client = server.builder().poll_cap(LONG).build().await.unwrap();
    let seats = client.semaphore("seats");
    assert!(seats.try_set_permits(3).await.unwrap());
    let two = seats.acquire_many(2).await.unwrap();
    let first = tokio::spawn(seats.acquire_many(2).into_future());
    sleep(MOMENT).await;
    let second = tokio::spawn(seats.acquire().into_future());
    sleep(MOMENT).await;
    assert!(!first.is_finished() && !second.is_finished());
    two.release().await.unwrap();
    let first = timeout(MOMENT, first).await.expect("it gets the two");
    let second = timeout(MOMENT, second).await.expect("one is free");
    assert_eq!(client.stats().hand_overs_total, 1);
    first.unwrap().unwrap().release().await.unwrap();
    second.unwrap().unwrap().release().await.unwrap();
    assert_eq!(seats.available().await.unwrap(), 3);
}

/// SE6: the first waiter gets the last free permit, so it neither subscribes nor polls. The next one does.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_the_last_free_permit_gets_the_next_one_of_another_client() {
    let polls = Wake::Poll(Backoff::constant(Duration::from_millis(10)));
    for wake in [Wake::PubSub, polls] {
        let server = Server::new();
        let theirs = server.client().await.semaphore("seats");
        assert!(theirs.try_set_permits(2).await.unwrap());
        let held = theirs.acquire().await.unwrap();
        server.delay(Duration::from_millis(1));
        let builder = server.builder().wake(wake).poll_cap(LONG);
        let seats = builder.build().await.unwrap().semaphore("seats");
        let waiting = [(); 2].map(|()| tokio::spawn(seats.acquire().into_future()));
        sleep(MOMENT).await;
        assert_eq!(waiting.iter().filter(|it| it.is_finished()).count(), 1);
        held.release().await.unwrap();
        let mut got = Vec::new();
        for one in waiting {
            let permit = timeout(MOMENT, one).await.expect("one is free");
            got.push(permit.unwrap().unwrap());
        }
        for permit in got {
            permit.release().await.unwrap();
        }
        assert_eq!(seats.available().await.unwrap(), 2);
    }
}

const PERMITS: u32 = 4;
const TASKS: u32 = 16;
const ROUNDS: u32 = 50;

fn acquires(server: &Server) -> usize {
    let digest = sha1_smol::Sha1::from(ACQUIRE).digest().to_string();
    let is_acquire = |command: &&Vec<String>| {
        let script = command.get(1);
        script.is_some_and(|script| *script == digest || script == ACQUIRE)
    };
    server.commands().iter().filter(is_acquire).count()
}

const ACQUIRE: &str = include_str!("../../../../lua/semaphore/acquire.lua");
