//! The list of clients that wait for a plain lock: which of them a release wakes, and what a client that does not come
//! costs the others. Decision 111 has the schedules. No timer wakes a waiter during these tests.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockdog::{Client, Guard, Lock, MultiLock};
use lockdog_test::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{LONG, ms};

async fn client(server: &Server) -> Client {
    let client = server.builder().poll_cap(LONG);
    client.build().await.expect("the server is there")
}

async fn three_clients(server: &Server) -> [Client; 3] {
    [
        client(server).await,
        client(server).await,
        client(server).await,
    ]
}

/// Waits in a task of its own. The lock is released when the guard is dropped.
fn waiter(lock: Lock) -> JoinHandle<(Guard, Instant)> {
    tokio::spawn(async move {
        let guard = lock.lock().await.expect("the server is there");
        (guard, Instant::now())
    })
}

/// Releases the lock. Returns the guard of the waiter that gets it, and how long that took.
async fn hand_over(held: Guard, waiter: JoinHandle<(Guard, Instant)>) -> (Guard, Duration) {
    let released = Instant::now();
    held.unlock().await.unwrap();
    let woken = timeout(SOON, waiter).await;
    let (guard, got) = woken.expect("a message wakes it").expect("it waits");
    (guard, got - released)
}

/// The cost of a hand-over does not grow with the number of clients. With the longer hold, the second client in the
/// list asks once while the first one has the lock, and is listed again in front.
#[tokio::test(start_paused = true)]
async fn clients_get_the_lock_in_the_order_of_their_calls_for_a_few_commands_each() {
    for (waiting, held_for) in [(2, 5), (8, 5), (32, 5), (8, 30)] {
        let server = Server::new();
        let held = client(&server).await.lock("orders");
        let held = held.lock().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut turns = Vec::new();
        for number in 0..waiting {
            let (client, order) = (client(&server).await, order.clone());
            turns.push(tokio::spawn(async move {
                let guard = client.lock("orders").lock().await.unwrap();
                order.lock().unwrap().push(number);
                sleep(ms(held_for)).await;
                guard.unlock().await.unwrap();
            }));
            sleep(ms(100)).await;
        }
        let before = scripts(&server);
        held.unlock().await.unwrap();
        for turn in turns {
            let ended = timeout(SOON, turn).await;
            ended.expect("a message wakes it").unwrap();
        }
        let sent = scripts(&server) - before;
        assert!(sent <= 4 * waiting, "{sent} for {waiting} clients");
        assert_eq!(*order.lock().unwrap(), (0..waiting).collect::<Vec<_>>());
        server.assert_clean().await;
    }
}

/// A release wakes the client that has waited longest, whose future is not polled any more.
#[tokio::test(start_paused = true)]
async fn the_next_client_gets_the_lock_soon_if_the_first_one_is_frozen() {
    let server = Server::new();
    let [holds, first, next] = three_clients(&server).await;
    let held = holds.lock("orders").lock().await.unwrap();
    let mut frozen = pin!(first.lock("orders").lock().into_future());
    assert!(timeout(ms(500), frozen.as_mut()).await.is_err());
    let next = waiter(next.lock("orders"));
    sleep(ms(500)).await;
    let (guard, took) = hand_over(held, next).await;
    assert!(took > HEAD_START / 2, "{took:?}: both were woken");
    assert!(took < HEAD_START * 5, "{took:?}");
    guard.unlock().await.unwrap();
    let guard = timeout(SOON, frozen).await.expect("it was woken");
    guard.unwrap().unlock().await.unwrap();
    server.assert_clean().await;
}

/// A waiter that gives up leaves its place in the list, and does not listen any more.
#[tokio::test(start_paused = true)]
async fn a_client_that_gave_up_costs_the_next_one_nothing() {
    let server = Server::new();
    let [holds, first, next] = three_clients(&server).await;
    let held = holds.lock("orders").lock().await.unwrap();
    let gave_up = first.lock("orders");
    let gave_up = tokio::spawn(async move { gave_up.try_lock().wait(ms(1_000)).await });
    sleep(ms(500)).await;
    let next = waiter(next.lock("orders"));
    assert!(gave_up.await.unwrap().unwrap().is_none());
    sleep(ms(5_000)).await;
    let (guard, took) = hand_over(held, next).await;
    assert!(took < HEAD_START / 2, "{took:?}");
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

/// A call that waits for several locks is in no list. The only listed client is frozen, so a release that woke it alone
/// would leave the lock free.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_listed_is_woken_with_the_others() {
    let server = Server::new();
    let [holds, listed, several] = three_clients(&server).await;
    let held = holds.lock("orders").lock().await.unwrap();
    let mut frozen = pin!(listed.lock("orders").lock().into_future());
    assert!(timeout(ms(500), frozen.as_mut()).await.is_err());
    let both = MultiLock::new(["orders", "stock"].map(|name| several.lock(name)));
    let both = tokio::spawn(async move { both.lock().await.unwrap().unlock().await });
    sleep(ms(500)).await;
    assert!(!both.is_finished());
    held.unlock().await.unwrap();
    let ended = timeout(SOON, both).await;
    ended.expect("a message wakes it").unwrap().unwrap();
    let guard = timeout(SOON, frozen).await.expect("it was woken");
    guard.unwrap().unlock().await.unwrap();
    server.assert_clean().await;
}

/// The list is a hint: without it a release wakes everyone.
#[tokio::test(start_paused = true)]
async fn a_release_that_finds_no_list_wakes_the_waiters() {
    let server = Server::new();
    let (holds, waits) = (client(&server).await, client(&server).await);
    let held = holds.lock("orders").lock().await.unwrap();
    let waiter = waiter(waits.lock("orders"));
    sleep(ms(500)).await;
    let mut connection = server.connect();
    let delete = b"*2\r\n$3\r\nDEL\r\n$24\r\nlockdog_waiters:{orders}\r\n";
    connection.write_all(delete).await.unwrap();
    let mut answer = [0; 4];
    connection.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b":1\r\n", "the client was listed");
    let (guard, took) = hand_over(held, waiter).await;
    assert!(took < HEAD_START / 2, "{took:?}");
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

/// How many scripts clients have run.
fn scripts(server: &Server) -> usize {
    let sent = server.commands();
    let is_script = |command: &&Vec<String>| command[0].eq_ignore_ascii_case("evalsha");
    sent.iter().filter(is_script).count()
}

/// How long a client that was woken alone is left alone with the free lock.
const HEAD_START: Duration = ms(20);
/// Below the end of a lease and the poll cap.
const SOON: Duration = ms(5_000);
