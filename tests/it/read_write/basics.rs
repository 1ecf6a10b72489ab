//! Readers, a writer, re-entry, and the keys in Redis.

use lockdog::{AnyLock, Lock, Owner, Unlocked};

use super::{Fixture, LONG, may_read, may_write, ms, read, write};
use crate::support::prelude::SOON;
use crate::support::until_ok;

/// R14.
#[tokio::test]
async fn readers_share_it_and_a_writer_has_it_alone() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let (one, two, three) = (
        read(&test.rw).await,
        read(&test.rw).await,
        read(&another).await,
    );
    assert_eq!(test.mode().await, ("read".to_owned(), 3));
    assert!(!may_write(&test.rw).await && !may_write(&another).await);
    for reader in [one, two] {
        assert_eq!(reader.unlock().await.unwrap(), Unlocked::Released);
        assert!(!may_write(&another).await);
    }
    three.unlock().await.unwrap();
    let writer = write(&test.rw).await;
    assert_eq!(test.mode().await, ("write".to_owned(), 1));
    for rw in [&test.rw, &another] {
        assert!(!may_read(rw).await && !may_write(rw).await);
    }
    writer.unlock().await.unwrap();
    assert!(may_read(&another).await && may_write(&another).await);
    test.assert_clean().await;
}

