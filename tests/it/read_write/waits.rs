//! Which waiter acquires the lock, when, and what wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use lockdog::Lock;
use lockdog::config::Preference;

use super::{CHANNEL, Fixture, LONG, SOON, may_read, ms, read, reader, within_soon, write, writer};
use crate::support::{eventually, timed, until_ok};

#[tokio::test]
async fn the_end_of_a_write_wakes_all_readers_by_the_message_1() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let messages = test.redis.messages("*").await;
    for released in [true, false] {
        let writes = write(&test.rw).await;
        let waiting: Vec<_> = (0..5).map(|_| reader(&another)).collect();
        test.somebody_waits().await;
        match released {
            true => {
                writes.unlock().await.unwrap();
            }
            false => drop(writes),
        }
        let mut guards = Vec::new();
        for waiting in waiting {
            guards.push(within_soon(waiting).await);
        }
        // The test may receive the message after the waiters.
        let one = (CHANNEL.to_owned(), "1".to_owned());
        eventually(SOON, "the message came", async || {
            messages.seen().first() == Some(&one)
        })
        .await;
        drop(guards);
        test.assert_clean().await;
    }
}

#[tokio::test]
async fn the_end_of_the_last_read_wakes_a_writer_by_the_message_0() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let messages = test.redis.messages("*").await;
    let (one, two) = (read(&test.rw).await, read(&test.rw).await);
    let waiting = writer(&another);
    test.somebody_waits().await;
    one.unlock().await.unwrap();
    tokio::time::sleep(ms(200)).await;
    assert!(messages.seen().is_empty() && !waiting.is_finished());
    two.unlock().await.unwrap();
    within_soon(waiting).await.unlock().await.unwrap();
    let zero = (CHANNEL.to_owned(), "0".to_owned());
    eventually(SOON, "the message came", async || {
        messages.seen().first() == Some(&zero)
    })
    .await;
    test.assert_clean().await;
}

/// When a reader is the first waiter, the readers behind it up to the first writer acquire with it.
#[tokio::test]
async fn the_waiters_of_one_client_are_served_in_runs() {
    let test = Fixture::new().await;
    let monitor = test.redis.monitor().await;
    let writes = write(&test.rw).await;
    let another = test.another().await;
    let mut waiting = Vec::new();
    // The order of the queue.
    let first_run = [reader(&another), reader(&another), reader(&another)];
    test.somebody_waits().await;
    let middle = writer(&another);
    tokio::time::sleep(ms(50)).await;
    for _ in 0..2 {
        waiting.push(reader(&another));
    }
    tokio::time::sleep(ms(50)).await;
    writes.unlock().await.unwrap();
    let mut readers = Vec::new();
    for one in first_run {
        readers.push(within_soon(one).await);
    }
    assert!(!middle.is_finished() && waiting.iter().all(|it| !it.is_finished()));
    drop(readers);
    let writes = within_soon(middle).await;
    assert!(waiting.iter().all(|it| !it.is_finished()));
    writes.unlock().await.unwrap();
    for one in waiting {
        drop(within_soon(one).await);
    }
    test.assert_clean().await;
    // The server has seen the same order.
    let granted = || {
        let lines = monitor.seen().into_iter();
        let grants = lines.filter(|line| line.contains("lua] \"hset\" \"doc\""));
        let kind = |line: String| if line.contains(":write\"") { 'W' } else { 'R' };
        grants.map(kind).collect::<String>()
    };
    eventually(SOON, "the recorder has seen all grants", async || {
        granted().len() >= 7
    })
    .await;
    assert_eq!(granted(), "WRRRWRR");
}

/// Consecutive readers acquire at the same time. If each waited for its own message they would acquire
/// one after the other.
#[tokio::test]
async fn the_readers_of_a_run_hold_the_lock_together() {
    let test = Fixture::new().await;
    let writes = write(&test.rw).await;
    let another = test.another().await;
    let waiting: Vec<_> = (0..20).map(|_| reader(&another)).collect();
    test.somebody_waits().await;
    writes.unlock().await.unwrap();
    test.eventually_mode("read", 20).await;
    for one in waiting {
        drop(within_soon(one).await);
    }
    test.assert_clean().await;
}

