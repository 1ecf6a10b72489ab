//! Acquires and releases on a healthy server.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use lockdog::Client;
use lockdog::error::LostReason;
use tokio::task::JoinSet;

use super::{CHANNEL, Fixture, IN_USE, LONG, NAME, SOON, ms, poll_once};
use crate::fixture::patient;
use crate::support::{Cell, eventually};

#[tokio::test]
async fn a_permit_is_in_redis_as_redisson_has_it() {
    let test = Fixture::with_permits(3).await;
    let messages = test.redis.messages("*").await;
    let before = test.now().await;
    let permit = test.seats.acquire().await.unwrap();
    let after = test.now().await;
    assert!(permit.is_valid() && permit.count() == 1);
    assert_eq!(test.free().await, 2);
    let in_use = test.in_use().await;
    let [(id, ends)] = in_use[..] else {
        panic!("{in_use:?}")
    };
    assert_eq!(permit.ids(), [id]);
    // Without a lease it is the watchdog's.
    let began = ends - 30_000.0;
    assert!(began >= before - 1.0 && began <= after, "{ends}");
    assert_eq!(test.redis.pttl(IN_USE).await, -1);
    permit.release().await.unwrap();
    assert_eq!(test.redis.unmarked_keys().await, [NAME]);
    assert_eq!(test.free().await, 3);
    eventually(SOON, "a message came", async || !messages.seen().is_empty()).await;
    let seen = messages.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(format!("{seen:?}").contains(CHANNEL), "{seen:?}");
    assert!(format!("{seen:?}").contains("\"3\""), "{seen:?}");
}

#[tokio::test]
async fn an_acquire_and_a_release_are_one_command_each() {
    let test = Fixture::with_permits(3).await;
    drop(test.seats.acquire().await.unwrap());
    test.eventually_free().await;
    test.seats.acquire().await.unwrap().release().await.unwrap();
    // On a busy machine the client repeats a release that takes a second.
    eventually(SOON, "three commands are enough", async || {
        test.redis.reset_stats().await;
        test.seats.acquire().await.unwrap().release().await.unwrap();
        let three = test.seats.acquire_many(3).await.unwrap();
        let sent = test.redis.commandstats().await.get("evalsha").copied();
        three.release().await.unwrap();
        sent == Some(3)
    })
    .await;
}

#[tokio::test]
async fn a_dropped_permit_is_released() {
    let test = Fixture::with_permits(2).await;
    let both = test.seats.acquire_many(2).await.unwrap();
    assert_eq!((test.free().await, test.in_use().await.len()), (0, 2));
    drop(both);
    test.eventually_free().await;
    // A `try_acquire` of the same client waits for the release of a permit that was just dropped.
    for _ in 0..20 {
        drop(test.seats.acquire_many(2).await.unwrap());
        assert!(test.seats.try_acquire_many(2).await.unwrap().is_some());
    }
    test.eventually_free().await;
}

#[tokio::test]
async fn an_acquire_gets_all_of_its_permits_or_none() {
    let test = Fixture::with_permits(3).await;
    let two = test.seats.acquire_many(2).await.unwrap();
    assert!(test.seats.try_acquire_many(2).await.unwrap().is_none());
    assert_eq!((test.free().await, test.in_use().await.len()), (1, 2));
    let one = test.seats.try_acquire().await.unwrap();
    assert!(one.is_some());
    assert!(test.seats.try_acquire().await.unwrap().is_none());
    two.release().await.unwrap();
    drop(one);
    test.eventually_free().await;
}

#[tokio::test]
async fn a_task_that_acquires_twice_has_two_permits() {
    let test = Fixture::with_permits(2).await;
    let [first, second] = [
        test.seats.acquire().await.unwrap(),
        test.seats.acquire().await.unwrap(),
    ];
    assert_ne!(first.ids(), second.ids());
    assert!(
        first.is_valid() && second.is_valid(),
        "a grant ends no other permit"
    );
    assert!(test.seats.try_acquire().await.unwrap().is_none());
    let holds = test.client.holds();
    let mut held: Vec<&str> = holds.iter().map(|hold| &*hold.field).collect();
    held.sort_unstable();
    let mut ids = [&first, &second].map(|permit| permit.ids()[0].to_string());
    ids.sort();
    assert_eq!(held, ids);
    assert!(holds.iter().all(|hold| hold.watched && hold.lock == NAME));
    test.assert_total().await;
}

