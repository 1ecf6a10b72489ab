//! `FLUSHALL` while objects of each kind are held and awaited. It publishes no message, so holders and
//! waiters detect it by their own timers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockdog::error::{Lost, LostReason};
use lockdog::request::Leaders;
use lockdog::{Client, Error, Lock, Owner, ReadWriteLock, Value};
use lockdog_test::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::support::{checks_exclusion, ms};

/// The next renewal notifies the holder of the loss, and the waiters acquire the lock one after the
/// other. Two of them belong to the holder's client and send nothing while it holds the lock.
#[tokio::test(start_paused = true)]
async fn waiters_of_each_kind_of_lock_get_it_one_after_the_other() {
    checks_exclusion();
    for lock in EXCLUSIVE {
        for millis in MOMENTS {
            let server = Server::new();
            let [own, other] = clients(&server).await;
            let wanted = [own.clone(), other, client(&server).await];
            let held = lock(&own).lock().owner(&Owner::new()).await.unwrap();
            let (mut soon, written) = (0, Arc::new(AtomicU64::new(0)));
            let waiters: Vec<JoinHandle<Instant>> = (0..6)
                .map(|number| {
                    let request = lock(&wanted[number % 3]).lock().owner(&Owner::new());
                    let written = written.clone();
                    tokio::spawn(async move {
                        let guard = request.await.expect("a flush is no error");
                        let got = Instant::now();
                        let before = written.load(Ordering::Relaxed);
                        sleep(ms(10)).await;
                        assert!(guard.is_valid());
                        written.store(before + 1, Ordering::Relaxed);
                        guard.unlock().await.expect("it has the lock");
                        got
                    })
                })
                .collect();
            sleep(millis).await;
            assert_eq!(written.load(Ordering::Relaxed), 0);
            let flushed = flush(&server).await;
            is_notified_by_a_renewal(flushed, held.lost()).await;
            for waiter in waiters {
                let done = timeout_at(flushed + PERIOD + SOON, waiter).await;
                let got = done.expect("its client is notified of the loss").unwrap();
                soon += usize::from(got <= flushed + SOON);
            }
            assert!(soon >= 4, "the timers of {soon} woke them");
            assert_eq!(written.load(Ordering::Relaxed), 6, "two had it at a time");
            let error = held.unlock().await.unwrap_err();
            assert!(error.is_lost(), "{error}");
            server.assert_clean().await;
        }
    }
}

/// Readers with and without a watchdog are notified of the loss, and the writer that waited for them
/// acquires the lock.
#[tokio::test(start_paused = true)]
async fn a_waiting_writer_gets_the_lock_of_lost_readers_and_they_are_notified() {
    for millis in MOMENTS {
        let server = Server::new();
        let (reads, writes) = (client(&server).await, client(&server).await);
        let rw = reads.read_write_lock("doc");
        let read = || rw.read().lock().owner(&Owner::new());
        let watched = read().await.unwrap();
        let leased = read().lease(LEASE * 5).await.unwrap();
        let rw = writes.read_write_lock("doc");
        let writer = tokio::spawn(rw.write().lock().owner(&Owner::new()).into_future());
        sleep(ms(100) + millis).await;
        // Behind the writer, in the same client.
        let reader = tokio::spawn(rw.read().lock().owner(&Owner::new()).into_future());
        sleep(ms(20)).await;
        assert!(!writer.is_finished() && !reader.is_finished());
        let flushed = flush(&server).await;
        let writer = timeout_at(flushed + SOON, writer).await;
        let writer = writer.expect("its timer wakes it").unwrap().unwrap();
        is_notified_by_a_renewal(flushed, watched.lost()).await;
        let lost = timeout_at(flushed + LEASE * 5, leased.lost()).await;
        lost.expect("its lease ends at the latest");
        for reads in [watched, leased] {
            let error = reads.unlock().await.unwrap_err();
            assert!(error.is_lost(), "{error}");
        }
        assert!(writer.is_valid() && !reader.is_finished());
        writer.unlock().await.unwrap();
        let reader = timeout(SOON, reader).await.expect("it is woken").unwrap();
        reader.unwrap().unlock().await.unwrap();
        server.assert_clean().await;
    }
}

