//! The queue of a fair lock on a server that does not answer for some time, on tokio's clock.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockdog::{Client, Lock, Owner};
use lockdog_test::Server;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::ms;

const LONG: Duration = Duration::from_secs(3600);

/// A client with a command timeout longer than all stalls of a test.
async fn patient(server: &Server) -> Client {
    let builder = server.builder().command_timeout(ms(20_000));
    builder.build().await.unwrap()
}

/// Starts waiters one after the other. Each records its turn.
async fn queue(lock: &Lock, turns: &Arc<Mutex<Vec<u32>>>) -> Vec<JoinHandle<()>> {
    let mut waiters = Vec::new();
    for number in 0..3 {
        let request = lock.try_lock().owner(&Owner::new()).wait(LONG);
        let turns = turns.clone();
        waiters.push(tokio::spawn(async move {
            let guard = request.await.unwrap().expect("it is first in the queue");
            turns.lock().unwrap().push(number);
            guard.unlock().await.unwrap();
        }));
        sleep(ms(10)).await;
    }
    waiters
}

async fn entries(lock: &Lock) -> Vec<String> {
    let waiters = lock.waiters().await.unwrap();
    waiters.iter().map(|it| it.field().to_owned()).collect()
}

/// FA4: the server does not answer, and the waiters are polled.
#[tokio::test(start_paused = true)]
async fn waiters_keep_their_places_while_the_server_is_silent() {
    let server = Server::new();
    let held = server.client().await.fair_lock("door");
    let held = held.lock().lease(LONG).await.unwrap();
    let lock = patient(&server).await.fair_lock("door");
    let turns = Arc::default();
    let waiters = queue(&lock, &turns).await;
    let before = entries(&lock).await;
    assert_eq!(before.len(), 3);
    // The contender's polls, one a second, get no answer for longer than a second and a poll cap.
    for silent in [1_500, 2_500, 4_500] {
        let commands = server.commands().len();
        server.freeze();
        sleep(ms(silent)).await;
        server.thaw();
        sleep(ms(200)).await;
        assert!(server.commands().len() > commands, "no command waited");
        assert_eq!(entries(&lock).await, before, "after {silent} ms");
    }
    held.unlock().await.unwrap();
    for waiter in waiters {
        timeout(LONG, waiter).await.expect("its turn").unwrap();
    }
    assert_eq!(*turns.lock().unwrap(), [0, 1, 2]);
    server.assert_clean().await;
}

/// FA4: the receiver of a hand-over polls again after a second and keeps its place.
#[tokio::test(start_paused = true)]
async fn a_hand_over_that_the_server_answers_late_reaches_its_waiter() {
    for silent in [1_500, 2_500, 4_500] {
        let server = Server::new();
        let lock = patient(&server).await.fair_lock("door");
        let held = lock.lock().lease(LONG).await.unwrap();
        let turns = Arc::default();
        let waiters = queue(&lock, &turns).await;
        let first = entries(&lock).await.remove(0);
        server.freeze();
        let unlock = tokio::spawn(held.unlock());
        sleep(ms(silent)).await;
        server.thaw();
        unlock.await.unwrap().unwrap();
        for waiter in waiters {
            timeout(LONG, waiter).await.expect("its turn").unwrap();
        }
        assert_eq!(*turns.lock().unwrap(), [0, 1, 2], "after {silent} ms");
        let handed = server.commands().into_iter().any(|command| {
            // From the field of the first holder to that of the first waiter.
            command.len() > 8 && command[8] == first && command[0] == "EVALSHA"
        });
        assert!(handed, "the lock was not handed over");
        server.assert_clean().await;
    }
}

/// The answer to a hand-over is lost with the future that unlocks. The waiter finds what was granted.
#[tokio::test(start_paused = true)]
async fn a_hand_over_by_a_future_that_is_left_keeps_the_place_of_its_waiter() {
    let server = Server::new();
    let lock = patient(&server).await.fair_lock("door");
    let held = lock.lock().lease(LONG).await.unwrap();
    let turns = Arc::default();
    let waiters = queue(&lock, &turns).await;
    let mut unlock = pin!(held.unlock());
    assert!(timeout(ms(0), &mut unlock).await.is_err(), "it has to wait");
    for waiter in waiters {
        timeout(ms(5_000), waiter).await.expect("its turn").unwrap();
    }
    assert_eq!(*turns.lock().unwrap(), [0, 1, 2]);
    server.assert_clean().await;
}

/// Invariant 2: a poll whose answer is lost was granted the lock before the hand-over.
#[tokio::test(start_paused = true)]
async fn a_guard_of_a_hand_over_ends_before_the_lock_that_an_earlier_query_was_granted() {
    let server = Server::new();
    let lock = server.client().await.fair_lock("door");
    let held = lock.lock().lease(LONG).await.unwrap();
    let request = lock.try_lock().owner(&Owner::new()).wait(LONG);
    let waiter = tokio::spawn(request.lease(ms(30_000)).into_future());
    sleep(ms(100)).await;
    // The holder does not notice it.
    server.lose("door");
    server.delay(ms(60_000));
    while server.holder("door").is_none() {
        sleep(ms(1)).await;
    }
    // The time limit of that poll and a part of the pause after it.
    sleep(ms(3_005)).await;
    server.delay(ms(0));
    // The unlock reports a loss or a release.
    let _ = held.unlock().await;
    let guard = timeout(LONG, waiter).await.expect("its turn").unwrap();
    let guard = guard.unwrap().expect("it is first in the queue");
    let ttl = server.holder("door").and_then(|holder| holder.ttl);
    assert!(
        Some(guard.remaining()) <= ttl,
        "{:?} and {ttl:?}",
        guard.remaining()
    );
    let handed = server
        .commands()
        .into_iter()
        .any(|command| command.len() == 13 && command[2] == "4");
    assert!(handed, "no hand-over was tried");
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

/// A contender that is not polled any more while the server answers its poll delays the others by the
/// time for an answer, a poll cap and the check-in interval.
#[tokio::test(start_paused = true)]
async fn a_contender_abandoned_during_its_query_is_overtaken_soon() {
    let server = Server::new();
    let held = server.client().await.fair_lock("door");
    let held = held.lock().lease(LONG).await.unwrap();
    let lock = patient(&server).await.fair_lock("door");
    let mut left = lock
        .try_lock()
        .owner(&Owner::new())
        .wait(LONG)
        .into_future();
    assert!(timeout(ms(100), &mut left).await.is_err());
    let turns = Arc::default();
    let waiters = queue(&lock, &turns).await;
    // The test polls the future until its next command is sent.
    server.delay(ms(300));
    let looks = server.commands().len();
    while server.commands().len() == looks {
        assert!(timeout(ms(10), &mut left).await.is_err());
    }
    // The server answers the command of the abandoned waiter, which does not read the answer.
    let began = Instant::now();
    held.unlock().await.unwrap();
    server.delay(ms(0));
    for waiter in waiters {
        timeout(LONG, waiter).await.expect("its turn").unwrap();
    }
    let took = began.elapsed();
    assert!(took < ms(4_000), "{took:?}");
    assert_eq!(*turns.lock().unwrap(), [0, 1, 2]);
    drop(left);
    server.assert_clean().await;
}
