//! An owner in both modes: reading while it writes, and changing from writing to reading.

use lockdog::{Error, Owner, Unlocked};

use super::{
    Fixture, LEASE, LONG, SOON, may_read, may_write, ms, reader, turn, within_soon, write, writer,
};
use crate::support::{eventually, timed, until_ok};

#[tokio::test]
async fn an_owner_that_writes_may_read() {
    let test = Fixture::new().await;
    let writes = test.rw.write().lock().await.unwrap();
    let reads = test.rw.read().lock().await.unwrap();
    assert_eq!(test.mode().await, ("write".to_owned(), 2));
    assert_eq!(reads.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!(test.mode().await, ("write".to_owned(), 1));
    writes.unlock().await.unwrap();
    test.assert_clean().await;
}

/// The queries of each mode about a hold of the other mode.
#[tokio::test]
async fn each_lock_is_locked_by_holds_of_its_mode_only() {
    let test = Fixture::new().await;
    let locked = async || {
        let (read, write) = (test.rw.read(), test.rw.write());
        (
            read.is_locked().await.unwrap(),
            write.is_locked().await.unwrap(),
        )
    };
    assert_eq!(locked().await, (false, false));
    let writes = test.rw.write().lock().await.unwrap();
    assert_eq!(locked().await, (false, true));
    let reads = test.rw.read().try_lock().wait(SOON).await.unwrap().unwrap();
    assert_eq!(locked().await, (true, true));
    let holders = test.rw.holders().await.unwrap();
    let seen: Vec<bool> = holders.iter().map(|it| it.is_write()).collect();
    assert_eq!(seen, [true, false]);
    assert!(
        holders
            .iter()
            .all(|it| it.ours && it.is_lockdog() && it.count == 1)
    );
    drop(writes);
    test.eventually_mode("read", 1).await;
    assert_eq!(locked().await, (true, false));
    drop(reads);
    test.assert_clean().await;
    assert!(test.rw.holders().await.unwrap().is_empty());
}

/// A lock of another kind under the name has holders, but none with a mode.
#[tokio::test]
async fn a_plain_lock_of_the_name_excludes_both_modes() {
    let test = Fixture::new().await;
    let plain = test.client.lock(super::NAME).lock().await.unwrap();
    assert!(!may_read(&test.rw).await && !may_write(&test.rw).await);
    assert!(!test.rw.read().is_locked().await.unwrap());
    assert!(!test.rw.write().is_locked().await.unwrap());
    plain.unlock().await.unwrap();
    let writes = write(&test.rw).await;
    assert!(
        test.client
            .lock(super::NAME)
            .try_lock()
            .await
            .unwrap()
            .is_none()
    );
    drop(writes);
}

#[tokio::test]
async fn a_downgrade_keeps_writers_out_and_lets_readers_in() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let writes = test.rw.write().lock().await.unwrap();
    let inner = test.rw.write().lock().await.unwrap();
    inner.unlock().await.unwrap();
    assert!(!may_read(&another).await);
    let (waits_to_read, waits_to_write) = (reader(&another), writer(&test.another().await));
    test.somebody_waits().await;
    let reads = writes.downgrade().await.unwrap();
    // The message woke the reader, or the end of the writer's pause did.
    let other = within_soon(waits_to_read).await;
    assert!(reads.is_valid() && !waits_to_write.is_finished());
    assert_eq!(test.mode().await.0, "read");
    assert!(test.rw.write().try_lock().await.unwrap().is_none());
    assert!(!test.rw.write().is_held().await.unwrap());
    reads.unlock().await.unwrap();
    other.unlock().await.unwrap();
    within_soon(waits_to_write).await.unlock().await.unwrap();
    test.assert_clean().await;
}

#[tokio::test]
async fn a_downgraded_hold_has_what_is_left_of_a_lease_or_is_watched() {
    let test = Fixture::with(|it| it.watchdog_lease(LEASE)).await;
    let writes = test.rw.write().lock().lease(LONG).await.unwrap();
    let reads = writes.downgrade().await.unwrap();
    let left = reads.remaining();
    assert!(left > LONG / 2 && left < LONG, "{left:?}");
    reads.unlock().await.unwrap();
    let reads = test
        .rw
        .write()
        .lock()
        .await
        .unwrap()
        .downgrade()
        .await
        .unwrap();
    tokio::time::sleep(LEASE + ms(500)).await;
    assert!(reads.is_valid());
    reads.unlock().await.unwrap();
    test.assert_clean().await;
}