/// The keys are Redisson's: a mode, a field for each holder, and a timeout key for each read hold.
#[tokio::test]
async fn redis_shows_a_field_for_each_hold_and_a_timeout_key_for_each_read_hold() {
    let test = Fixture::new().await;
    let owner = Owner::new();
    let reads = test
        .rw
        .read()
        .lock()
        .owner(&owner)
        .lease(LONG)
        .await
        .unwrap();
    let field = format!("{}:{owner}.1", test.client.id());
    let hash = test.hash().await;
    assert_eq!(hash.get("mode").map(String::as_str), Some("read"));
    assert_eq!(hash.get(&field).map(String::as_str), Some("1"));
    let timeout = format!("{{doc}}:{field}:rwlock_timeout:1");
    let ttls = [
        test.redis.pttl("doc").await,
        test.redis.pttl(&timeout).await,
    ];
    assert!(
        ttls.iter().all(|ttl| (290_000..=300_000).contains(ttl)),
        "{ttls:?}"
    );
    // A re-entry increments the field and has no key of its own.
    let again = test
        .rw
        .read()
        .lock()
        .owner(&owner)
        .lease(LONG)
        .await
        .unwrap();
    assert_eq!(test.hash().await.get(&field).map(String::as_str), Some("2"));
    assert_eq!(test.redis.keys().await.len(), 2);
    assert_eq!(
        again.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    assert_eq!(reads.unlock().await.unwrap(), Unlocked::Released);
    let writes = test.rw.write().lock().owner(&owner).await.unwrap();
    let field = format!("{}:{owner}.2:write", test.client.id());
    assert_eq!(test.hash().await.get(&field).map(String::as_str), Some("1"));
    assert_eq!(test.redis.keys().await, ["doc"]);
    drop(writes);
    test.assert_clean().await;
}

/// R20, R22, R24 and R26, in both modes.
#[tokio::test]
async fn each_mode_is_reentered_and_counted_for_itself() {
    let test = Fixture::new().await;
    let both: [Lock; 2] = [test.rw.read().into(), test.rw.write().into()];
    for lock in both.iter().chain(&both) {
        assert!(!lock.is_held().await.unwrap() && !lock.is_locked().await.unwrap());
        let one = lock.lock().await.unwrap();
        let two = lock.try_lock().await.unwrap().expect("its owner has it");
        assert_eq!((lock.hold_count().await.unwrap(), two.hold_count()), (2, 2));
        assert!(lock.is_held().await.unwrap() && lock.is_locked().await.unwrap());
        let stranger = Owner::new();
        assert!(!lock.is_held_by(&stranger).await.unwrap());
        assert!(lock.remaining_ttl().await.unwrap().is_some());
        two.unlock().await.unwrap();
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        one.unlock().await.unwrap();
        assert_eq!(lock.hold_count().await.unwrap(), 0);
        assert!(!lock.is_held().await.unwrap() && !lock.is_locked().await.unwrap());
        assert!(lock.remaining_ttl().await.unwrap().is_none());
    }
    test.assert_clean().await;
}

#[tokio::test]
async fn forgotten_holds_of_the_two_modes_are_unlocked_by_their_own_locks() {
    let test = Fixture::new().await;
    test.rw.write().lock().await.unwrap().forget();
    test.rw.read().lock().await.unwrap().forget();
    assert_eq!(test.mode().await, ("write".to_owned(), 2));
    test.rw.write().unlock().await.unwrap();
    assert_eq!(test.mode().await, ("read".to_owned(), 1));
    assert!(test.rw.write().unlock().await.is_err());
    test.rw.read().unlock().await.unwrap();
    test.assert_clean().await;
}

#[tokio::test]
async fn with_cancels_and_returns_as_for_a_lock() {
    let test = Fixture::new().await;
    let valid = test.rw.read().lock();
    let valid = valid.with(|held| async move { held.is_valid() });
    assert!(valid.await.unwrap());
    let sum = test.rw.write().try_lock().with(|_| async { 6 * 7 });
    assert_eq!(sum.await.unwrap(), Some(42));
    test.assert_clean().await;
}

#[tokio::test]
async fn a_dropped_guard_is_released_in_the_background() {
    let test = Fixture::new().await;
    drop(read(&test.rw).await);
    // A pending release does not make the lock busy for the same client.
    let writer = test.rw.write().try_lock().await.unwrap();
    drop(writer.expect("the read hold is being released"));
    let reader = test.rw.read().try_lock().await.unwrap();
    drop(reader.expect("the write hold is being released"));
    test.assert_clean().await;
}

#[tokio::test]
async fn exclusive_handles_give_each_acquire_an_owner() {
    let test = Fixture::new().await;
    let (read, write) = (test.rw.read().exclusive(), test.rw.write().exclusive());
    let one = read.lock().await.unwrap();
    let two = read.lock().await.unwrap();
    assert_eq!(test.mode().await, ("read".to_owned(), 2));
    assert!(write.try_lock().await.unwrap().is_none());
    one.unlock().await.unwrap();
    two.unlock().await.unwrap();
    let one = write.lock().await.unwrap();
    assert!(
        until_ok(SOON, async || write.try_lock().wait(ms(50)).await)
            .await
            .is_none()
    );
    one.unlock().await.unwrap();
    test.assert_clean().await;
}

/// Code that accepts any lock accepts one mode of this one.
#[tokio::test]
async fn a_mode_is_any_lock() {
    async fn guarded(lock: &impl AnyLock) -> lockdog::Result<u32> {
        let guard = lock.lock().await?;
        let count = lock.hold_count().await?;
        guard.unlock().await?;
        Ok(count)
    }
    let test = Fixture::new().await;
    assert_eq!(guarded(&Lock::from(test.rw.read())).await.unwrap(), 1);
    assert_eq!(guarded(&Lock::from(test.rw.write())).await.unwrap(), 1);
}

/// A re-entry that is counted in the client sends nothing in either mode.
#[tokio::test]
async fn a_local_reentry_is_not_counted_in_redis() {
    let test = Fixture::with(|it| it.reentry(lockdog::config::Reentry::Local)).await;
    let locks: [Lock; 2] = [test.rw.read().into(), test.rw.write().into()];
    for lock in locks {
        let one = lock.lock().await.unwrap();
        let two = lock.lock().await.unwrap();
        assert_eq!((two.hold_count(), lock.hold_count().await.unwrap()), (2, 1));
        drop(one);
        two.unlock().await.unwrap();
        assert!(!lock.is_locked().await.unwrap());
    }
    test.assert_clean().await;
}
