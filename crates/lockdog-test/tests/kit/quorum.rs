//! Locks on several servers, with calls and leases as long as Redisson's own tests have them.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::report::Verdict;
use lockdog::{Client, Guard, Owner, RedLock, Unlocked};
use lockdog_test::Server;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::logs::break_at;

/// A nested call that is dropped or abandoned does not make a round fail.
#[tokio::test(start_paused = true)]
async fn abandoned_nested_acquires_do_not_harm_the_outer_hold() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let mut members = Vec::new();
    for server in &servers {
        // With this delay a round is under way when its caller is dropped.
        server.delay(Duration::from_millis(20));
        let lease = Duration::from_secs(3);
        let client = server.builder().watchdog_lease(lease).build().await;
        members.push(client.unwrap().lock("l"));
    }
    let lock = RedLock::new(members);
    let outer = lock.lock().await.unwrap();
    sleep(Duration::from_millis(100)).await;
    assert_healthy(&outer);
    let mut left = Vec::new();
    for number in 0..100 {
        // Each needs it for longer than the one before, so that every instance is asked.
        let lease = Duration::from_secs(10) + Duration::from_millis(50) * number;
        let mut inner = lock.lock().lease(lease).into_future();
        assert!(
            waits_after_one_poll(&mut inner).await,
            "it sends commands to every instance"
        );
        sleep(Duration::from_millis(u64::from(number % 45))).await;
        if number % 10 == 0 {
            left.push(inner);
        } else {
            drop(inner);
        }
        assert_healthy(&outer);
    }
    sleep(Duration::from_secs(20)).await;
    assert_healthy(&outer);
    drop(left);
    outer.unlock().await.unwrap();
    assert_clean(&servers).await;
}

/// The abandoned calls do not read their grants, and `force_unlock` frees them. Rounds wait for
/// releases of their clients.
#[tokio::test(start_paused = true)]
async fn abandoned_acquires_freed_by_force_delay_no_round() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let clients = clients(&servers).await;
    let mut left = Vec::new();
    for (client, server) in clients.iter().zip(&servers[..2]) {
        let lock = client.lock("l");
        let mut call = lock.lock().owner(&Owner::new()).into_future();
        while server.holder("l").is_none() {
            assert!(
                waits_after_one_poll(&mut call).await,
                "it has read no grant"
            );
            sleep(Duration::from_millis(1)).await;
        }
        assert!(lock.force_unlock().await.unwrap());
        left.push(call);
    }
    sleep(Duration::from_secs(1)).await;
    let lock = red_lock(&clients);
    let began = Instant::now();
    let guard = lock.lock().await.unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_millis(100), "{took:?}");
    guard.unlock().await.unwrap();
    drop(left);
    assert_clean(&servers).await;
}

/// A call without a lease needs renewal, but its claim does not count before it is polled again.
#[tokio::test(start_paused = true)]
async fn an_abandoned_nested_call_does_not_renew_a_fixed_lease() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let clients = clients(&servers).await;
    let lock = red_lock(&clients);
    let outer = lock.lock().lease(Duration::from_secs(5)).await.unwrap();
    for server in &servers {
        server.delay(Duration::from_millis(20));
    }
    let mut nested = lock.lock().into_future();
    assert!(
        waits_after_one_poll(&mut nested).await,
        "it sends commands to every instance"
    );
    // It asks once for the lease of a call without one, which is 30 s.
    let lost = timeout(Duration::from_secs(40), outer.lost()).await;
    let lost = lost.expect("no claim renews it");
    assert_eq!(lost.reason(), LostReason::Deadline);
    drop((nested, outer));
    assert_clean(&servers).await;
}

/// The owner unlocks its last guard while a nested call waits for its round of extension. Nothing is lost, so the call
/// acquires the lock.
#[tokio::test(start_paused = true)]
async fn a_nested_call_acquires_again_what_its_owner_unlocked_meanwhile() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let clients = clients(&servers).await;
    let lock = red_lock(&clients);
    let outer = lock.lock().lease(Duration::from_secs(5)).await.unwrap();
    for server in &servers {
        server.delay(Duration::from_millis(20));
    }
    let unlocked = async {
        sleep(Duration::from_millis(5)).await;
        outer.unlock().await
    };
    let longer = lock.lock().lease(Duration::from_secs(60)).into_future();
    let (nested, unlocked) = tokio::join!(longer, unlocked);
    assert_eq!(
        unlocked.unwrap(),
        Unlocked::Released,
        "the nested call does not count yet"
    );
    let nested = nested.expect("its owner lost nothing");
    assert_eq!(nested.hold_count(), 1);
    assert!(nested.remaining() > Duration::from_secs(30));
    nested.unlock().await.unwrap();
    assert_clean(&servers).await;
}