/// PE2 with one permit: the semaphore is a mutex. RedissonPermitExpirableSemaphoreTest.testConcurrency_SingleInstance,
/// testConcurrencyLoop_MultiInstance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_of_one_permit_excludes() {
    let test = Fixture::with_permits(1).await;
    for (clients, tasks, rounds) in [(1, 100, 1), (16, 16, 100)] {
        let mut handles = Vec::new();
        for _ in 0..clients {
            // Only messages and expiries wake its waiters.
            let client = patient(test.server.url()).poll_cap(LONG);
            let client = client.build().await.unwrap();
            handles.push(client.permit_semaphore(NAME));
        }
        let cell = Cell::new();
        let mut running = JoinSet::new();
        for n in 0..tasks {
            let (seats, cell) = (handles[n % clients].clone(), cell.clone());
            running.spawn(async move {
                for round in 0..rounds {
                    let permit = seats.acquire().await.unwrap();
                    cell.bump(ms(1)).await;
                    match (n + round) % 2 {
                        0 => permit.release().await.unwrap(),
                        _ => drop(permit),
                    }
                }
            });
        }
        running.join_all().await;
        cell.assert_exclusive((tasks * rounds) as i64);
    }
    test.eventually_free().await;
}

/// PE2: no more permits are held at one time than there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_permits_are_held_than_there_are() {
    let test = Fixture::with_permits(4).await;
    let clients = [
        test.seats.clone(),
        test.another().await,
        test.another().await,
    ];
    // The times at which permits were certainly held: after the acquire and before the release.
    let times: Arc<Mutex<Vec<(Instant, i64)>>> = Arc::default();
    let mut tasks = JoinSet::new();
    for n in 0..12_usize {
        let (seats, times) = (clients[n % 3].clone(), times.clone());
        tasks.spawn(async move {
            for round in 0..8 {
                let permits = 1 + (n + round) % 3;
                let held = seats.acquire_many(permits as u32).await.unwrap();
                let began = Instant::now();
                tokio::time::sleep(ms(3)).await;
                assert!(held.is_valid());
                let ended = Instant::now();
                let held_from_to = [(began, permits as i64), (ended, -(permits as i64))];
                times.lock().unwrap().extend(held_from_to);
                held.release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let mut times = std::mem::take(&mut *times.lock().unwrap());
    times.sort();
    let (mut held, mut most) = (0, 0);
    for (_, change) in times {
        held += change;
        most = most.max(held);
    }
    assert!(
        (2..=4).contains(&most),
        "{most} of 4 permits were held at once"
    );
    test.assert_total().await;
    test.eventually_free().await;
}

#[tokio::test]
async fn a_shutdown_releases_permits_and_reports_their_loss() {
    let test = Fixture::with_permits(3).await;
    let client = Client::connect(test.server.url()).await.unwrap();
    let seats = client.permit_semaphore(NAME);
    let two = seats.acquire_many(2).await.unwrap();
    let token = two.lost_token();
    let report = client.shutdown().await;
    assert_eq!((report.released, report.unconfirmed), (2, 0));
    assert_eq!(two.lost().await.reason(), LostReason::ShutDown);
    assert!(token.is_cancelled() && !two.is_valid());
    test.eventually_free().await;
}

#[tokio::test]
async fn a_cancelled_acquire_leaves_no_permit_in_use() {
    let test = Fixture::with_permits(2).await;
    for _ in 0..10 {
        let request = test.seats.acquire_many(2).into_future();
        assert!(poll_once(request).await.is_none());
    }
    test.eventually_free().await;
    let both = test.seats.acquire_many(2).await.unwrap();
    assert!(poll_once(both.release()).await.is_none());
    test.eventually_free().await;
}
