//! Each fault of the kit takes place, and a lock reacts to it as documented.

use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::{Client, Error};
use lockdog_test::{Data, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{LONG, eventually};

async fn start() -> (Server, Client) {
    let server = Server::new();
    let client = connect(&server).await;
    (server, client)
}

/// With a lease that is renewed every two seconds.
async fn connect(server: &Server) -> Client {
    let address = server.listen("127.0.0.1:0").await.unwrap();
    Client::builder()
        .url(format!("redis://{address}"))
        .watchdog_lease(Duration::from_secs(6))
        .command_timeout(Duration::from_secs(2))
        .build()
        .await
        .unwrap()
}

fn sent(server: &Server, word: &str) -> usize {
    let is_meant = |command: &&Vec<String>| command[0].eq_ignore_ascii_case(word);
    server.commands().iter().filter(is_meant).count()
}

#[tokio::test]
async fn a_lost_lock_is_reported_to_its_holder() {
    let (server, client) = start().await;
    let guard = client.lock("nightly").lock().await.unwrap();
    server.lose("nightly");
    let lost = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::NotOurs);
    drop(guard);
    server.assert_clean().await;
}

#[tokio::test]
#[should_panic(expected = r#"there is no lock "daily"; the keys are ["nightly"]"#)]
async fn losing_a_free_lock_panics() {
    let (server, client) = start().await;
    let _guard = client.lock("nightly").lock().await.unwrap();
    server.lose("daily");
}

#[tokio::test]
async fn a_stolen_lock_is_busy_until_it_is_returned() {
    let (server, client) = start().await;
    let stolen = server.steal("orders");
    let lock = client.lock("orders");
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(stolen.is_held());
    let began = Instant::now();
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually("the waiter listens", || sent(&server, "subscribe") > 0).await;
    drop(stolen);
    let guard = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "it waited for the lease"
    );
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test]
async fn a_lock_can_be_stolen_from_its_holder() {
    let (server, client) = start().await;
    let guard = client.lock("orders").lock().await.unwrap();
    let stolen = server.steal("orders");
    let lost = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::NotOurs);
    assert!(stolen.is_held());
    drop((guard, stolen));
    server.assert_clean().await;
}

#[tokio::test]
async fn a_frozen_server_answers_nothing_until_it_is_thawed() {
    let (server, client) = start().await;
    let guard = client.lock("orders").lock().await.unwrap();
    server.freeze();
    let busy = client.lock("other").try_lock().await;
    assert!(matches!(busy, Err(Error::Timeout { .. })), "{busy:?}");
    let lost = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    server.thaw();
    eventually("the server answers again", || server.keys().is_empty()).await;
    drop(guard);
    server.assert_clean().await;
}

