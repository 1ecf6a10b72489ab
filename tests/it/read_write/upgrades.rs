//! From reading to writing.

use lockdog::error::LostReason;
use lockdog::{Error, Owner};

use super::{
    Fixture, LONG, SOON, may_read, may_write, ms, read, read_for, reader, turn, within_soon,
};
use crate::support::{eventually, timed};

#[tokio::test]
async fn the_only_reader_becomes_the_writer_and_keeps_its_read_hold() {
    let test = Fixture::new().await;
    let reads = test.rw.read().lock().await.unwrap();
    let writes = reads.upgrade().await.unwrap();
    assert_eq!(test.mode().await, ("write".to_owned(), 2));
    assert!(!may_read(&test.another().await).await);
    // The unlock ends both holds.
    writes.unlock().await.unwrap();
    test.assert_clean().await;
    let writes = read(&test.rw).await.upgrade().await.unwrap();
    drop(writes);
    test.assert_clean().await;
    // The write hold may end first.
    let writes = read(&test.rw).await.upgrade().await.unwrap();
    let reads = writes.downgrade().await.unwrap();
    assert_eq!(test.mode().await, ("read".to_owned(), 1));
    reads.unlock().await.unwrap();
    test.assert_clean().await;
}

#[tokio::test]
async fn an_upgrade_waits_for_the_other_readers_and_keeps_new_ones_out() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let other = read(&another).await;
    let reads = read(&test.rw).await;
    let upgrade = tokio::spawn(reads.upgrade().into_future());
    eventually(SOON, "it is announced", async || test.announced().await).await;
    assert!(!may_read(&another).await && !upgrade.is_finished());
    other.unlock().await.unwrap();
    let writes = within_soon(upgrade).await.unwrap();
    assert!(!test.announced().await);
    writes.unlock().await.unwrap();
    test.assert_clean().await;
}

/// The upgrading owner still reads, so the lock is not free after the last other read. The end of that
/// read publishes a message nevertheless.
#[tokio::test]
async fn the_end_of_the_last_other_read_wakes_an_upgrade_by_a_message() {
    let test = Fixture::new().await;
    let another = test.another().await;
    for other in ["one that is unlocked", "one that is dropped"] {
        let reads = another.read().lock().owner(&Owner::new()).lease(LONG);
        let reads = reads.await.unwrap();
        let others = [read(&test.rw).await, read(&test.rw).await];
        let upgrade = tokio::spawn(reads.upgrade().into_future());
        test.somebody_waits().await;
        for guard in others {
            assert!(!upgrade.is_finished());
            match other {
                "one that is dropped" => drop(guard),
                _ => drop(guard.unlock().await.unwrap()),
            }
        }
        // The waiter's timers are the poll cap and the lease of its read hold, which last minutes.
        let writes = within_soon(upgrade).await.unwrap();
        writes.unlock().await.unwrap();
        test.assert_clean().await;
    }
}

/// A dead reader does not prevent the message that wakes the upgrade.
#[tokio::test]
async fn a_reader_whose_lease_is_over_keeps_no_message_from_an_upgrade() {
    let test = Fixture::new().await;
    let another = test.another().await;
    let reads = another.read().lock().owner(&Owner::new()).lease(LONG);
    let reads = reads.await.unwrap();
    let other = read(&test.rw).await;
    let upgrade = tokio::spawn(reads.upgrade().into_future());
    test.somebody_waits().await;
    test.redis.cmd(&["HSET", super::NAME, "java:1", "1"]).await;
    other.unlock().await.unwrap();
    let writes = within_soon(upgrade).await.unwrap();
    assert_eq!(test.mode().await, ("write".to_owned(), 2));
    writes.unlock().await.unwrap();
    test.assert_clean().await;
}

#[tokio::test]
async fn the_error_of_an_unlock_after_an_upgrade_is_that_of_the_write_hold() {
    let test = Fixture::new().await;
    let lost = |error: Error| match error {
        Error::Lost(lost) => lost.reason(),
        other => panic!("{other}"),
    };
    for (write_is_lost, expected) in [(true, LostReason::Forced), (false, LostReason::NotOurs)] {
        let writes = read(&test.rw).await.upgrade().await.unwrap();
        if write_is_lost {
            assert!(test.rw.write().force_unlock().await.unwrap());
        }
        let read_field = test.rw.holders().await.unwrap();
        let read_field = read_field.iter().find(|it| !it.is_write()).unwrap();
        let hdel = ["HDEL", super::NAME, read_field.field()];
        test.redis.cmd(&hdel).await;
        let reason = lost(writes.unlock().await.unwrap_err());
        assert_eq!(reason, expected);
        test.redis.cmd(&["DEL", super::NAME]).await;
        test.assert_clean().await;
    }
}

