//! Acquires and releases on a healthy server.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use lockdog::Client;
use lockdog::error::LostReason;
use tokio::task::JoinSet;

use super::{CHANNEL, Fixture, LEDGER, NAME, SOON, ms};
use crate::support::{Cell, eventually};

#[tokio::test]
async fn permits_are_in_redis_as_redisson_has_them_and_in_the_ledger() {
    let test = Fixture::with_permits(3).await;
    let messages = test.redis.messages("*").await;
    let two = test.seats.acquire_many(2).await.unwrap();
    assert_eq!((two.count(), two.name()), (2, NAME));
    assert_eq!((test.free().await, test.shares().await), (1, vec![2]));
    let mut keys = test.redis.keys().await;
    // The marks of the call that created the semaphore last for seconds.
    keys.retain(|key| !key.starts_with(&format!("{LEDGER}:")));
    assert_eq!(keys, [LEDGER, NAME]);
    assert_eq!(test.redis.pttl(LEDGER).await, -1);
    two.release().await.unwrap();
    assert_eq!((test.free().await, test.shares().await), (3, vec![]));
    eventually(SOON, "a message came", async || !messages.seen().is_empty()).await;
    assert_eq!(messages.seen(), [(CHANNEL.to_owned(), "3".to_owned())]);
    // The ledger lasts as long as the number.
    assert_eq!(test.redis.pttl(LEDGER).await, -1);
    let again = test.seats.acquire().await.unwrap();
    assert_eq!(test.redis.pttl(LEDGER).await, -1);
    drop(again);
}

#[tokio::test]
async fn an_acquire_and_a_release_are_one_command_each() {
    let test = Fixture::with_permits(3).await;
    drop(test.seats.acquire().await.unwrap());
    test.eventually_free().await;
    test.seats.acquire().await.unwrap().release().await.unwrap();
    // On a busy machine the client repeats a release that takes a second.
    eventually(SOON, "four commands are enough", async || {
        test.redis.reset_stats().await;
        test.seats.acquire().await.unwrap().release().await.unwrap();
        let three = test.seats.acquire_many(3).await.unwrap();
        three.release().await.unwrap();
        test.redis.commandstats().await.get("evalsha") == Some(&4)
    })
    .await;
}

#[tokio::test]
async fn a_dropped_permit_is_released() {
    let test = Fixture::with_permits(2).await;
    let both = test.seats.acquire_many(2).await.unwrap();
    assert_eq!(test.free().await, 0);
    drop(both);
    test.eventually_free().await;
    // A `try_acquire` of the same client waits for the release of a permit that was just dropped.
    for _ in 0..20 {
        drop(test.seats.acquire_many(2).await.unwrap());
        assert!(test.seats.try_acquire_many(2).await.unwrap().is_some());
    }
    test.eventually_free().await;
}

/// SE2: an acquire that finds too few permits takes none.
#[tokio::test]
async fn an_acquire_gets_all_of_its_permits_or_none() {
    let test = Fixture::with_permits(3).await;
    let two = test.seats.acquire_many(2).await.unwrap();
    assert!(test.seats.try_acquire_many(2).await.unwrap().is_none());
    assert_eq!((test.free().await, test.shares().await), (1, vec![2]));
    let one = test.seats.try_acquire().await.unwrap();
    assert!(one.is_some());
    assert!(test.seats.try_acquire().await.unwrap().is_none());
    assert_eq!(test.free().await, 0);
    two.release().await.unwrap();
    drop(one);
    test.eventually_free().await;
}

#[tokio::test]
async fn a_task_that_acquires_twice_has_the_permits_of_both() {
    let test = Fixture::with_permits(3).await;
    let one = test.seats.acquire().await.unwrap();
    let two = test.seats.acquire_many(2).await.unwrap();
    assert!(test.seats.try_acquire().await.unwrap().is_none());
    let mut held: Vec<u32> = test.client.holds().iter().map(|hold| hold.count).collect();
    held.sort_unstable();
    assert_eq!((held, test.shares().await), (vec![1, 2], vec![1, 2]));
    drop((one, two));
    test.eventually_free().await;
}

/// With one permit the semaphore is a mutex.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_of_one_permit_excludes() {
    let test = Fixture::with_permits(1).await;
    let clients = [
        test.seats.clone(),
        test.another().await,
        test.another().await,
    ];
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for n in 0..9 {
        let (seats, cell) = (clients[n % 3].clone(), cell.clone());
        tasks.spawn(async move {
            for round in 0..5 {
                let permit = seats.acquire().await.unwrap();
                cell.bump(ms(2)).await;
                match round % 2 {
                    0 => permit.release().await.unwrap(),
                    _ => drop(permit),
                }
            }
        });
    }
    tasks.join_all().await;
    cell.assert_exclusive(45);
    test.eventually_free().await;
}

/// SE1: no more permits are held at one time than there are.
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
    test.eventually_free().await;
}

#[tokio::test]
async fn a_shutdown_releases_permits() {
    let test = Fixture::with_permits(4).await;
    let client = Client::connect(test.server.url()).await.unwrap();
    let seats = client.semaphore(NAME);
    let two = seats.acquire_many(2).await.unwrap();
    seats.acquire().await.unwrap().forget();
    let report = client.shutdown().await;
    assert_eq!((report.released, report.unconfirmed), (2, 0));
    test.eventually_free().await;
    let error = two.release().await.unwrap_err();
    let lockdog::Error::Lost(lost) = error else {
        panic!("{error}")
    };
    assert_eq!(lost.reason(), LostReason::ShutDown);
    test.eventually_free().await;
}