#[tokio::test]
async fn cut_connections_are_reopened() {
    let (server, client) = start().await;
    let guard = client.lock("orders").lock().await.unwrap();
    let before = sent(&server, "client");
    server.cut();
    eventually("the client connects again", || {
        sent(&server, "client") > before
    })
    .await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(guard.is_valid(), "renewals went on");
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test]
async fn a_delay_applies_to_every_reply() {
    let (server, client) = start().await;
    let lock = client.lock("orders");
    lock.lock().await.unwrap().unlock().await.unwrap();
    let delay = Duration::from_millis(300);
    server.delay(delay);
    let began = Instant::now();
    let guard = lock.lock().await.unwrap();
    assert!(began.elapsed() >= delay);
    server.delay(Duration::ZERO);
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test]
async fn a_script_whose_reply_is_lost_has_run() {
    let (server, client) = start().await;
    let lock = client.lock("orders");
    lock.lock().await.unwrap().unlock().await.unwrap();
    let ran = sent(&server, "evalsha");
    server.lose_replies(1);
    let guard = lock.lock().await.unwrap();
    assert!(sent(&server, "evalsha") >= ran + 2, "it asked again");
    assert_eq!(server.holder("orders").unwrap().count, 1);
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

/// A script that was refused has not run, so its reply is not the one that is lost.
#[tokio::test]
async fn a_refused_script_uses_up_no_lost_reply() {
    let (server, client) = start().await;
    let lock = client.lock("orders");
    lock.lock().await.unwrap().unlock().await.unwrap();
    server.lose_replies(1);
    server.refuse("evalsha", "OOM no room", 1);
    assert!(matches!(lock.lock().await, Err(Error::Refused { .. })));
    let ran = sent(&server, "evalsha");
    let guard = lock.lock().await.unwrap();
    assert!(sent(&server, "evalsha") >= ran + 2, "it asked again");
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_wait_for_replicas_is_answered_at_once() {
    let server = Server::new();
    server.refuse("wait", "ERR no", 1);
    let mut stream = server.connect();
    let began = Instant::now();
    stream
        .write_all(b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$5\r\n60000\r\n")
        .await
        .unwrap();
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"-ERR no\r\n");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_ends_no_wait_for_replicas() {
    let server = Server::new();
    let mut stream = server.connect();
    stream
        .write_all(b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n1000\r\n")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.freeze();
    let mut answer = [0; 4];
    let silent = tokio::time::timeout(LONG, stream.read_exact(&mut answer)).await;
    assert!(silent.is_err(), "{silent:?}");
    server.thaw();
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b":0\r\n");
}

/// Meanwhile commands arrive on several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_command_runs_after_the_server_was_frozen() {
    let server = Server::new();
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let mut stream = server.connect();
        clients.spawn(async move {
            let mut answer = [0; 64];
            loop {
                let command = b"*4\r\n$7\r\nHINCRBY\r\n$6\r\norders\r\n$1\r\nf\r\n$1\r\n1\r\n";
                stream.write_all(command).await.unwrap();
                assert!(stream.read(&mut answer).await.unwrap() > 0);
            }
        });
    }
    let count = || server.holder("orders").map(|holder| holder.count);
    eventually("a command runs", || count().is_some()).await;
    for _ in 0..1_000 {
        server.freeze();
        let frozen_at = count();
        for _ in 0..100 {
            assert_eq!(count(), frozen_at);
        }
        server.thaw();
        tokio::task::yield_now().await;
    }
    clients.shutdown().await;
}

#[tokio::test]
async fn a_connection_is_cut_before_its_first_command() {
    let server = Server::new();
    let mut stream = server.connect();
    server.cut();
    let mut byte = [0];
    let read = tokio::time::timeout(LONG, stream.read(&mut byte)).await;
    assert_eq!(read.expect("it is cut").unwrap(), 0);
}

#[tokio::test]
async fn a_waiter_gets_the_lock_when_messages_are_lost() {
    let (server, holds) = start().await;
    let waits = connect(&server).await;
    server.lose_messages(true);
    let guard = holds.lock("orders").lock().await.unwrap();
    let lock = waits.lock("orders");
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually("the waiter listens", || sent(&server, "subscribe") > 0).await;
    guard.unlock().await.unwrap();
    let guard = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test]
async fn a_refused_command_fails_with_the_given_error() {
    let (server, client) = start().await;
    let lock = client.lock("orders");
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    for command in ["evalsha", "HINCRBY"] {
        server.refuse(command, oom, 1);
        match lock.lock().await {
            Err(Error::Refused { code, .. }) => assert_eq!(code, "OOM"),
            other => panic!("{command}: {other:?}"),
        }
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    server.assert_clean().await;
}

#[tokio::test]
async fn a_server_that_restarts_with_its_data_keeps_the_locks() {
    let (server, client) = start().await;
    let guard = client.lock("orders").lock().await.unwrap();
    server.restart(Data::Kept);
    assert!(server.holder("orders").is_some());
    // The restarted server has no scripts either.
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test]
async fn a_server_that_loses_its_data_loses_the_locks() {
    let (server, client) = start().await;
    let guard = client.lock("orders").lock().await.unwrap();
    server.restart(Data::Lost);
    assert_eq!(server.keys(), Vec::<String>::new());
    let lost = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::NotOurs);
    drop(guard);
    server.assert_clean().await;
}

#[tokio::test]
async fn leftover_keys_are_named() {
    let (server, client) = start().await;
    client.lock("orders").lock().await.unwrap().forget();
    let left = tokio::spawn(server.assert_clean()).await.unwrap_err();
    let panic = left.into_panic();
    let text = panic.downcast_ref::<String>().expect("it says what");
    assert!(text.contains("the key orders"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn leftovers_in_other_databases_and_subscribers_are_named() {
    let server = Server::new();
    let client = async || server.builder().database(3).build().await.unwrap();
    let (holds, waits) = (client().await, client().await);
    holds.lock("orders").lock().await.unwrap().forget();
    let waiter = tokio::spawn(waits.lock("orders").lock().into_future());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.keys(), Vec::<String>::new());
    let left = tokio::spawn(server.assert_clean()).await.unwrap_err();
    waiter.abort();
    let panic = left.into_panic();
    let text = panic.downcast_ref::<String>().expect("it says what");
    for part in [
        "the key orders in database 3",
        "1 listening on redisson_lock__channel:{orders}",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// What the server remembers of calls and of ended requests stays for up to an hour, or as long as the number.
#[tokio::test(start_paused = true)]
async fn semaphores_and_latches_leave_nothing_after_their_numbers_are_deleted() {
    let server = Server::new();
    let client = server.client().await;
    let seats = client.semaphore("seats");
    assert!(seats.try_set_permits(3).await.unwrap());
    let two = seats.acquire_many(2).await.unwrap();
    two.release().await.unwrap();
    server.lose("seats");
    let doors = client.permit_semaphore("doors");
    assert!(doors.try_set_permits(3).await.unwrap());
    doors.acquire().await.unwrap().release().await.unwrap();
    server.lose("doors");
    let start = client.count_down_latch("start");
    assert!(start.try_set_count(2).await.unwrap());
    start.count_down().await.unwrap();
    assert!(start.delete().await.unwrap());
    assert!(!server.keys().is_empty(), "nothing is remembered");
    server.assert_clean().await;
}

/// As a proxy does that knows no subscriptions.
#[tokio::test(start_paused = true)]
async fn a_server_that_closes_each_connection_for_messages_soon_gets_few_of_them() {
    let server = Server::new();
    let guard = server.client().await.lock("orders").lock().await.unwrap();
    let lock = server.client().await.lock("orders");
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    let mut connection = server.connect();
    let (mut reply, mut closed) = ([0; 4], 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        let kill = b"CLIENT KILL TYPE pubsub\r\n";
        connection.write_all(kill).await.unwrap();
        connection.read_exact(&mut reply).await.unwrap();
        closed += u32::from(&reply == b":1\r\n");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Seven while the pauses grow to a second, and then one a second.
    assert!((10..40).contains(&closed), "{closed}");
    guard.unlock().await.unwrap();
    waiter.await.unwrap().unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_not_released_is_left() {
    let server = Server::new();
    let client = server.client().await;
    let seats = client.semaphore("seats");
    assert!(seats.try_set_permits(3).await.unwrap());
    let _held = seats.acquire().await.unwrap();
    server.lose("seats");
    let left = tokio::spawn(server.assert_clean()).await.unwrap_err();
    let panic = left.into_panic();
    let text = panic.downcast_ref::<String>().expect("it says what");
    assert!(text.contains("the key lockdog_ledger:{seats}"), "{text}");
}

#[test]
#[should_panic(expected = "outside of a tokio runtime")]
fn a_server_needs_a_runtime() {
    Server::new();
}
