//! RW2: a writer excludes all other holders, among tasks and clients.

use lockdog::ReadWriteLock;

use super::{Fixture, NAME, ms, read, write};
use crate::support::{Cell, Dice};

async fn visits(rw: ReadWriteLock, cell: Cell, choices: Vec<u64>) -> i64 {
    let mut written = 0;
    for choice in choices {
        match choice {
            0 => {
                let guard = write(&rw).await;
                cell.bump(ms(2)).await;
                guard.unlock().await.unwrap();
                written += 1;
            }
            1 => {
                let guard = write(&rw).await;
                cell.bump(ms(1)).await;
                written += 1;
                let guard = guard.downgrade().await.unwrap();
                cell.read_as("downgraded", ms(1)).await;
                drop(guard);
            }
            2 => match read(&rw).await.upgrade().wait(ms(50)).await {
                Ok(guard) => {
                    cell.bump(ms(1)).await;
                    written += 1;
                    drop(guard);
                }
                Err(error) => {
                    let guard = error.into_guard().expect("it still reads");
                    cell.read_as("not upgraded", ms(1)).await;
                    guard.unlock().await.unwrap();
                }
            },
            _ => {
                let guard = read(&rw).await;
                cell.read_as("reader", ms(3)).await;
                guard.unlock().await.unwrap();
            }
        }
    }
    written
}

/// R28 to R30, with a cell that detects a failed exclusion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_of_several_clients_exclude_each_other() {
    let test = Fixture::new().await;
    let cell = Cell::new();
    let mut dice = Dice::from_environment();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let rw = test.another_with(|it| it).await;
        for _ in 0..4 {
            let choices = (0..40).map(|_| dice.roll(5)).collect();
            tasks.push(tokio::spawn(visits(rw.clone(), cell.clone(), choices)));
        }
    }
    let mut written = 0;
    for task in tasks {
        written += task.await.unwrap();
    }
    cell.assert_exclusive(written);
    assert!(
        written > 0 && cell.most_inside() > 1,
        "readers were never together"
    );
    test.assert_clean().await;
}

/// R28 to R30: one client with 15 owners, 16 clients with a hundred rounds each, and a hundred clients with one, all
/// with new handles for each call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_round_of_any_number_of_clients_fails() {
    let test = Fixture::new().await;
    let mut dice = Dice::from_environment();
    for (clients, owners, rounds) in [(1, 15, 1), (16, 1, 100), (100, 1, 1)] {
        let cell = Cell::new();
        let mut tasks = Vec::new();
        for _ in 0..clients {
            let client = lockdog::Client::connect(test.server.url()).await.unwrap();
            for _ in 0..owners {
                // A third of them write, because writers run one after the other.
                let choices: Vec<u64> = (0..rounds).map(|_| dice.roll(3)).collect();
                tasks.push(tokio::spawn(through_handles(
                    client.clone(),
                    cell.clone(),
                    choices,
                )));
            }
        }
        let mut written = 0;
        for task in tasks {
            written += task.await.unwrap();
        }
        cell.assert_exclusive(written);
        test.assert_clean().await;
    }
}

async fn through_handles(client: lockdog::Client, cell: Cell, choices: Vec<u64>) -> i64 {
    let handle = || client.read_write_lock(NAME);
    let mut written = 0;
    for choice in choices {
        if choice == 0 {
            handle().write().lock().await.unwrap().forget();
            cell.bump(ms(1)).await;
            written += 1;
            handle().write().unlock().await.unwrap();
        } else {
            handle().read().lock().await.unwrap().forget();
            cell.read_as("reader", ms(1)).await;
            handle().read().unlock().await.unwrap();
        }
    }
    written
}
