//! The read/write lock on the test server, whose clock is tokio's.

use std::collections::HashSet;
use std::pin::pin;
use std::task::{Context, Waker};

use lockdog::error::LostReason;
use lockdog::{Error, Guard, Owner, ReadGuard, ReadWriteLock, WriteGuard};
use lockdog_test::Server;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep, sleep_until, timeout};

use crate::support::ms;

/// RW8: the pauses last 2 s, 4 s and then 8 s each. The readers call at these times after the
/// announcement and acquire the lock at the end of the pause.
#[tokio::test(start_paused = true)]
async fn readers_go_in_at_the_ends_of_pauses_that_double_up_to_eight_seconds() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let rw = client.read_write_lock("doc");
    let long = read(&rw).await;
    let began = Instant::now();
    let waits = writer(&other.read_write_lock("doc"));
    until_announced(&server).await;
    let readers = [
        (500, 2_000),
        (1_900, 2_000),
        (2_500, 6_000),
        (5_500, 6_000),
        (6_500, 14_000),
        (14_500, 22_000),
        (29_500, 30_000),
    ];
    let readers = readers.map(|(comes, goes_in)| {
        let rw = rw.clone();
        tokio::spawn(async move {
            sleep_until(began + ms(comes)).await;
            let reader = read(&rw).await;
            let took = began.elapsed();
            // Client and server share one clock, and a command takes no time.
            assert!(took >= ms(goes_in) && took < ms(goes_in + 50), "{took:?}");
            reader.unlock().await.unwrap();
        })
    });
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(!waits.is_finished());
    long.unlock().await.unwrap();
    waits.await.unwrap().unlock().await.unwrap();
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

/// RW6: at most two seconds, the longest hold and a poll cap after the last reader from before.
#[tokio::test(start_paused = true)]
async fn a_writer_gets_in_soon_after_a_long_reader_however_many_others_come() {
    for (long_holds, each_holds) in [
        (3_000, 1_000),
        (5_900, 50),
        (5_900, 5_000),
        (6_100, 50),
        (6_100, 5_000),
        (13_900, 1_000),
    ] {
        let server = Server::new();
        let (client, other) = (server.client().await, server.client().await);
        let (rw, theirs) = (client.read_write_lock("doc"), other.read_write_lock("doc"));
        let long = read(&rw).await;
        let began = Instant::now();
        let waits = writer(&theirs);
        until_announced(&server).await;
        // In the writer's own client, and in another one.
        let readers = tokio::spawn(async move {
            for rw in [rw, theirs].iter().cycle() {
                sleep(ms(50)).await;
                let rw = rw.clone();
                tokio::spawn(async move {
                    let guard = read(&rw).await;
                    sleep(ms(each_holds)).await;
                    guard.unlock().await.unwrap();
                });
            }
        });
        sleep_until(began + ms(long_holds)).await;
        long.unlock().await.unwrap();
        let writes = waits.await.unwrap();
        let from = long_holds.max(6_000);
        let took = began.elapsed();
        let bound = ms(from + 2_000 + each_holds + 1_000);
        assert!(took <= bound, "{long_holds} {each_holds}: {took:?}");
        readers.abort();
        drop(writes);
    }
}

/// RW8: its future is not polled any more, as if its process had died or were frozen.
#[tokio::test(start_paused = true)]
async fn a_writer_that_dies_keeps_readers_out_for_its_announcement_only() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let rw = client.read_write_lock("doc");
    let _long = read(&rw).await;
    let began = Instant::now();
    let theirs = other.read_write_lock("doc");
    let mut left = theirs.write().lock().owner(&Owner::new()).into_future();
    // Up to the pause of eight seconds.
    assert!(timeout(ms(6_500), &mut left).await.is_err());
    let died = Instant::now();
    read(&rw).await.unlock().await.unwrap();
    let took = died.elapsed();
    assert!(took > ms(300) && took <= ms(2_500), "{took:?}");
    assert!(began.elapsed() < ms(14_000));
    drop(left);
}

/// The announcement stays the upgrade's own although its next poll is for another hold.
#[tokio::test(start_paused = true)]
async fn an_upgrade_whose_first_query_had_no_answer_does_not_wait_for_itself() {
    let server = Server::new();
    let (client, another) = (server.client().await, server.client().await);
    let other = read(&another.read_write_lock("doc")).await;
    let reads = read(&client.read_write_lock("doc")).await;
    // The client cannot delete the announcement of the first poll.
    server.refuse("del", "LOADING the dataset is in memory", 1_000_000);
    // Longer than the command timeout.
    server.delay(ms(4_000));
    let upgrade = tokio::spawn(reads.upgrade().wait(ms(60_000)).into_future());
    until_announced(&server).await;
    sleep(ms(3_500)).await;
    server.delay(ms(0));
    sleep(ms(3_000)).await;
    let fields = server.commands().into_iter().flatten();
    let fields: HashSet<String> = fields.filter(|it| it.ends_with(":write")).collect();
    assert!(fields.len() >= 2, "it looked once: {fields:?}");
    assert!(!upgrade.is_finished());
    server.refuse("del", "-", 0);
    other.unlock().await.unwrap();
    upgrade.await.unwrap().unwrap().unlock().await.unwrap();
    server.assert_clean().await;
}

