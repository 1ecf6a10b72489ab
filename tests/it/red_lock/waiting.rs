//! Which callers wait, what wakes them, and that every owner acquires the lock.

use std::future::IntoFuture;
use std::time::Instant;

use lockdog::config::{Backoff, Wake};
use lockdog::{Guard, Owner, RedLock};
use tokio::task::JoinHandle;

use super::{NEVER, SOON, Servers, has, lock_of, ms};
use crate::support::{Cell, eventually, timed, until_ok};

#[tokio::test]
async fn messages_of_a_release_wake_a_waiter() {
    let servers = Servers::start(3).await;
    let mine = servers.clients_without_polling().await;
    let holder = servers.lock("l").await;
    for end in ["unlock", "drop"] {
        let guard = holder.lock().lease(NEVER).await.unwrap();
        has(&guard, 3).await;
        let waiting = waiter(&lock_of(&mine, "l"));
        a_waiter_listens(&servers).await;
        assert!(!waiting.is_finished());
        if end == "unlock" {
            guard.unlock().await.unwrap();
        } else {
            drop(guard);
        }
        let (guard, waited) = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
        assert!(waited < NEVER / 2, "{waited:?}");
        guard.unlock().await.unwrap();
        servers.assert_counts("l", [0; 3]).await;
    }
    servers.assert_clean().await;
}

/// The messages of two of three: the third holder stays.
#[tokio::test]
async fn a_waiter_is_woken_when_a_quorum_is_released_and_not_before() {
    let servers = Servers::start(3).await;
    let (mine, others) = (
        servers.clients_without_polling().await,
        servers.clients().await,
    );
    for stays in 0..3 {
        let mut held = Vec::new();
        for other in &others {
            held.push(Some(other.lock("l").lock().lease(NEVER).await.unwrap()));
        }
        let waiting = waiter(&lock_of(&mine, "l"));
        a_waiter_listens(&servers).await;
        let mut free = (0..3).filter(|n| *n != stays);
        for (turn, n) in free.by_ref().enumerate() {
            assert!(!waiting.is_finished(), "one of three was enough");
            held[n].take().unwrap().unlock().await.unwrap();
            if turn == 0 {
                tokio::time::sleep(ms(200)).await;
            }
        }
        let (guard, _) = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
        has(&guard, 2).await;
        guard.unlock().await.unwrap();
        drop(held);
        servers.assert_counts("l", [0; 3]).await;
    }
}

