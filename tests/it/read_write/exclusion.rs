//! RW2: no writer beside anybody else, among tasks and clients.

use lockdog::ReadWriteLock;

use super::{Fixture, ms, read, write};
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
