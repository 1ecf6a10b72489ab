//! Freeing one mode by force.

use lockdog::Owner;

use super::{Fixture, LONG, NAME, SOON, may_read, may_write, read, reader, within_soon, write};
use crate::support::eventually;

/// R14 and R15.
#[tokio::test]
async fn a_forced_unlock_frees_its_own_mode_only() {
    let test = Fixture::new().await;
    let fresh = test.another().await;
    assert!(!test.rw.read().force_unlock().await.unwrap());
    assert!(!test.rw.write().force_unlock().await.unwrap());
    let reads = [read(&test.rw).await, read(&fresh).await];
    assert!(!fresh.write().force_unlock().await.unwrap());
    assert!(reads.iter().all(|it| it.is_valid()));
    assert!(fresh.read().force_unlock().await.unwrap());
    // A guard of the same client is notified at once.
    assert!(!reads[1].is_valid());
    assert!(!test.rw.read().is_locked().await.unwrap());
    test.redis.eventually_empty().await;
    let writes = write(&test.rw).await;
    assert!(!fresh.read().force_unlock().await.unwrap() && writes.is_valid());
    assert!(fresh.write().force_unlock().await.unwrap());
    assert!(may_write(&fresh).await);
    assert!(writes.unlock().await.unwrap_err().is_lost());
    drop(reads);
    test.assert_clean().await;
}

#[tokio::test]
async fn a_forced_end_of_the_write_leaves_its_owners_read() {
    let test = Fixture::new().await;
    let owner = Owner::new();
    let writes = test.rw.write().lock().owner(&owner).await.unwrap();
    let reads = test.rw.read().lock().owner(&owner).await.unwrap();
    let waiting = reader(&test.another().await);
    test.somebody_waits().await;
    assert!(test.rw.write().force_unlock().await.unwrap());
    drop(within_soon(waiting).await);
    assert!(!writes.is_valid() && reads.is_valid());
    drop(writes);
    reads.unlock().await.unwrap();
    test.assert_clean().await;
}

/// RW1, RW2: if the end of the read hold changed the mode, other readers would be beside the writer.
#[tokio::test]
async fn a_forced_unlock_that_expects_a_holder_in_the_other_mode_frees_nothing() {
    let test = Fixture::new().await;
    let owner = Owner::new();
    let writes = test.rw.write().lock().owner(&owner).await.unwrap();
    let reads = test.rw.read().lock().owner(&owner).await.unwrap();
    let holders = test.rw.holders().await.unwrap();
    let [of_write, of_read] = &holders[..] else {
        panic!("{holders:?}");
    };
    assert!(of_write.is_write() && !of_read.is_write());
    let force = test.rw.write().force_unlock().expecting(of_read);
    assert!(!force.await.unwrap());
    let force = test.rw.read().force_unlock().expecting(of_write);
    assert!(!force.await.unwrap());
    assert_eq!(test.mode().await, ("write".to_owned(), 2));
    assert!(!may_read(&test.another().await).await);
    reads.unlock().await.unwrap();
    writes.unlock().await.unwrap();
    test.assert_clean().await;
}

/// Redisson's holders have a timeout key for each acquire; they are deleted too.
#[tokio::test]
async fn a_forced_end_of_redissons_reads_deletes_all_their_keys() {
    let test = Fixture::new().await;
    let timeouts: Vec<String> = (1..=3)
        .map(|n| format!("{{{NAME}}}:java:7:rwlock_timeout:{n}"))
        .collect();
    test.redis
        .cmd(&["HSET", NAME, "mode", "read", "java:7", "3"])
        .await;
    test.redis.cmd(&["PEXPIRE", NAME, "300000"]).await;
    for key in &timeouts {
        test.redis.cmd(&["SET", key, "1", "PX", "300000"]).await;
    }
    let mut reads = Some(test.rw.read().lock().lease(LONG).await.unwrap());
    let holders = test.rw.holders().await.unwrap();
    let java = holders
        .iter()
        .find(|it| !it.ours)
        .expect("Redisson's is shown");
    assert_eq!(
        (java.count, java.is_write(), java.field()),
        (3, false, "java:7")
    );
    // One holder only, as it was read before.
    assert!(test.rw.read().force_unlock().expecting(java).await.unwrap());
    assert!(!test.rw.read().force_unlock().expecting(java).await.unwrap());
    assert_eq!(test.mode().await, ("read".to_owned(), 1));
    assert!(reads.as_ref().is_some_and(|it| it.is_valid()));
    for key in &timeouts {
        assert!(!test.redis.exists(key).await);
    }
    drop(reads.take());
    eventually(SOON, "nothing is left", async || {
        test.redis.keys().await.is_empty()
    })
    .await;
}