/// Nothing is published when a lease runs out.
#[tokio::test]
async fn the_ttl_of_the_last_instance_needed_wakes_a_waiter() {
    let servers = Servers::start(3).await;
    let (mine, others) = (
        servers.clients_without_polling().await,
        servers.clients().await,
    );
    let mut held = Vec::new();
    // Before the servers count.
    let asked = Instant::now();
    for (other, lease) in others.iter().zip([2_000, 4_000, 60_000]) {
        let lock = other.lock("l");
        let guard = until_ok(SOON, async || lock.lock().lease(ms(lease)).await).await;
        // No client is left to settle it.
        guard.forget();
        held.push(other.clone());
    }
    let (guard, _) = tokio::time::timeout(SOON, waiter(&lock_of(&mine, "l")))
        .await
        .unwrap()
        .unwrap();
    // The second of three TTLs.
    assert!(asked.elapsed() >= ms(3_990), "{:?}", asked.elapsed());
    has(&guard, 2).await;
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_waiter_without_messages_polls() {
    let servers = Servers::start(3).await;
    let backoff = Backoff::exponential(ms(1), ms(50), 2);
    let mine = servers
        .clients_with(|builder| builder.wake(Wake::Poll(backoff)).poll_cap(NEVER))
        .await;
    let guard = servers.lock("l").await.lock().await.unwrap();
    let waiting = waiter(&lock_of(&mine, "l"));
    tokio::time::sleep(ms(400)).await;
    for redis in &servers.redis {
        assert!(redis.channels().await.is_empty());
    }
    assert!(!waiting.is_finished());
    guard.unlock().await.unwrap();
    let (guard, _) = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_wait_ends_in_time_and_a_zero_wait_is_one_attempt() {
    let servers = Servers::start(3).await;
    let clients = servers.clients_without_polling().await;
    let lock = lock_of(&clients, "l");
    let held = servers.lock("l").await.lock().await.unwrap();
    has(&held, 3).await;
    for wait in [1, 50, 1_000] {
        let attempt = lock.try_lock().wait(ms(wait)).into_future();
        let (guard, took) = timed(tokio::time::timeout(SOON, attempt)).await;
        match guard.expect("it ends") {
            Ok(guard) => assert!(guard.is_none()),
            // A busy machine's answers may take longer than that.
            Err(error) => assert!(error.is_retriable(), "{error}"),
        }
        assert!(took >= ms(wait), "{took:?}");
    }
    // On a busy machine an earlier attempt left something to release.
    eventually(
        SOON,
        "one command each, and nothing to release",
        async || {
            for redis in &servers.redis {
                redis.reset_stats().await;
            }
            for request in [lock.try_lock().wait(ms(0)), lock.try_lock()] {
                match request.await {
                    Ok(guard) => assert!(guard.is_none()),
                    Err(error) => {
                        assert!(error.is_retriable(), "{error}");
                        return false;
                    }
                }
            }
            let mut asked = Vec::new();
            for redis in &servers.redis {
                asked.push(redis.commandstats().await.get("evalsha").copied());
            }
            asked == [Some(2); 3]
        },
    )
    .await;
    held.unlock().await.unwrap();
    eventually(SOON, "a free lock is acquired by one attempt", async || {
        let guard = lock.try_lock().wait(ms(0)).await;
        guard.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

/// One instance is busy and one is silent. With a lease of 30 s an instance has half a second to
/// answer, but the wait is shorter.
#[tokio::test]
async fn a_wait_that_ends_before_an_instance_answers_does_not_wait_for_it() {
    let servers = Servers::start(3).await;
    let other = servers.clients().await;
    let held = other[0].lock("l").lock().await.unwrap();
    // The quickest of several: a busy machine is slow now and then.
    eventually(SOON, "an attempt takes less than 400 ms", async || {
        // These clients do not know yet that the server is silent.
        let lock = servers.lock("l").await;
        servers.all[1].pause();
        let attempt = lock.try_lock().wait(ms(100)).into_future();
        let (outcome, took) = timed(attempt).await;
        servers.all[1].resume();
        println!("{took:?}");
        assert!(!matches!(outcome, Ok(Some(_))));
        took < ms(400)
    })
    .await;
    drop(held);
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn eight_tasks_of_one_client_set_lose_no_update() {
    let servers = Servers::start(3).await;
    let clients = servers.clients_without_polling().await;
    contend(&servers, vec![lock_of(&clients, "l"); 8], 12).await;
}

#[tokio::test]
async fn five_client_sets_lose_no_update_on_five_servers() {
    let servers = Servers::start(5).await;
    let mut locks = Vec::new();
    for _ in 0..5 {
        locks.push(servers.lock("l").await);
    }
    contend(&servers, locks, 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_sets_with_several_tasks_lose_no_update_on_two_threads() {
    let servers = Servers::start(3).await;
    let mut locks = Vec::new();
    for _ in 0..3 {
        let clients = servers.clients_without_polling().await;
        locks.extend(vec![lock_of(&clients, "l"); 3]);
    }
    contend(&servers, locks, 8).await;
}

#[tokio::test]
async fn a_queue_of_one_client_set_is_served_in_order() {
    let servers = Servers::start(3).await;
    let clients = servers.clients_without_polling().await;
    let lock = lock_of(&clients, "l");
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..6 {
        let (lock, order) = (lock.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            order.lock().unwrap().push(n);
            guard.unlock().await.unwrap();
        }));
        tokio::time::sleep(ms(20)).await;
    }
    held.unlock().await.unwrap();
    for task in tasks {
        tokio::time::timeout(SOON, task).await.unwrap().unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn waiters_of_a_client_send_nothing_while_it_holds_the_lock() {
    let servers = Servers::start(3).await;
    let clients = servers.clients_without_polling().await;
    let lock = lock_of(&clients, "l");
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    has(&held, 3).await;
    for redis in &servers.redis {
        redis.reset_stats().await;
    }
    let waiters: Vec<_> = (0..4).map(|_| waiter(&lock)).collect();
    tokio::time::sleep(ms(300)).await;
    for redis in &servers.redis {
        let stats = redis.commandstats().await;
        assert_eq!((stats.get("evalsha"), stats.get("subscribe")), (None, None));
    }
    held.unlock().await.unwrap();
    for waiter in waiters {
        let (guard, _) = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
        guard.unlock().await.unwrap();
    }
    servers.assert_counts("l", [0; 3]).await;
}

/// Each lock belongs to one task, which acquires it `rounds` times.
async fn contend(servers: &Servers, locks: Vec<RedLock>, rounds: usize) {
    let cell = Cell::new();
    let expected = (locks.len() * rounds) as i64;
    let mut tasks = tokio::task::JoinSet::new();
    for lock in locks {
        let cell = cell.clone();
        tasks.spawn(async move {
            for _ in 0..rounds {
                let guard = lock.lock().await.unwrap();
                cell.bump(ms(2)).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    let all = tokio::time::timeout(NEVER, tasks.join_all());
    all.await.expect("every owner gets it");
    cell.assert_exclusive(expected);
    for _ in &servers.redis {
        eventually(SOON, "no server has the lock", async || {
            servers.taken("l").await == 0
        })
        .await;
    }
    servers.assert_clean().await;
}

fn waiter(lock: &RedLock) -> JoinHandle<(Guard, std::time::Duration)> {
    let request = lock.lock().owner(&Owner::new());
    tokio::spawn(timed(async move { request.await.unwrap() }))
}

/// Waits until a waiter listens at every server, and has had time for the query that follows.
async fn a_waiter_listens(servers: &Servers) {
    eventually(SOON, "a waiter listens everywhere", async || {
        for redis in &servers.redis {
            if redis.channels().await.is_empty() {
                return false;
            }
        }
        true
    })
    .await;
    tokio::time::sleep(ms(150)).await;
}