/// The client's waiters are behind its contender, and the contender waits for this reader.
#[tokio::test]
async fn an_upgrade_overtakes_the_writers_that_wait_for_it() {
    let test = Fixture::new().await;
    let reads = read(&test.rw).await;
    let waiting = [turn(&test.rw), turn(&test.another().await)];
    test.somebody_waits().await;
    let writes = tokio::time::timeout(SOON, reads.upgrade().into_future()).await;
    let writes = writes.expect("it overtakes").unwrap();
    assert!(waiting.iter().all(|it| !it.is_finished()));
    writes.unlock().await.unwrap();
    for waiting in waiting {
        within_soon(waiting).await;
    }
    test.assert_clean().await;
}

#[tokio::test]
async fn an_upgrade_that_gives_up_returns_the_read_guard() {
    let test = Fixture::new().await;
    let other = read(&test.another().await).await;
    let mut reads = read(&test.rw).await;
    for wait in [ms(0), ms(200)] {
        for attempt in 0.. {
            let (ended, took) = timed(reads.upgrade().wait(wait).into_future()).await;
            let error = ended.unwrap_err();
            assert!(took >= wait.saturating_sub(ms(10)));
            // On a busy machine the server may answer later than that.
            let is_late = error.error().is_some_and(Error::is_timeout);
            assert!(is_late || error.error().is_none(), "{error}");
            reads = error.into_guard().expect("it still reads");
            assert!(reads.is_valid());
            if !is_late {
                break;
            }
            assert!(attempt < 100, "the server never answers in time");
        }
    }
    // The upgrade deleted its announcement.
    eventually(SOON, "no writer is announced", async || {
        !test.announced().await
    })
    .await;
    assert!(may_read(&test.another().await).await);
    drop((reads, other));
    test.assert_clean().await;
}

/// Each would wait for the other's read hold.
#[tokio::test]
async fn a_second_upgrade_would_deadlock_and_keeps_its_read_hold() {
    let test = Fixture::new().await;
    let (one, two) = (read(&test.rw).await, read(&test.another().await).await);
    let first = tokio::spawn(one.upgrade().into_future());
    eventually(SOON, "it is announced", async || test.announced().await).await;
    let second = tokio::time::timeout(SOON, two.upgrade().into_future()).await;
    let error = second.expect("it does not wait").unwrap_err();
    assert!(
        matches!(error.error(), Some(Error::WouldDeadlock { .. })),
        "{error:?}"
    );
    let two = error.into_guard().expect("it still reads");
    assert!(!first.is_finished() && test.announced().await);
    two.unlock().await.unwrap();
    within_soon(first).await.unwrap().unlock().await.unwrap();
    test.assert_clean().await;
}

/// A reader that crashed stays in the hash as long as the others renew it.
#[tokio::test]
async fn a_reader_whose_lease_is_over_does_not_stop_an_upgrade() {
    let test = Fixture::new().await;
    let reads = test.rw.read().lock().lease(LONG).await.unwrap();
    let (gone, _) = read_for(ms(3_000), &test.another().await).await;
    gone.leave_to_lease();
    test.eventually_mode("read", 2).await;
    let writes = tokio::time::timeout(SOON, reads.upgrade().into_future()).await;
    let writes = writes.expect("its lease is over").unwrap();
    assert_eq!(test.mode().await, ("write".to_owned(), 2));
    writes.unlock().await.unwrap();
    test.assert_clean().await;
}

#[tokio::test]
async fn an_upgrade_of_a_lost_read_hold_is_lost() {
    let test = Fixture::new().await;
    for other_writes in [false, true] {
        let reads = test.rw.read().lock().await.unwrap();
        test.redis.cmd(&["DEL", super::NAME]).await;
        let other = match other_writes {
            true => Some(super::write(&test.another().await).await),
            false => None,
        };
        let error = reads.upgrade().wait(SOON).await.unwrap_err();
        assert!(error.error().is_some_and(Error::is_lost), "{error:?}");
        assert!(error.into_guard().is_none());
        drop(other);
        test.assert_clean().await;
    }
}

#[tokio::test]
async fn a_dropped_upgrade_releases_everything() {
    let test = Fixture::new().await;
    let other = read(&test.another().await).await;
    // Before its first poll, and while it waits.
    drop(read(&test.rw).await.upgrade());
    let upgrade = tokio::spawn(read(&test.rw).await.upgrade().into_future());
    eventually(SOON, "it is announced", async || test.announced().await).await;
    upgrade.abort();
    test.eventually_mode("read", 1).await;
    eventually(SOON, "no writer is announced", async || {
        !test.announced().await
    })
    .await;
    other.unlock().await.unwrap();
    test.assert_clean().await;
}

#[tokio::test]
async fn readers_wait_for_an_upgraded_hold_and_get_the_lock_after_it() {
    let test = Fixture::new().await;
    let writes = read(&test.rw).await.upgrade().await.unwrap();
    let waiting: Vec<_> = [&test.rw, &test.another().await]
        .into_iter()
        .flat_map(|rw| [reader(rw), reader(rw)])
        .collect();
    test.somebody_waits().await;
    assert!(waiting.iter().all(|it| !it.is_finished()));
    writes.unlock().await.unwrap();
    for waiting in waiting {
        drop(within_soon(waiting).await);
    }
    test.assert_clean().await;
    assert!(may_write(&test.rw).await);
}