/// The read hold of the same owner keeps the key, and so the field of the write hold.
#[tokio::test(start_paused = true)]
async fn a_write_guard_that_is_dropped_after_its_lease_admits_readers_while_its_owner_reads() {
    let server = Server::new();
    let (client, another) = (server.client().await, server.client().await);
    let (rw, owner) = (client.read_write_lock("doc"), Owner::new());
    let writes = rw.write().lock().owner(&owner).lease(ms(1_000));
    let writes = writes.await.unwrap();
    let reads = rw.read().lock().owner(&owner).await.unwrap();
    // The client's thread does not run meanwhile, so it does not notice the end of the lease.
    let passing = pin!(advance(ms(1_100)));
    assert!(
        passing
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    drop(writes);
    sleep(ms(100)).await;
    let other = another.read_write_lock("doc").read().try_lock().await;
    let other = other.unwrap().expect("no owner writes");
    assert!(reads.is_valid());
    other.unlock().await.unwrap();
    reads.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_and_a_downgrade_keep_the_max_hold() {
    let server = Server::new();
    let (client, another) = (server.client().await, server.client().await);
    let rw = client.read_write_lock("doc");
    let is_over_in = async |guard: &Guard, began: Instant| {
        let lost = timeout(ms(60_000), guard.lost()).await;
        let lost = lost.expect("its max_hold ends it");
        assert_eq!(lost.reason(), LostReason::MaxHold);
        let took = began.elapsed();
        assert!(took > ms(9_900) && took <= ms(10_000), "{took:?}");
    };
    let began = Instant::now();
    let reads = rw.read().lock().max_hold(ms(10_000)).await.unwrap();
    let other = read(&another.read_write_lock("doc")).await;
    sleep(ms(2_000)).await;
    // The upgrade waits for the other reader, and that time counts, too.
    let upgrade = tokio::spawn(reads.upgrade().into_future());
    sleep(ms(3_000)).await;
    other.unlock().await.unwrap();
    let writes = upgrade.await.unwrap().unwrap();
    is_over_in(&writes, began).await;
    drop(writes);
    let began = Instant::now();
    let writes = rw.write().lock().max_hold(ms(10_000)).await.unwrap();
    sleep(ms(2_000)).await;
    let reads = writes.downgrade().await.unwrap();
    is_over_in(&reads, began).await;
    drop(reads);
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_an_upgrade_that_waited_ends_with_the_max_hold() {
    let server = Server::new();
    let (client, another) = (server.client().await, server.client().await);
    let rw = client.read_write_lock("doc");
    let reads = rw.read().lock().max_hold(ms(10_000)).await.unwrap();
    let other = read(&another.read_write_lock("doc")).await;
    let upgrade = tokio::spawn(reads.upgrade().into_future());
    sleep(ms(6_000)).await;
    other.unlock().await.unwrap();
    let writes = upgrade.await.unwrap().unwrap();
    let ttl = server.holder("doc").unwrap().ttl.unwrap();
    // An unlock leaves up to eight sevenths of the lease of the reader that is left.
    assert!(ttl < ms(5_000), "{ttl:?}");
    writes.unlock().await.unwrap();
    server.assert_clean().await;
}

/// Otherwise the write hold outlives the read hold, and the unlock of a valid guard reports a loss.
#[tokio::test(start_paused = true)]
async fn an_upgrade_that_waited_has_the_rest_of_the_lease_of_its_read_hold() {
    let server = Server::new();
    let (client, another) = (server.client().await, server.client().await);
    let rw = client.read_write_lock("doc");
    let reads = rw.read().lock().lease(ms(10_000)).await.unwrap();
    let other = read(&another.read_write_lock("doc")).await;
    let upgrade = tokio::spawn(reads.upgrade().into_future());
    sleep(ms(6_000)).await;
    other.unlock().await.unwrap();
    let writes = upgrade.await.unwrap().unwrap();
    let left = writes.remaining();
    assert!(left > ms(3_000) && left < ms(4_000), "{left:?}");
    sleep(left - ms(100)).await;
    assert!(writes.is_valid());
    writes.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_reads_on_although_the_lease_of_the_earlier_read_hold_is_over() {
    let server = Server::new();
    let (client, another) = (server.client().await, server.client().await);
    let rw = client.read_write_lock("doc");
    let reads = rw.read().lock().lease(ms(5_000)).await.unwrap();
    let writes = reads.upgrade().await.unwrap();
    writes.extend(ms(60_000)).await.unwrap();
    sleep(ms(10_000)).await;
    let reads = writes.downgrade().await.unwrap();
    assert!(reads.is_valid());
    let other = another.read_write_lock("doc").write().try_lock().await;
    assert!(other.unwrap().is_none());
    reads.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_is_answered_after_the_max_hold_is_lost() {
    let server = Server::new();
    let client = server.client().await;
    let rw = client.read_write_lock("doc");
    let reads = rw.read().lock().max_hold(ms(10_000)).await.unwrap();
    sleep(ms(9_800)).await;
    // The server grants it at once, and its answer comes after the end.
    server.delay(ms(300));
    let refused = reads.upgrade().await.unwrap_err();
    server.delay(ms(0));
    match refused.error() {
        Some(Error::Lost(lost)) => assert_eq!(lost.reason(), LostReason::MaxHold),
        other => panic!("{other:?}"),
    }
    assert!(refused.into_guard().is_none());
    server.assert_clean().await;
}

async fn until_announced(server: &Server) {
    while !server.keys().contains(&ANNOUNCEMENT.to_owned()) {
        sleep(ms(1)).await;
    }
}

async fn read(rw: &ReadWriteLock) -> ReadGuard {
    let request = rw.read().lock().owner(&Owner::new());
    request.await.expect("nothing is wrong with the server")
}

fn writer(rw: &ReadWriteLock) -> JoinHandle<WriteGuard> {
    let request = rw.write().lock().owner(&Owner::new());
    tokio::spawn(async move { request.await.expect("nothing is wrong with the server") })
}

const ANNOUNCEMENT: &str = "lockdog_writer:{doc}";
