//! Leases, renewals, and how a holder is notified of a loss.

use std::time::{Duration, Instant};

use lockdog::{Error, Owner};

use super::{
    Fixture, LEASE, LONG, NAME, SOON, may_read, may_write, ms, read, read_for, reader, within_soon,
    write, write_for, writer,
};
use crate::support::eventually;

#[tokio::test]
async fn the_watchdog_renews_both_modes() {
    let test = Fixture::with(|it| it.watchdog_lease(LEASE)).await;
    let (one, two) = (read(&test.rw).await, read(&test.rw).await);
    tokio::time::sleep(LEASE + ms(1_000)).await;
    assert!(one.is_valid() && two.is_valid());
    assert_eq!(test.mode().await, ("read".to_owned(), 2));
    for key in test.redis.keys().await {
        eventually(SOON, "it was renewed", async || {
            test.redis.pttl(&key).await > 2_000
        })
        .await;
    }
    drop((one, two));
    let writes = write(&test.rw).await;
    tokio::time::sleep(LEASE + ms(1_000)).await;
    assert!(writes.is_valid());
    assert_eq!(test.mode().await, ("write".to_owned(), 1));
    writes.unlock().await.unwrap();
    test.assert_clean().await;
}

/// The lock lives as long as its longest hold, and no longer (RW3).
#[tokio::test]
async fn a_read_hold_that_ends_takes_its_lease_along() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let short = test.rw.read().lock().owner(&Owner::new()).lease(LEASE);
    short.await.unwrap().leave_to_lease();
    let long = another
        .read()
        .lock()
        .owner(&Owner::new())
        .lease(LONG)
        .await
        .unwrap();
    let waits = writer(&another);
    test.somebody_waits().await;
    long.unlock().await.unwrap();
    let ttl = test.redis.pttl(NAME).await;
    assert!(ttl <= LEASE.as_millis() as i64, "{ttl}");
    // At the end of the short lease, far before the end of the long one.
    within_soon(waits).await.unlock().await.unwrap();
    test.assert_clean().await;
}

/// The fields of dead readers do not accumulate while others read, and no query reports them. A
/// Redisson reader whose second acquire has a lease counts as alive.
#[tokio::test]
async fn readers_whose_leases_are_over_are_not_reported_and_get_deleted() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let owner = Owner::new();
    let lease = ms(8_000);
    let gone = test.rw.read().lock().owner(&owner).lease(lease);
    let gone = gone.await.unwrap();
    assert!(test.rw.read().is_held_by(&owner).await.unwrap());
    let long = another.read().lock().lease(LONG).await.unwrap();
    assert_eq!(test.rw.holders().await.unwrap().len(), 2);
    tokio::time::sleep(lease + ms(100)).await;
    assert_eq!(test.mode().await.1, 2, "the other reader keeps the field");
    assert!(!test.rw.read().is_held_by(&owner).await.unwrap());
    let holders = test.rw.holders().await.unwrap();
    assert!(holders.len() == 1 && !holders[0].ours);
    for number in 0..100 {
        let field = format!("gone:{number}");
        test.redis.cmd(&["HSET", NAME, &field, "1"]).await;
    }
    test.redis.cmd(&["HSET", NAME, "java:1", "2"]).await;
    let timeout = format!("{{{NAME}}}:java:1:rwlock_timeout:2");
    test.redis
        .cmd(&["SET", &timeout, "1", "PX", "300000"])
        .await;
    let mut rounds = 0;
    while test.mode().await.1 > 2 {
        rounds += 1;
        assert!(rounds < 2_000, "{:?}", test.hash().await);
        read(&test.rw).await.unlock().await.unwrap();
    }
    assert_eq!(test.hash().await["java:1"], "2");
    drop(gone);
    long.unlock().await.unwrap();
    assert_eq!(test.rw.holders().await.unwrap().len(), 1);
    test.redis.cmd(&["DEL", NAME, &timeout]).await;
    test.assert_clean().await;
}

/// Without new readers, an unlock deletes the expired fields that it finds.
#[tokio::test]
async fn an_unlock_deletes_the_readers_whose_leases_are_over() {
    let test = Fixture::new().await;
    // The unlock of the longest lease looks through all others.
    let stays = test.rw.read().lock().owner(&Owner::new());
    let stays = stays.lease(2 * SOON).await.unwrap();
    let ends = test.rw.read().lock().owner(&Owner::new()).lease(LONG);
    let ends = ends.await.unwrap();
    for number in 0..100 {
        let field = format!("gone:{number}");
        test.redis.cmd(&["HSET", NAME, &field, "1"]).await;
    }
    ends.unlock().await.unwrap();
    let left = test.mode().await.1;
    assert_eq!(left, 1);
    stays.unlock().await.unwrap();
    test.assert_clean().await;
}