/// The user's log subscriber panics when the client logs that it won the lock. So the caller gets no guard.
#[tokio::test(start_paused = true)]
async fn a_lock_is_released_if_the_log_event_of_its_grant_panics() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let clients = clients(&servers).await;
    let lock = red_lock(&clients);
    let (_, broken) = break_at("lockdog::quorum");
    let call = tokio::spawn(lock.lock().into_future()).await;
    drop(broken);
    assert!(call.unwrap_err().is_panic());
    assert_clean(&servers).await;
}

/// The background has not reported the loss when the guard is dropped, so the drop reports it.
#[tokio::test(start_paused = true)]
async fn the_drop_of_a_guard_does_not_panic_with_the_log_subscriber() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let clients = clients(&servers).await;
    let lock = red_lock(&clients);
    let guard = lock.lock().await.unwrap();
    sleep(Duration::from_millis(100)).await;
    assert_healthy(&guard);
    for client in &clients[..2] {
        assert!(client.lock("l").force_unlock().await.unwrap());
    }
    let (is_whole, broken) = break_at("lockdog::quorum");
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(guard)));
    drop(broken);
    assert!(!is_whole.load(Ordering::Relaxed), "it reported nothing");
    assert!(dropped.is_ok());
    assert_clean(&servers).await;
}

fn red_lock(clients: &[Client]) -> RedLock {
    RedLock::new(clients.iter().map(|client| client.lock("l")))
}

/// Polls the call once. Returns whether it waits for something.
async fn waits_after_one_poll(call: &mut (impl Future + Unpin)) -> bool {
    poll_fn(|context| Poll::Ready(pin!(&mut *call).poll(context).is_pending())).await
}

async fn assert_clean(servers: &[Server]) {
    for server in servers {
        server.assert_clean().await;
    }
}

fn assert_healthy(guard: &Guard) {
    assert_eq!(guard.verdict(), Verdict::Held, "{:?}", guard.instances());
    assert!(guard.is_valid());
    assert_eq!(guard.margin(), 1, "{:?}", guard.instances());
}

/// With the leases of Redisson's tests, and in virtual time: seven names on two servers, ten tasks of one
/// client set, five turns each.
#[tokio::test(start_paused = true)]
async fn ten_tasks_lose_no_update_on_seven_names_on_two_servers() {
    let servers = [Server::new(), Server::new()];
    let clients = clients(&servers).await;
    let locks = (0..10).map(|_| seven(&clients)).collect();
    fifty_turns(locks, None).await;
}

/// The same with clients of its own for each task.
#[tokio::test(start_paused = true)]
async fn ten_client_sets_lose_no_update_on_seven_names_on_two_servers() {
    let servers = [Server::new(), Server::new()];
    let mut locks = Vec::new();
    for _ in 0..10 {
        locks.push(seven(&clients(&servers).await));
    }
    fifty_turns(locks, None).await;
}

/// Three names on two servers, `tryLock(4 s, lease 2 s)` and 1 s of work.
#[tokio::test(start_paused = true)]
async fn ten_tasks_with_bounded_waits_lose_no_update_on_three_names_on_two_servers() {
    let servers = [Server::new(), Server::new()];
    let clients = clients(&servers).await;
    let three = || {
        let names = [(0, "lock1"), (1, "lock2"), (1, "lock3")];
        RedLock::new(names.map(|(client, name): (usize, _)| clients[client].lock(name)))
    };
    let locks = (0..10).map(|_| three()).collect();
    fifty_turns(locks, Some(Duration::from_secs(4))).await;
}

async fn clients(servers: &[Server]) -> Vec<Client> {
    let mut clients = Vec::new();
    for server in servers {
        clients.push(server.client().await);
    }
    clients
}

/// Four names on one server and three on the other.
fn seven(clients: &[Client]) -> RedLock {
    RedLock::new((0..7).map(|n| clients[n % 2].lock(format!("lock{n}"))))
}

/// Each lock belongs to one task, which counts five times under it: one second of work under a lease of
/// two seconds.
async fn fifty_turns(locks: Vec<RedLock>, wait: Option<Duration>) {
    let (work, lease) = (Duration::from_secs(1), Duration::from_secs(2));
    let cell = Arc::new(AtomicU64::new(0));
    let turns = 5 * locks.len() as u64;
    let mut tasks = JoinSet::new();
    for lock in locks {
        let cell = cell.clone();
        tasks.spawn(async move {
            let mut counted = 0;
            while counted < 5 {
                let taken = match wait {
                    None => lock.lock().lease(lease).await.map(Some),
                    Some(wait) => lock.try_lock().wait(wait).lease(lease).await,
                };
                let Some(guard) = taken.expect("every server answers") else {
                    continue;
                };
                // The read and the write are two steps on purpose.
                let read = cell.load(Ordering::SeqCst);
                sleep(work).await;
                assert!(guard.is_valid(), "the lease is twice as long");
                cell.store(read + 1, Ordering::SeqCst);
                counted += 1;
                guard.unlock().await.expect("it is held");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(cell.load(Ordering::SeqCst), turns, "an update was lost");
}
