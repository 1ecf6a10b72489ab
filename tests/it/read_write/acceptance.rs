//! What Redisson's own tests of its read/write lock check and no other test here does. The steps of
//! Redisson's tests last seconds.

use lockdog::{Client, Error, Owner, ReadGuard};

use super::{
    Fixture, LEASE, LONG, NAME, SOON, may_read, may_write, ms, read, reader, within_soon,
    write_for, writer,
};
use crate::support::eventually;

/// R02 and R12: the modes of an owner that writes, reads, and stops writing.
#[tokio::test]
async fn an_owner_that_read_below_its_write_reads_on_after_it() {
    let test = Fixture::new().await;
    let owner = Owner::new();
    let writes = test.rw.write().lock().owner(&owner).await.unwrap();
    assert!(!test.rw.read().is_locked().await.unwrap());
    let request = test.rw.read().try_lock().owner(&owner).wait(SOON);
    let reads = request.await.unwrap().expect("it writes");
    assert!(test.rw.read().is_locked().await.unwrap());
    assert!(!may_read(&test.rw).await && !may_read(&test.another().await).await);
    writes.unlock().await.unwrap();
    // Now other owners can read, and no owner can write.
    assert!(may_read(&test.rw).await);
    let again = test.rw.write().try_lock().owner(&owner).await.unwrap();
    assert!(again.is_none() && !test.rw.write().is_locked().await.unwrap());
    reads.unlock().await.unwrap();
    assert!(may_write(&test.rw).await);
    test.assert_clean().await;
}

/// R03: more readers than are renewed in one command, each for longer than the watchdog's lease.
#[tokio::test]
async fn many_readers_are_renewed_beyond_the_watchdogs_lease() {
    let test = Fixture::with(|it| it.watchdog_lease(LEASE)).await;
    let mut readers = Vec::new();
    for _ in 0..150 {
        readers.push(reader(&test.rw));
    }
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(within_soon(reader).await);
    }
    tokio::time::sleep(LEASE + ms(1_000)).await;
    for guard in guards {
        guard.unlock().await.expect("it was renewed");
    }
    test.assert_clean().await;
}

/// R04: a name with braces, of which Redisson's channel has no further ones.
#[tokio::test]
async fn readers_of_a_name_with_braces_come_and_go() {
    let test = Fixture::new().await;
    let rw = test.client.read_write_lock("{test}:abc:key");
    let mut readers = Vec::new();
    for _ in 0..10 {
        let rw = rw.clone();
        readers.push(tokio::spawn(async move {
            for _ in 0..10 {
                rw.read().lock().await.unwrap().forget();
                rw.read().unlock().await.unwrap();
            }
        }));
    }
    for reader in readers {
        reader.await.unwrap();
    }
    // Its timeout key is in the slot of the name, and its message on the channel of Redisson's waiters.
    let messages = test.redis.messages("*").await;
    let reads = read(&rw).await;
    let keys = test.redis.keys().await;
    let is_right = |key: &String| key.starts_with("{test}:abc:key");
    assert!(keys.len() == 2 && keys.iter().all(is_right), "{keys:?}");
    assert!(!may_write(&rw).await);
    reads.unlock().await.unwrap();
    let zero = ("redisson_rwlock:{test}:abc:key".to_owned(), "0".to_owned());
    eventually(SOON, "the message came", async || {
        messages.seen() == [zero.clone()]
    })
    .await;
    test.assert_clean().await;
}

/// R21, R23 and R25: the queries of another owner about a read hold, in the same client and in another
/// one.
#[tokio::test]
async fn another_owner_sees_a_read_as_locked_and_cannot_end_it() {
    let test = Fixture::new().await;
    let (owner, another) = (Owner::new(), test.another().await);
    let reads = test.rw.read().lock().owner(&owner).await.unwrap();
    for is_held in [true, false] {
        for lock in [test.rw.read(), another.read()] {
            let asks = tokio::spawn(async move {
                let error = lock.unlock().await.unwrap_err();
                assert!(matches!(error, Error::NotHeld(_)), "{error}");
                let is_locked = lock.is_locked().await.unwrap();
                (is_locked, lock.is_held().await.unwrap())
            });
            assert_eq!(asks.await.unwrap(), (is_held, false));
        }
        assert_eq!(test.rw.read().is_held_by(&owner).await.unwrap(), is_held);
        if is_held {
            assert!(reads.is_valid());
            // Redisson's test ends with a forced unlock, too.
            assert!(test.rw.read().force_unlock().await.unwrap());
        }
    }
    assert!(reads.unlock().await.unwrap_err().is_lost());
    test.assert_clean().await;
}