/// RW3: the lock's TTL falls to that of the reads that are left.
#[tokio::test]
async fn a_write_hold_that_ends_leaves_the_ttl_of_the_reads() {
    let test = Fixture::new().await;
    let writes = test.rw.write().lock().lease(LONG).await.unwrap();
    let reads = test.rw.read().lock().lease(LEASE).await.unwrap();
    assert!(test.redis.pttl(super::NAME).await > 200_000);
    writes.unlock().await.unwrap();
    let ttl = test.redis.pttl(super::NAME).await;
    assert!(ttl <= 6_000, "{ttl}");
    reads.unlock().await.unwrap();
}

#[tokio::test]
async fn a_downgrade_of_a_lost_hold_holds_nothing() {
    let test = Fixture::new().await;
    let writes = test.rw.write().lock().await.unwrap();
    test.redis.cmd(&["DEL", super::NAME]).await;
    let other = write(&test.another().await).await;
    let error = writes.downgrade().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    other.unlock().await.unwrap();
    test.assert_clean().await;
}

/// The owner would wait for its own read hold. The call fails at once and sends no command.
#[tokio::test]
async fn a_write_of_an_owner_that_reads_would_deadlock() {
    let test = Fixture::new().await;
    let owner = Owner::new();
    let reads = test.rw.read().lock().owner(&owner).await.unwrap();
    let before = test.redis.commandstats().await;
    let error = test.rw.write().lock().owner(&owner).await.unwrap_err();
    assert!(matches!(error, Error::WouldDeadlock { .. }), "{error}");
    assert!(error.to_string().contains("doc"), "{error}");
    let after = test.redis.commandstats().await;
    assert_eq!(before.get("evalsha"), after.get("evalsha"));
    // With a limit it waits, as in Redisson: another branch of the owner may end the read hold.
    let request = test.rw.write().try_lock().owner(&owner);
    assert!(request.clone().await.unwrap().is_none());
    let (tried, took) = until_ok(SOON, async || {
        let (tried, took) = timed(request.clone().wait(ms(300)).into_future()).await;
        tried.map(|tried| (tried, took))
    })
    .await;
    assert!(tried.is_none() && took >= ms(290), "{took:?}");
    // The waiting call blocked no reader.
    assert!(may_read(&test.another().await).await);
    let (write, scope) = (test.rw.write(), owner);
    let waits = tokio::spawn(async move { write.try_lock().owner(&scope).wait(SOON).await });
    tokio::time::sleep(ms(100)).await;
    reads.unlock().await.unwrap();
    let writes = waits.await.unwrap().unwrap().expect("the read hold ended");
    writes.unlock().await.unwrap();
    test.assert_clean().await;
}

/// An owner that writes can read at once, although other owners wait.
#[tokio::test]
async fn a_writer_that_reads_overtakes_the_waiters() {
    let test = Fixture::new().await;
    let owner = Owner::new();
    let writes = test.rw.write().lock().owner(&owner).await.unwrap();
    let waiting = [turn(&test.rw), turn(&test.another().await)];
    test.somebody_waits().await;
    let reads = test.rw.read().lock().owner(&owner);
    let reads = tokio::time::timeout(SOON, reads.into_future()).await;
    drop((reads.expect("at once").unwrap(), writes));
    for waiting in waiting {
        within_soon(waiting).await;
    }
    test.assert_clean().await;
}

/// RW7: a hold's end names its own field only.
#[tokio::test]
async fn holds_of_one_owner_have_numbers_of_their_own_in_each_mode() {
    let test = Fixture::new().await;
    let writes = test.rw.write().lock().await.unwrap();
    let reads = test.rw.read().lock().await.unwrap();
    let number = |field: &str| {
        field
            .trim_end_matches(":write")
            .rsplit('.')
            .next()
            .unwrap()
            .to_owned()
    };
    let holders = test.rw.holders().await.unwrap();
    let numbers: Vec<String> = holders.iter().map(|it| number(it.field())).collect();
    assert_ne!(numbers[0], numbers[1]);
    drop((writes, reads));
    eventually(SOON, "both are released", async || {
        test.redis.keys().await.is_empty()
    })
    .await;
}