/// All of them at the same time.
#[tokio::test(start_paused = true)]
async fn waiting_readers_get_the_lock_of_a_lost_writer_and_it_is_notified() {
    for millis in MOMENTS {
        let server = Server::new();
        let (writes, reads) = (client(&server).await, clients(&server).await);
        let writer = writes.read_write_lock("doc").write().lock().await.unwrap();
        let readers: Vec<_> = (0..4)
            .map(|number| {
                let rw = reads[number % 2].read_write_lock("doc");
                tokio::spawn(rw.read().lock().owner(&Owner::new()).into_future())
            })
            .collect();
        sleep(millis).await;
        assert!(!readers.iter().any(JoinHandle::is_finished));
        let flushed = flush(&server).await;
        is_notified_by_a_renewal(flushed, writer.lost()).await;
        let mut guards = Vec::new();
        for reader in readers {
            let reader = timeout_at(flushed + SOON, reader).await;
            guards.push(reader.expect("its timer wakes it").unwrap().unwrap());
        }
        assert!(guards.iter().all(|guard| guard.is_valid()));
        assert!(writer.unlock().await.unwrap_err().is_lost());
        for guard in guards {
            guard.unlock().await.unwrap();
        }
        server.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_for_an_upgrade_is_notified_of_its_loss() {
    for millis in MOMENTS {
        let server = Server::new();
        let [reads, others] = clients(&server).await.map(|it| it.read_write_lock("doc"));
        let read = async |rw: &ReadWriteLock| rw.read().lock().owner(&Owner::new()).await.unwrap();
        let (reader, other) = (read(&reads).await, read(&others).await);
        let upgrade = tokio::spawn(reader.upgrade().into_future());
        sleep(ms(100) + millis).await;
        assert!(!upgrade.is_finished());
        let flushed = flush(&server).await;
        let ended = timeout_at(flushed + SOON, upgrade).await;
        let error = ended.expect("its timer wakes it").unwrap().unwrap_err();
        assert!(error.error().is_some_and(Error::is_lost), "{error:?}");
        is_notified_by_a_renewal(flushed, other.lost()).await;
        drop((error, other));
        server.assert_clean().await;
    }
}

/// The semaphore is gone, and with it the permits of its holders. Its waiters wait for a new one.
#[tokio::test(start_paused = true)]
async fn permits_with_leases_end_and_waiters_wait_for_new_ones() {
    for millis in MOMENTS {
        let server = Server::new();
        let (held, wanted) = (client(&server).await, client(&server).await);
        let seats = held.permit_semaphore("seats");
        assert!(seats.try_set_permits(2).await.unwrap());
        let both = seats.acquire_many(2).await.unwrap();
        let theirs = wanted.permit_semaphore("seats");
        let patient = tokio::spawn(theirs.acquire().into_future());
        let limit = ms(45_000);
        let began = Instant::now();
        let hurried = tokio::spawn(theirs.try_acquire().wait(limit).into_future());
        sleep(millis).await;
        let flushed = flush(&server).await;
        is_notified_by_a_renewal(flushed, both.lost()).await;
        assert!(
            hurried.await.unwrap().unwrap().is_none(),
            "no permit is free"
        );
        assert!(began.elapsed() >= limit && !patient.is_finished());
        server.lose_messages(true);
        assert!(theirs.try_set_permits(2).await.unwrap());
        let permit = timeout(SOON, patient).await.expect("its timer wakes it");
        let permit = permit.unwrap().unwrap();
        // A lost permit is not returned to the new semaphore.
        assert!(both.release().await.unwrap_err().is_lost());
        assert_eq!(seats.available().await.unwrap(), 1);
        assert!(permit.is_valid());
        permit.release().await.unwrap();
        assert_eq!(seats.available().await.unwrap(), 2);
        assert_eq!(seats.acquired().await.unwrap(), 0);
    }
}

/// A permit without a lease is not renewed, so only its release reports the loss.
#[tokio::test(start_paused = true)]
async fn permits_without_leases_end_and_waiters_wait_for_new_ones() {
    for millis in MOMENTS {
        let server = Server::new();
        let (held, wanted) = (client(&server).await, client(&server).await);
        let seats = held.semaphore("seats");
        assert!(seats.try_set_permits(3).await.unwrap());
        let one = seats.acquire().await.unwrap();
        let two = seats.acquire_many(2).await.unwrap();
        let theirs = wanted.semaphore("seats");
        let patient = tokio::spawn(theirs.acquire().into_future());
        let limit = ms(45_000);
        let began = Instant::now();
        let hurried = tokio::spawn(theirs.try_acquire().wait(limit).into_future());
        sleep(millis).await;
        flush(&server).await;
        assert!(one.release().await.unwrap_err().is_lost());
        assert!(
            hurried.await.unwrap().unwrap().is_none(),
            "no permit is free"
        );
        assert!(began.elapsed() >= limit && !patient.is_finished());
        server.lose_messages(true);
        assert!(theirs.try_set_permits(2).await.unwrap());
        let permit = timeout(SOON, patient).await.expect("its timer wakes it");
        let permit = permit.unwrap().unwrap();
        // A lost permit is not returned to the new semaphore.
        assert!(two.release().await.unwrap_err().is_lost());
        assert_eq!(seats.available().await.unwrap(), 1);
        permit.release().await.unwrap();
        assert_eq!(seats.available().await.unwrap(), 2);
        assert!(seats.holders().await.unwrap().is_empty());
    }
}

/// A latch without a count is open.
#[tokio::test(start_paused = true)]
async fn the_waits_for_a_latch_end() {
    for millis in MOMENTS {
        let server = Server::new();
        let clients = clients(&server).await;
        let latches = [0, 1].map(|client: usize| clients[client].count_down_latch("start"));
        assert!(latches[0].try_set_count(2).await.unwrap());
        let wait = |number: usize| {
            let latch = latches[number % 2].clone();
            tokio::spawn(async move { latch.wait_zero().await })
        };
        let waiters: Vec<_> = (0..4).map(wait).collect();
        sleep(millis).await;
        assert!(!waiters.iter().any(JoinHandle::is_finished));
        let flushed = flush(&server).await;
        for waiter in waiters {
            let ended = timeout_at(flushed + SOON, waiter).await;
            ended.expect("its timer wakes it").unwrap().unwrap();
        }
        latches[0].count_down().await.unwrap();
        assert_eq!(latches[1].count().await.unwrap(), 0);
        // The server's marks of earlier calls do not prevent a new count.
        assert!(latches[0].try_set_count(1).await.unwrap());
        let waiter = wait(1);
        sleep(SOON).await;
        assert!(!waiter.is_finished());
        latches[0].count_down().await.unwrap();
        let ended = timeout(SOON, waiter).await;
        ended.expect("a message lets it go").unwrap().unwrap();
    }
}

/// LE1 and LE4: the counter of the terms is gone, too. One candidate is of the leader's client.
#[tokio::test(start_paused = true)]
async fn candidates_lead_one_after_the_other_and_the_leader_is_notified() {
    for millis in MOMENTS {
        let server = Server::new();
        let [own, other] = clients(&server).await.map(|it| it.election("jobs"));
        let lead = own.campaign("flushed").await.unwrap();
        let mut leaders = client(&server).await.election("jobs").observe();
        assert!(leaders.next().await.unwrap().is_some());
        let mut candidates = JoinSet::new();
        for election in [&own, &other] {
            let campaign = election.campaign("next").owner(&Owner::new());
            candidates.spawn(campaign.into_future());
        }
        sleep(millis).await;
        assert!(candidates.try_join_next().is_none());
        let flushed = flush(&server).await;
        let next = timeout_at(flushed + SOON, candidates.join_next()).await;
        let next = next.expect("its timer wakes it").expect("there are two");
        let next = next.unwrap().unwrap();
        assert!(next.term() > lead.term());
        is_seen(&mut leaders, next.term()).await;
        is_notified_by_a_renewal(flushed, lead.lost()).await;
        assert!(next.is_valid() && candidates.try_join_next().is_none());
        let term = next.term();
        next.resign().await.unwrap();
        let last = timeout(SOON, candidates.join_next()).await;
        let last = last.expect("it is woken").expect("there are two");
        let last = last.unwrap().unwrap();
        assert!(last.term() > term);
        is_seen(&mut leaders, last.term()).await;
        assert!(lead.resign().await.unwrap_err().is_lost());
        assert!(last.is_valid());
        last.resign().await.unwrap();
        drop(leaders);
        server.assert_clean().await;
    }
}

/// The observer sees the leader of this term.
async fn is_seen(leaders: &mut Leaders, term: u64) {
    let seen = async {
        loop {
            let leader = leaders.next().await.expect("the server answers");
            if leader.is_some_and(|leader| leader.term == Some(term)) {
                break;
            }
        }
    };
    let seen = timeout(SOON, seen).await;
    seen.expect("its timer or a message wakes it");
}

/// Returns when it was done.
async fn flush(server: &Server) -> Instant {
    let mut stream = server.connect();
    stream.write_all(b"*1\r\n$8\r\nFLUSHALL\r\n").await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"+OK\r\n");
    Instant::now()
}

/// The next renewal finds that the lock is gone.
async fn is_notified_by_a_renewal(flushed: Instant, lost: impl Future<Output = Lost>) {
    let lost = timeout_at(flushed + PERIOD, lost).await;
    let lost = lost.expect("its next renewal shows the loss");
    assert_eq!(lost.reason(), LostReason::NotOurs);
}

async fn client(server: &Server) -> Client {
    let client = server.builder().watchdog_lease(LEASE).poll_cap(POLL_CAP);
    client.build().await.expect("the server is there")
}

async fn clients(server: &Server) -> [Client; 2] {
    [client(server).await, client(server).await]
}

/// One for each kind of lock that has one holder at a time.
const EXCLUSIVE: [fn(&Client) -> Lock; 7] = [
    |client| client.lock("doc"),
    |client| client.spin_lock("doc"),
    |client| client.fenced_lock("doc"),
    |client| client.fair_lock("doc"),
    |client| client.non_reentrant_lock("doc"),
    |client| client.read_write_lock("doc").write().into(),
    |client| client.group_lock("people", ["Jack", "Mary"].map(value)),
];

fn value(text: &str) -> Value {
    Value::kryo5(text).expect("it is short")
}

/// Moments of a waiter's and of a watchdog's periods.
const MOMENTS: [Duration; 5] = [ms(50), ms(310), ms(650), ms(5_500), ms(9_990)];
/// So long that the poll cap is what wakes the waiters, and not the end of a lease.
const LEASE: Duration = ms(30_000);
const PERIOD: Duration = ms(10_000);
const POLL_CAP: Duration = ms(1_000);
/// A poll cap with its jitter, and a second one because clients may wait for each other.
const SOON: Duration = ms(2_500);