/// R17 and R18. Only the end of the lease wakes the waiter.
#[tokio::test]
async fn the_end_of_a_lease_lets_waiters_in_and_the_holder_knows() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let lease = ms(2_000);
    let (writes, asked) = write_for(lease, &test.rw, &Owner::new()).await;
    let readers = [reader(&another), reader(&another)];
    for one in readers {
        drop(within_soon(one).await);
    }
    let took = asked.elapsed();
    assert!(took >= lease - ms(10) && took < LONG, "{took:?}");
    assert!(!writes.is_valid());
    let error = writes.unlock().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    let (writes, asked) = write_for(lease, &test.rw, &Owner::new()).await;
    let waits = writer(&another);
    test.somebody_waits().await;
    // On a busy machine the lease may be over by now.
    assert!(!waits.is_finished() || asked.elapsed() >= lease - ms(10));
    within_soon(waits).await.unlock().await.unwrap();
    assert!(writes.unlock().await.unwrap_err().is_lost());
    let (reads, _) = read_for(lease, &test.rw).await;
    let waits = writer(&another);
    let guard = within_soon(waits).await;
    assert!(!reads.is_valid() && reads.unlock().await.unwrap_err().is_lost());
    guard.unlock().await.unwrap();
    test.assert_clean().await;
}

#[tokio::test]
async fn a_deleted_key_is_reported_at_the_next_renewal() {
    let test = Fixture::with(|it| it.watchdog_lease(LEASE)).await;
    let (one, two) = (read(&test.rw).await, read(&test.rw).await);
    test.redis.cmd(&["DEL", NAME]).await;
    let lost = tokio::time::timeout(SOON, async { tokio::join!(one.lost(), two.lost()) });
    lost.await.expect("both are notified of the loss");
    drop((one, two));
    let writes = write(&test.rw).await;
    test.redis.cmd(&["DEL", NAME]).await;
    let lost = tokio::time::timeout(SOON, writes.lost()).await;
    lost.expect("it is notified of the loss");
    drop(writes);
    test.assert_clean().await;
}

/// RW5: another program, or Redisson's renewal, sets the lock's TTL to less than the rest of a long lease.
#[tokio::test]
async fn the_watchdog_renews_a_read_hold_with_a_long_lease() {
    let test = Fixture::with(|it| it.watchdog_lease(LEASE)).await;
    let reads = test.rw.read().lock().lease(LONG).await.unwrap();
    let left = reads.remaining();
    assert!(!test.client.holds()[0].watched);
    for _ in 0..2 {
        test.redis.cmd(&["PEXPIRE", NAME, "8000"]).await;
        eventually(SOON, "it has its lease again", async || {
            test.redis.pttl(NAME).await > 200_000
        })
        .await;
    }
    // It is not longer than before.
    assert!(reads.remaining() <= left && test.redis.pttl(NAME).await <= 300_000);
    // The client detects the loss of the key, as for a watched hold.
    test.redis.cmd(&["DEL", NAME]).await;
    let lost = tokio::time::timeout(SOON, reads.lost()).await;
    lost.expect("it is found before the end of the lease");
}

/// RW5: the watchdog's lease is shorter than the extension, so an ordinary renewal would not restore the TTL.
#[tokio::test]
async fn the_watchdog_renews_the_long_lease_of_a_watched_read_hold_too() {
    let test = Fixture::with(|it| it.watchdog_lease(LEASE)).await;
    let reads = read(&test.rw).await;
    reads.extend(LONG).await.unwrap();
    assert!(test.client.holds()[0].watched);
    for _ in 0..2 {
        test.redis.cmd(&["PEXPIRE", NAME, "8000"]).await;
        eventually(SOON, "it has its lease again", async || {
            test.redis.pttl(NAME).await > 200_000
        })
        .await;
    }
    assert!(reads.is_valid());
    reads.unlock().await.unwrap();
    test.assert_clean().await;
}

/// A short lease needs no renewal, because no other program shortens it.
#[tokio::test]
async fn the_watchdog_renews_no_short_lease_and_no_write_hold() {
    let test = Fixture::with(|it| it.watchdog_lease(LEASE)).await;
    let reads = test.rw.read().lock().lease(LEASE / 4).await.unwrap();
    let lost = tokio::time::timeout(SOON, reads.lost()).await;
    lost.expect("its lease ended");
    drop(reads);
    let writes = test.rw.write().lock().lease(LONG).await.unwrap();
    test.redis.cmd(&["PEXPIRE", NAME, "20000"]).await;
    tokio::time::sleep(LEASE).await;
    let ttl = test.redis.pttl(NAME).await;
    assert!(ttl < 20_000, "{ttl}");
    drop(writes);
}

