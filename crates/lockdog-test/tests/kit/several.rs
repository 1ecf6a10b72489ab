//! Several locks as one, on a network that is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockdog::{MultiLock, Owner};
use lockdog_test::Server;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{checks_exclusion, eventually, ms};

/// A failed attempt blocks others for one round trip. Without random pauses the contenders would
/// collide forever.
#[tokio::test(start_paused = true)]
async fn contenders_on_a_slow_network_stop_colliding() {
    checks_exclusion();
    let servers = [Server::new(), Server::new(), Server::new()];
    for server in &servers {
        server.delay(Duration::from_millis(10));
    }
    let cell = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..4 {
        let mut members = Vec::new();
        for (server, name) in servers.iter().zip(["a", "b", "c"]) {
            members.push(server.client().await.lock(name));
        }
        members.rotate_left(number % 3);
        let (lock, cell) = (MultiLock::new(members), cell.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = lock.lock().await.expect("every server answers");
                // The read and the write are two steps on purpose.
                let read = cell.load(Ordering::SeqCst);
                sleep(Duration::from_millis(1)).await;
                cell.store(read + 1, Ordering::SeqCst);
                guard.unlock().await.expect("it is held");
            }
        });
    }
    let began = Instant::now();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let took = began.elapsed();
    println!("40 rounds in {took:?}");
    assert_eq!(cell.load(Ordering::SeqCst), 40, "an update was lost");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// The queue of the fair member always has waiters, so an attempt from outside it never succeeds.
#[tokio::test(start_paused = true)]
async fn a_multi_lock_has_its_turn_in_a_queue_that_is_never_empty() {
    let server = Server::new();
    server.delay(Duration::from_millis(1));
    let turns = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let (lock, turns) = (server.client().await.fair_lock("door"), turns.clone());
        tasks.spawn(async move {
            loop {
                let guard = lock.lock().await.expect("the server answers");
                turns.fetch_add(1, Ordering::SeqCst);
                sleep(Duration::from_millis(50)).await;
                guard.unlock().await.expect("it is held");
            }
        });
    }
    let client = server.client().await;
    let lock = MultiLock::new([client.lock("plain"), client.fair_lock("door")]);
    for _ in 0..20 {
        let before = turns.load(Ordering::SeqCst);
        let guard = timeout(Duration::from_secs(60), lock.lock().into_future()).await;
        let guard = guard.expect("it reaches the front of the queue").unwrap();
        // One turn of each waiter, and the turns during the attempts outside the queue.
        let passed = turns.load(Ordering::SeqCst) - before;
        assert!(passed <= 9, "{passed} others went first");
        guard.unlock().await.unwrap();
    }
    tasks.shutdown().await;
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_keeps_its_place_in_a_queue_for_an_hour() {
    let server = Server::new();
    let door = server.client().await.fair_lock("door");
    let held = door.lock().await.unwrap();
    let client = server.client().await;
    let lock = MultiLock::new([client.lock("plain"), client.fair_lock("door")]);
    let waiting = tokio::spawn(lock.lock().into_future());
    sleep(Duration::from_secs(5)).await;
    let entries = async || {
        let waiters = door.waiters().await.unwrap();
        let fields = waiters.iter().map(|it| it.field().to_owned());
        fields.collect::<Vec<_>>()
    };
    let before = entries().await;
    assert_eq!(before.len(), 1);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(entries().await, before);
    let plain = server.client().await.lock("plain");
    plain
        .try_lock()
        .await
        .unwrap()
        .expect("nothing is held")
        .unlock()
        .await
        .unwrap();
    held.unlock().await.unwrap();
    let guard = timeout(Duration::from_secs(1), waiting).await;
    guard
        .expect("it is called")
        .unwrap()
        .unwrap()
        .unlock()
        .await
        .unwrap();
    server.assert_clean().await;
}

/// The bound of the hold begins with its own first command.
#[tokio::test(start_paused = true)]
async fn the_bound_of_a_multi_lock_does_not_count_the_wait_for_another_command_of_its_owner() {
    let server = Server::new();
    let client = server.client().await;
    let owner = Owner::new();
    let members = ["a", "b"].map(|name| client.lock(name));
    let multi = MultiLock::new(members.clone());
    // The server knows the scripts.
    multi.lock().await.unwrap().unlock().await.unwrap();
    let _outer = members[0].lock().owner(&owner).await.unwrap();
    server.delay(Duration::from_millis(400));
    let nested = tokio::spawn(members[0].lock().owner(&owner).into_future());
    tokio::task::yield_now().await;
    let bound = Duration::from_secs(1);
    let began = Instant::now();
    let guard = multi.lock().owner(&owner).max_hold(bound).await.unwrap();
    assert!(
        began.elapsed() >= Duration::from_millis(800),
        "it did not wait"
    );
    let left = guard.remaining();
    assert!(left > Duration::from_millis(500), "{left:?}");
    assert!(left <= Duration::from_millis(600), "{left:?}");
    drop((nested.await.unwrap(), guard));
}

/// A call of the same owner acquires one member while the first round asks for it. The second round re-enters that
/// member, and must not find the other one taken by the first round.
#[tokio::test(start_paused = true)]
async fn an_attempt_repeated_for_its_owner_does_not_find_its_own_members_busy() {
    let servers = [Server::new(), Server::new()];
    let first = servers[0].client().await.lock("a");
    let second = servers[1].client().await.lock("b");
    let both = MultiLock::new([first.clone(), second]);
    // The servers know the scripts.
    both.lock().await.unwrap().unlock().await.unwrap();
    let owner = Owner::new();
    // The owner learns of its grant after it has asked for both.
    servers[0].delay(ms(50));
    let alone = tokio::spawn(first.lock().owner(&owner).into_future());
    eventually("it is granted", || servers[0].holder("a").is_some()).await;
    let scripts = || {
        let commands = servers[1].commands();
        let is_script = |command: &&Vec<String>| command[0].to_lowercase().starts_with("eval");
        commands.iter().filter(is_script).count()
    };
    let before = scripts();
    let guard = both.try_lock().owner(&owner).await.unwrap();
    let guard = guard.expect("no other owner has a member");
    assert!(
        scripts() >= before + 3,
        "it acquires, releases and acquires the second member"
    );
    assert_eq!(alone.await.unwrap().unwrap().hold_count(), 2);
    guard.unlock().await.unwrap();
    for server in &servers {
        server.assert_clean().await;
    }
}
