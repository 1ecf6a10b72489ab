//! Two owners never hold a lock at the same time: a value that both would write shows it.

use std::time::Duration;

use lockdog::{Client, Owner};
use tokio::task::JoinSet;

use super::{Fixture, Kind, each_kind, ms};
use crate::kinds::PLAIN;
use crate::support::Cell;

each_kind! {
    every: {
        tasks_of_one_client_exclude_each_other 2
        many_rounds_of_many_clients_exclude_each_other 2
        one_round_of_very_many_clients_exclude_each_other 2
        two_owners_on_one_worker_thread_exclude_each_other
    }
    reentrant: {
        every_way_to_acquire_and_release_excludes_all_others 2
    }
    reentrant_without_modes: {
        one_owner_in_two_tasks_is_one_owner_with_one_count 2
    }
}

async fn tasks_of_one_client_exclude_each_other(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for _ in 0..15 {
        tasks.spawn(rounds(kind, test.client.clone(), cell.clone(), 4, ms(1)));
    }
    tasks.join_all().await;
    cell.assert_exclusive(60);
    test.redis.assert_clean().await;
    assert!(test.redis.keys().await.is_empty());
}

async fn many_rounds_of_many_clients_exclude_each_other(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    // Each release wakes all clients, which costs processor time. One kind is enough for the shared code.
    let clients = match kind.object == PLAIN.object {
        true => 16,
        false => 6,
    };
    for _ in 0..clients {
        tasks.spawn(rounds(kind, test.another().await, cell.clone(), 100, ms(1)));
    }
    tasks.join_all().await;
    cell.assert_exclusive(clients * 100);
    test.redis.assert_clean().await;
    assert!(test.redis.keys().await.is_empty());
}

async fn one_round_of_very_many_clients_exclude_each_other(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        tasks.spawn(rounds(kind, test.another().await, cell.clone(), 1, ms(1)));
    }
    tasks.join_all().await;
    cell.assert_exclusive(100);
    test.redis.assert_clean().await;
    assert!(test.redis.keys().await.is_empty());
}

/// Several clients with several explicit owners each. Guards are unlocked and dropped, and calls wait
/// forever, for a time, or not at all. All use one cell.
async fn every_way_to_acquire_and_release_excludes_all_others(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = test.another().await;
        for number in 0..4 {
            tasks.spawn(mixed(
                kind,
                client.clone(),
                cell.clone(),
                Owner::from_id(number),
            ));
        }
    }
    let entered: i64 = tasks.join_all().await.into_iter().sum();
    assert!(entered >= 12 * 6, "only {entered} entries");
    cell.assert_exclusive(entered);
    test.redis.assert_clean().await;
}

async fn one_owner_in_two_tasks_is_one_owner_with_one_count(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let owner = Owner::from_id(7);
    let cell = Cell::new();
    for _ in 0..20 {
        let both = || {
            let request = lock.lock().owner(&owner);
            tokio::spawn(async move { request.await.unwrap() })
        };
        let (a, b) = tokio::join!(both(), both());
        let (a, b) = (a.unwrap(), b.unwrap());
        let fields = test.redis.hash("l").await;
        assert_eq!(fields.len(), 1, "two holds: {fields:?}");
        assert_eq!(fields.values().next().unwrap(), "2");
        let stranger = rounds(kind, test.client.clone(), cell.clone(), 1, Duration::ZERO);
        let stranger = tokio::spawn(stranger);
        let (a, b) = tokio::join!(a.unlock(), b.unlock());
        assert!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
        stranger.await.unwrap();
    }
    cell.assert_exclusive(20);
    test.redis.assert_clean().await;
}

async fn two_owners_on_one_worker_thread_exclude_each_other(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        tasks.spawn(rounds(kind, test.client.clone(), cell.clone(), 15, ms(1)));
    }
    tasks.join_all().await;
    cell.assert_exclusive(30);
    test.redis.assert_clean().await;
}

/// Locks, increments and unlocks this many times, through a new handle each time.
async fn rounds(kind: &Kind, client: Client, cell: Cell, rounds: usize, pause: Duration) {
    for _ in 0..rounds {
        let guard = kind.lock(&client, "l").lock().await.unwrap();
        cell.bump(pause).await;
        guard.unlock().await.unwrap();
    }
}

async fn mixed(kind: &Kind, client: Client, cell: Cell, owner: Owner) -> i64 {
    let lock = kind.lock(&client, "l");
    let mut entered = 0;
    for round in 0..8 {
        let guard = match round % 4 {
            0 => lock.try_lock().owner(&owner).await.unwrap(),
            1 => lock
                .try_lock()
                .owner(&owner)
                .wait(ms(60_000))
                .await
                .unwrap(),
            2 => Some(lock.lock().owner(&owner).lease(ms(60_000)).await.unwrap()),
            _ => Some(lock.lock().owner(&owner).await.unwrap()),
        };
        let Some(guard) = guard else { continue };
        let inner = lock.lock().owner(&owner).await.unwrap();
        cell.bump(ms(1)).await;
        entered += 1;
        drop(inner);
        if round % 2 == 0 {
            drop(guard);
        } else {
            guard.unlock().await.unwrap();
        }
    }
    entered
}