/// A writer between the readers gives up.
#[tokio::test]
async fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let test = Fixture::new().await;
    let reads = read(&test.rw).await;
    let another = test.another().await;
    let gives_up = writer(&another);
    eventually(SOON, "it is announced", async || test.announced().await).await;
    let local = reader(&another);
    let other = reader(&test.another().await);
    tokio::time::sleep(ms(100)).await;
    assert!(!local.is_finished() && !other.is_finished());
    let began = Instant::now();
    gives_up.abort();
    drop((within_soon(local).await, within_soon(other).await));
    println!("they read {:?} after the writer gave up", began.elapsed());
    // On a busy machine the end of a pause may admit them earlier.
    eventually(SOON, "no writer is announced", async || {
        !test.announced().await
    })
    .await;
    assert!(reads.is_valid());
    drop(reads);
    test.assert_clean().await;
}

/// RW6: a continuous stream of readers does not starve a writer.
#[tokio::test]
async fn a_writer_gets_in_beside_readers_that_never_stop() {
    let test = Fixture::new().await;
    let mut loops = Vec::new();
    for rw in [
        test.another_with(|it| it).await,
        test.another_with(|it| it).await,
    ] {
        for n in 0..4 {
            let rw = rw.clone();
            loops.push(tokio::spawn(async move {
                loop {
                    let guard = read(&rw).await;
                    tokio::time::sleep(ms(10 + n)).await;
                    guard.unlock().await.unwrap();
                }
            }));
        }
    }
    eventually(SOON, "readers overlap", async || {
        let (mode, holders) = test.mode().await;
        mode == "read" && holders >= 3
    })
    .await;
    for rw in [&test.rw, &test.another_with(|it| it).await] {
        for _ in 0..3 {
            let (guard, took) = timed(write(rw)).await;
            // The readers' holds, two seconds and a poll cap are far shorter.
            assert!(took < SOON, "{took:?}");
            guard.unlock().await.unwrap();
        }
    }
    // With Redisson's preference there is no announcement.
    let last = test.rw.clone().prefer(Preference::Readers);
    let tried = last.write().try_lock().owner(&lockdog::Owner::new());
    drop(until_ok(SOON, async || tried.clone().wait(ms(500)).await).await);
    assert!(!test.announced().await);
    loops.iter().for_each(|it| it.abort());
    test.redis.eventually_empty().await;
}

/// A writer is not announced while another writer holds the lock, so writers do not starve readers.
#[tokio::test]
async fn readers_get_in_beside_writers_that_never_stop() {
    let test = Fixture::new().await;
    let mut loops = Vec::new();
    for rw in [
        test.another_with(|it| it).await,
        test.another_with(|it| it).await,
    ] {
        let rw = rw.clone();
        loops.push(tokio::spawn(async move {
            loop {
                let guard = write(&rw).await;
                tokio::time::sleep(ms(10)).await;
                guard.unlock().await.unwrap();
            }
        }));
    }
    for _ in 0..5 {
        within_soon(reader(&test.rw)).await.unlock().await.unwrap();
    }
    loops.iter().for_each(|it| it.abort());
    test.redis.eventually_empty().await;
}

/// A child task that reads while its parent reads and a writer waits is delayed and not deadlocked. A
/// pause counts from the announcement and is twice as long as the one before.
#[tokio::test]
async fn readers_wait_for_a_writer_until_the_end_of_a_pause() {
    let test = Fixture::new().await;
    let reads = read(&test.rw).await;
    let another = test.another_with(|it| it).await;
    let began = Instant::now();
    let waits = writer(&another);
    eventually(SOON, "it is announced", async || test.announced().await).await;
    for end in [ms(2_000), ms(6_000)] {
        let (here, there) = (reader(&test.rw), reader(&another));
        for reader in [here, there] {
            let guard = within_soon(reader).await;
            assert!(began.elapsed() >= end, "{:?}", began.elapsed());
            guard.unlock().await.unwrap();
        }
        assert!(!waits.is_finished());
    }
    // Readers that re-enter are not blocked.
    let again = test.rw.read().lock().owner(&reads.owner()).await.unwrap();
    drop((again, reads));
    within_soon(waits).await.unlock().await.unwrap();
    test.assert_clean().await;
}