/// R27: only the last of two unlocks of a read admits a writer.
#[tokio::test]
async fn a_reentered_read_is_shared_and_keeps_writers_out_until_its_last_unlock() {
    let test = Fixture::new().await;
    let (owner, another) = (Owner::new(), test.another().await);
    let tried = async || test.rw.read().try_lock().owner(&owner).await.unwrap();
    let outer = tried().await.expect("it is free");
    let inner = tried().await.expect("its owner reads");
    inner.unlock().await.unwrap();
    for rw in [&test.rw, &another] {
        assert!(may_read(rw).await && !may_write(rw).await);
    }
    outer.unlock().await.unwrap();
    assert!(may_write(&another).await);
    test.assert_clean().await;
}

/// R07: several readers wait for the end of a writer's lease.
#[tokio::test]
async fn the_end_of_a_writers_lease_lets_all_waiting_readers_in() {
    let test = Fixture::new().await;
    let lease = ms(2_000);
    let (writes, asked) = write_for(lease, &test.rw, &Owner::new()).await;
    writes.forget();
    let another = test.another().await;
    let waiting = [reader(&test.rw), reader(&another), reader(&another)];
    let mut guards = Vec::new();
    for one in waiting {
        guards.push(within_soon(one).await);
    }
    let took = asked.elapsed();
    assert!(took >= lease - ms(10), "{took:?}");
    assert_eq!(test.mode().await, ("read".to_owned(), 3));
    drop(guards);
    test.assert_clean().await;
}

/// R13: a write that was re-entered, seen through another client's handle.
#[tokio::test]
async fn a_reentered_write_becomes_a_read_step_by_step() {
    let test = Fixture::new().await;
    let (owner, another) = (Owner::new(), test.another().await);
    let outer = test.rw.write().lock().owner(&owner).await.unwrap();
    let inner = test.rw.write().lock().owner(&owner).await.unwrap();
    let seen = another.write();
    assert!(!seen.is_held().await.unwrap() && seen.is_locked().await.unwrap());
    for rw in [&test.rw, &another] {
        assert!(!may_read(rw).await && !may_write(rw).await);
    }
    inner.unlock().await.unwrap();
    let reads = test.rw.read().lock().owner(&owner).await.unwrap();
    outer.unlock().await.unwrap();
    assert_eq!(test.mode().await, ("read".to_owned(), 1));
    let (one, two) = (read(&another).await, read(&another).await);
    let tried = test.rw.write().try_lock().owner(&owner).await.unwrap();
    assert!(tried.is_none() && !seen.is_locked().await.unwrap());
    assert!(!test.rw.write().is_held_by(&owner).await.unwrap());
    drop((one, two));
    reads.unlock().await.unwrap();
    test.assert_clean().await;
}

/// R32: when the leases of dead clients with re-entered reads are over, a writer gets the lock,
/// although a living reader renewed its own hold meanwhile.
#[tokio::test]
async fn readers_that_died_do_not_keep_a_writer_out_beyond_their_leases() {
    let test = Fixture::new().await;
    for _ in 0..20 {
        let client = Client::builder().url(test.server.url());
        let client = client.watchdog_lease(LEASE).build().await.unwrap();
        let owner = Owner::new();
        let read = client.read_write_lock(NAME).read();
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(read.lock().owner(&owner).lease(LEASE).await.unwrap());
        }
        // These holds are not renewed, as if the client had died.
        guards.into_iter().for_each(ReadGuard::leave_to_lease);
        client.shutdown().await;
    }
    let living = read(&test.another_with(|it| it.watchdog_lease(LONG)).await).await;
    // On a busy machine the first leases may be over by now.
    let (mode, holders) = test.mode().await;
    assert!(mode == "read" && holders > 1, "{holders} in mode {mode}");
    tokio::time::sleep(LEASE + ms(1_000)).await;
    let waits = writer(&test.rw);
    eventually(SOON, "it is announced", async || test.announced().await).await;
    living.unlock().await.unwrap();
    // The TTL of the lock is that of the living reader.
    within_soon(waits).await.unlock().await.unwrap();
    let tried = test.rw.read().try_lock().lease(LONG).await.unwrap();
    tried.expect("it is free").unlock().await.unwrap();
    test.assert_clean().await;
}
