//! Two owners never hold the lock at the same time and every owner acquires it, with members of all
//! kinds.

use lockdog::Owner;
use tokio::task::JoinSet;

use super::*;
use crate::multi_lock::{SOON, ms};
use crate::support::Cell;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_of_members_of_all_kinds_exclude_each_other_without_deadlock() {
    let test = Fixture::start(2).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for number in 0..4 {
        let mut members = mixed(&test.others().await);
        if number % 2 == 0 {
            members.reverse();
        }
        tasks.spawn(rounds(MultiLock::new(members), cell.clone()));
    }
    tokio::time::timeout(SOON * 4, tasks.join_all())
        .await
        .expect("each wait ends");
    cell.assert_exclusive(4 * ROUNDS);
    test.assert_clean().await;
}

/// For each kind: multi locks of two members of that kind, in both orders, beside owners of one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_of_each_kind_in_opposite_orders_do_not_deadlock() {
    let test = Fixture::start(2).await;
    for kind in KINDS.into_iter().filter(|kind| kind.name != "read") {
        let (both, one) = (Cell::new(), Cell::new());
        let mut tasks = JoinSet::new();
        for number in 0..4 {
            let clients = test.others().await;
            let mut members = vec![(kind.lock)(&clients[0], "x"), (kind.lock)(&clients[1], "y")];
            if number % 2 == 0 {
                members.reverse();
            }
            tasks.spawn(rounds(MultiLock::new(members), both.clone()));
        }
        let alone = (kind.lock)(&test.clients[0], "x");
        let (cell, visited) = (both.clone(), one.clone());
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = alone.lock().owner(&Owner::new()).await.unwrap();
                cell.bump(ms(1)).await;
                visited.bump(ms(0)).await;
                guard.unlock().await.unwrap();
                tokio::time::sleep(ms(5)).await;
            }
        });
        let ended = tokio::time::timeout(SOON * 4, tasks.join_all()).await;
        ended.unwrap_or_else(|_| panic!("{}: a wait does not end", kind.name));
        both.assert_exclusive(5 * ROUNDS);
        one.assert_exclusive(ROUNDS);
        test.assert_clean().await;
    }
}

async fn rounds(lock: MultiLock, cell: Cell) {
    for round in 0..ROUNDS {
        let guard = lock.lock().owner(&Owner::new()).await;
        let guard = guard.expect("nothing is wrong with the servers");
        cell.bump(ms(1)).await;
        // Released by unlock and by drop.
        if round % 3 == 0 {
            drop(guard);
        } else {
            guard.unlock().await.expect("it is held");
        }
    }
}

const ROUNDS: i64 = 25;