/// RW6: readers that come all the time, each for a moment, after one that holds for longer than the first pause.
/// The readers are in the writer's client and in another one.
#[tokio::test]
async fn a_long_reader_does_not_let_later_readers_keep_a_writer_out() {
    let test = Fixture::new().await;
    let long = read(&test.rw).await;
    let another = test.another_with(|it| it).await;
    let waits = writer(&another);
    eventually(SOON, "it is announced", async || test.announced().await).await;
    let been_in = Arc::new(AtomicUsize::new(0));
    let come = {
        let (rws, been_in) = ([test.rw.clone(), another], been_in.clone());
        tokio::spawn(async move {
            let mut every = tokio::time::interval(ms(15));
            for n in 0.. {
                every.tick().await;
                let (rw, been_in) = (rws[n % 2].clone(), been_in.clone());
                tokio::spawn(async move {
                    let guard = read(&rw).await;
                    tokio::time::sleep(ms(150)).await;
                    been_in.fetch_add(1, Ordering::Relaxed);
                    guard.unlock().await.unwrap();
                });
            }
        })
    };
    tokio::time::sleep(ms(3_500)).await;
    // Readers that called during the first pause acquired at its end.
    eventually(SOON, "many readers were in", async || {
        been_in.load(Ordering::Relaxed) > 50
    })
    .await;
    assert!(!waits.is_finished());
    long.unlock().await.unwrap();
    // Without pauses there would always be a reader, and the writer would never acquire the lock.
    within_soon(waits).await.unlock().await.unwrap();
    come.abort();
    test.redis.eventually_empty().await;
}

#[tokio::test]
async fn readers_that_are_preferred_pass_an_announced_writer() {
    let test = Fixture::new().await;
    let reads = read(&test.rw).await;
    let another = test.another().await;
    let waits = writer(&another);
    eventually(SOON, "it is announced", async || test.announced().await).await;
    assert!(!may_read(&test.rw).await);
    let of_client = test.another_with(|it| it.prefer(Preference::Readers)).await;
    let of_handles = [&test.rw, &another].map(|rw| rw.clone().prefer(Preference::Readers));
    for rw in of_handles.iter().chain([&of_client]) {
        assert!(may_read(rw).await);
        // Also readers in the queue behind the writer.
        drop(within_soon(reader(rw)).await);
    }
    let as_default = of_client.clone().prefer(Preference::Writers);
    assert!(!may_read(&as_default).await);
    assert!(!waits.is_finished());
    reads.unlock().await.unwrap();
    within_soon(waits).await.unlock().await.unwrap();
    test.assert_clean().await;
}

#[tokio::test]
async fn a_wait_ends_at_its_limit_in_each_mode() {
    let test = Fixture::new().await;
    let writes = write(&test.rw).await;
    for rw in [&test.rw, &test.another().await] {
        let owner = lockdog::Owner::new();
        let locks: [Lock; 2] = [rw.read().into(), rw.write().into()];
        for lock in locks {
            let (tried, took) = until_ok(SOON, async || {
                let request = lock.try_lock().owner(&owner).wait(ms(200));
                let (tried, took) = timed(request.into_future()).await;
                tried.map(|tried| (tried, took))
            })
            .await;
            assert!(tried.is_none() && took >= ms(190), "{took:?}");
        }
    }
    writes.unlock().await.unwrap();
    test.assert_clean().await;
}

/// A message may be lost: the poll cap finds the free lock.
#[tokio::test]
async fn the_poll_cap_finds_a_lock_that_was_freed_without_a_message() {
    let test = Fixture::with(|it| it.poll_cap(ms(300))).await;
    for reads in [true, false] {
        let hash = [
            "HSET",
            super::NAME,
            "mode",
            "write",
            "stranger:1:write",
            "1",
        ];
        test.redis.cmd(&hash).await;
        test.redis.cmd(&["PEXPIRE", super::NAME, "300000"]).await;
        let waiting = match reads {
            true => {
                let reader = reader(&test.rw);
                tokio::spawn(async move { drop(within_soon(reader).await) })
            }
            false => {
                let writer = writer(&test.rw);
                tokio::spawn(async move { drop(within_soon(writer).await) })
            }
        };
        test.somebody_waits().await;
        test.redis.cmd(&["DEL", super::NAME]).await;
        within_soon(waiting).await;
        test.assert_clean().await;
    }
    let long = test.another_with(|it| it.poll_cap(LONG)).await;
    assert!(may_read(&long).await);
}

/// After a writer all waiters are equal, because only a wait for readers is announced.
#[tokio::test]
async fn a_writer_that_waits_for_a_writer_is_not_announced() {
    let test = Fixture::new().await;
    let writes = write(&test.rw).await;
    let waits = writer(&test.another().await);
    test.somebody_waits().await;
    assert!(!test.announced().await);
    writes.unlock().await.unwrap();
    within_soon(waits).await.unlock().await.unwrap();
    test.assert_clean().await;
}