#[tokio::test]
async fn an_extended_lease_is_that_of_the_timeout_key_too() {
    let test = Fixture::new().await;
    let reads = test.rw.read().lock().lease(LEASE).await.unwrap();
    reads.extend(LONG).await.unwrap();
    for key in test.redis.keys().await {
        let ttl = test.redis.pttl(&key).await;
        assert!(ttl > 200_000, "{key} has {ttl} ms");
    }
    assert!(reads.remaining() > LONG / 2);
    reads.unlock().await.unwrap();
    let writes = test.rw.write().lock().lease(LEASE).await.unwrap();
    writes.extend(LONG).await.unwrap();
    assert!(writes.remaining() > LONG / 2 && test.redis.pttl(NAME).await > 200_000);
    writes.unlock().await.unwrap();
}

#[tokio::test]
async fn a_hold_that_is_left_to_its_lease_keeps_others_out_until_then() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let lease = ms(2_000);
    let (reads, asked) = read_for(lease, &test.rw).await;
    reads.leave_to_lease();
    // On a busy machine the lease may be over by now.
    assert!(!may_write(&test.rw).await || asked.elapsed() >= lease - ms(10));
    let writes = within_soon(writer(&another)).await;
    assert!(asked.elapsed() >= lease - ms(10), "{:?}", asked.elapsed());
    writes.unlock().await.unwrap();
    test.assert_clean().await;
}

/// The read hold of the same owner keeps the key of the lock.
#[tokio::test]
async fn a_write_hold_ends_with_its_lease_while_its_owner_reads_on() {
    let test = Fixture::new().await;
    let another = test.another().await;
    for is_left in [false, true] {
        let owner = Owner::new();
        let lease = ms(2_000);
        let (writes, asked) = write_for(lease, &test.rw, &owner).await;
        let reads = test.rw.read().lock().owner(&owner).await.unwrap();
        // On a busy machine the lease may be over at any of these steps.
        let writes_on = async || {
            let mode = test.mode().await;
            mode == ("write".to_owned(), 2) || asked.elapsed() >= lease - ms(10)
        };
        assert!(writes_on().await);
        let other = reader(&another);
        let lost = match is_left {
            true => {
                writes.leave_to_lease();
                tokio::time::sleep(ms(1_000)).await;
                assert!(writes_on().await);
                None
            }
            false => Some(writes),
        };
        // The message wakes the waiter. Its timer follows the read hold, which is renewed.
        let other = within_soon(other).await;
        assert!(lost.as_ref().is_none_or(|it| !it.is_valid()) && reads.is_valid());
        assert_eq!(test.mode().await, ("read".to_owned(), 2));
        drop(lost);
        other.unlock().await.unwrap();
        reads.unlock().await.unwrap();
        test.assert_clean().await;
    }
}

/// By a shutdown, or because its last handle is dropped. Its read hold is released, and its write hold keeps others
/// out until the end of the lease.
#[tokio::test]
async fn a_client_that_ends_leaves_a_write_hold_that_was_left_to_its_lease() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let connections = async || test.redis.clients().await.len();
    for is_shut_down in [true, false] {
        // The connections of the other clients are there.
        assert!(may_write(&test.rw).await);
        within_soon(reader(&another)).await.unlock().await.unwrap();
        let before = connections().await;
        let client = lockdog::Client::connect(test.server.url()).await.unwrap();
        let (rw, owner) = (client.read_write_lock(NAME), Owner::new());
        let asked = Instant::now();
        let writes = rw.write().lock().owner(&owner).lease(LEASE);
        let writes = writes.await.unwrap();
        let field = format!("{}:{owner}.1:write", client.id());
        let reads = rw.read().lock().owner(&owner).lease(LEASE);
        let reads = reads.await.unwrap();
        writes.leave_to_lease();
        assert!(connections().await > before);
        if is_shut_down {
            let report = client.shutdown().await;
            assert_eq!((report.released, report.unconfirmed), (1, 0), "{report:?}");
        }
        drop((reads, rw, client));
        eventually(SOON, "its connections are closed", async || {
            connections().await <= before
        })
        .await;
        // The client has ended, so it cannot release the hold later.
        let hash: Vec<_> = test.hash().await.into_iter().collect();
        let [(held, count), (mode, is)] = &hash[..] else {
            panic!("{hash:?}")
        };
        assert_eq!((held, &**count), (&field, "1"));
        assert_eq!((&**mode, &**is), ("mode", "write"));
        assert!(!may_read(&test.rw).await && !may_write(&test.rw).await);
        let writes = within_soon(writer(&another)).await;
        let took = asked.elapsed();
        assert!(took >= LEASE - ms(10), "{took:?}");
        writes.unlock().await.unwrap();
        test.assert_clean().await;
    }
}

#[tokio::test]
async fn a_shutdown_releases_both_modes() {
    let test = Fixture::new().await;
    let (reads, other) = (read(&test.rw).await, read(&test.rw).await);
    let report = test.client.shutdown().await;
    assert_eq!(report.released, 2, "{report:?}");
    assert!(!reads.is_valid() && !other.is_valid());
    let error = test.rw.read().lock().await.unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    test.redis.eventually_empty().await;
    let _: Duration = reads.remaining();
}
