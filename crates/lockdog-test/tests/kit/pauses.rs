//! How soon a waiter notices a release without a message.

use std::time::Duration;

use lockdog::config::Backoff;
use lockdog::{Client, Lock, MultiLock, RedLock};
use lockdog_test::Server;
use tokio::time::{Instant, sleep};

/// Clients of these servers, in the order in which a RedLock asks them: its queue is in the first one.
async fn clients(servers: &[Server; 3]) -> Vec<Client> {
    let mut clients = Vec::new();
    for server in servers {
        clients.push(server.client().await);
    }
    clients.sort_by_key(Client::id);
    clients
}

/// The longest time from a release of `held` until a waiter for `wanted` has the lock.
async fn slowest(held: &RedLock, wanted: &RedLock) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..ROUNDS {
        let guard = held.lock().await.unwrap();
        let lock = wanted.clone();
        let waiter = tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            let got = Instant::now();
            guard.unlock().await.unwrap();
            got
        });
        sleep(HELD_FOR).await;
        let released = Instant::now();
        guard.unlock().await.unwrap();
        slowest = slowest.max(waiter.await.unwrap() - released);
    }
    slowest
}

#[tokio::test(start_paused = true)]
async fn a_red_lock_polls_as_often_as_its_most_frequent_instance() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let (holds, waits) = (clients(&servers).await, clients(&servers).await);
    let pause = Duration::from_millis(10);
    let spin = |client: &Client| client.spin_lock("orders");
    let plain = |client: &Client| client.lock("orders");
    for (own, longest) in [(None, Duration::from_millis(150)), (Some(pause), pause * 2)] {
        // Most instances publish no messages, but the one with the queue does.
        let mut wanted = vec![plain(&waits[0]), spin(&waits[1]), spin(&waits[2])];
        if let Some(pause) = own {
            wanted[2] = wanted[2].backoff(Backoff::constant(pause));
        }
        let held = RedLock::new(holds.iter().map(spin));
        let took = slowest(&held, &RedLock::new(wanted)).await;
        assert!(took <= longest, "{took:?}");
    }
    for server in &servers {
        server.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn locks_of_several_use_the_backoff_of_their_members() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let (holds, waits) = (clients(&servers).await, clients(&servers).await);
    for server in &servers {
        server.lose_messages(true);
    }
    let pause = Duration::from_millis(10);
    let wanted: Vec<Lock> = waits
        .iter()
        .map(|client| client.lock("orders").backoff(Backoff::constant(pause)))
        .collect();
    let held = RedLock::new(holds.iter().map(|client| client.lock("orders")));
    let took = slowest(&held, &RedLock::new(wanted.clone())).await;
    assert!(took <= pause * 2, "{took:?}");

    let multi = MultiLock::new(wanted);
    for _ in 0..ROUNDS {
        let guard = holds[1].lock("orders").lock().await.unwrap();
        let lock = multi.clone();
        let waiter = tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            (guard, Instant::now())
        });
        sleep(HELD_FOR).await;
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let (guard, got) = waiter.await.unwrap();
        assert!(got - released <= pause * 2, "{:?}", got - released);
        guard.unlock().await.unwrap();
    }
    for server in &servers {
        server.assert_clean().await;
    }
}

/// The pauses of a spin lock have grown by then. A waiter that polls once per poll cap has just polled,
/// and polls again after most of the next poll cap.
const HELD_FOR: Duration = Duration::from_millis(1_200);
const ROUNDS: u32 = 3;
