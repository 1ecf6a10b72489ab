//! What is refused, before a command is sent or by the server.

use lockdog::{Error, MultiLock, RedLock};

use super::{Fixture, NAME, ms, read};
use crate::support::prelude::SOON;
use crate::support::{Cluster, until_ok};

#[tokio::test]
async fn bad_input_is_refused_before_a_command() {
    let test = Fixture::new().await;
    let before = test.redis.commandstats().await;
    let refused = |error: Error| assert!(matches!(error, Error::Invalid { .. }), "{error}");
    for name in ["", &"x".repeat(513)] {
        let rw = test.client.read_write_lock(name);
        refused(rw.read().lock().await.unwrap_err());
        refused(rw.write().try_lock().await.unwrap_err());
        refused(rw.holders().await.unwrap_err());
        refused(rw.read().force_unlock().await.unwrap_err());
    }
    refused(test.rw.read().lock().lease(ms(9)).await.unwrap_err());
    refused(test.rw.write().lock().lease(ms(9)).await.unwrap_err());
    refused(
        test.rw
            .write()
            .try_lock()
            .max_hold(ms(0))
            .await
            .unwrap_err(),
    );
    let after = test.redis.commandstats().await;
    assert_eq!(before.get("evalsha"), after.get("evalsha"));
    assert_eq!(before.get("hgetall"), after.get("hgetall"));
}

#[tokio::test]
async fn a_name_of_another_type_is_refused_by_the_server() {
    let test = Fixture::new().await;
    test.redis.cmd(&["SET", NAME, "text"]).await;
    let is_refused = |error: Error| match error {
        Error::Refused { code, .. } => assert_eq!(code, "WRONGTYPE"),
        other => panic!("{other}"),
    };
    is_refused(test.rw.read().try_lock().await.unwrap_err());
    is_refused(test.rw.write().try_lock().await.unwrap_err());
    is_refused(test.rw.holders().await.unwrap_err());
    // No other key was left.
    assert_eq!(test.redis.keys().await, [NAME]);
}

#[tokio::test]
async fn a_red_lock_refuses_both_modes_and_says_why() {
    let test = Fixture::new().await;
    for lock in [test.rw.read().into(), test.rw.write().into()] {
        let error = RedLock::new([lock]).lock().await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Invalid { .. }), "{text}");
        assert!(
            text.contains("plain locks") && text.contains("holder"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_multi_lock_takes_a_mode_once() {
    let test = Fixture::new().await;
    let both = MultiLock::new([test.rw.read().into(), test.rw.write().into()]);
    let error = both.lock().await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
}

#[tokio::test]
async fn a_multi_lock_takes_each_mode_by_its_own_command() {
    let test = Fixture::new().await;
    let plain = test.client.lock("a");
    let other = test.client.read_write_lock("other");
    let many = MultiLock::new([plain, test.rw.read().into(), other.write().into()]);
    let reads = read(&test.rw).await;
    let guard = many.lock().await.unwrap();
    assert_eq!(test.mode().await, ("read".to_owned(), 2));
    assert!(other.write().is_locked().await.unwrap());
    // The call waits for a member that other owners hold.
    let stranger = MultiLock::new([test.client.lock("b"), other.read().into()]).exclusive();
    assert!(
        until_ok(SOON, async || stranger.try_lock().wait(ms(100)).await)
            .await
            .is_none()
    );
    guard.unlock().await.unwrap();
    stranger.lock().await.unwrap().unlock().await.unwrap();
    reads.unlock().await.unwrap();
    // The call does not wait for a read hold of its own owner.
    let reads = test.rw.read().lock().await.unwrap();
    let many = MultiLock::new([test.client.lock("a"), test.rw.write().into()]);
    let error = many.lock().await.unwrap_err();
    assert!(matches!(error, Error::WouldDeadlock { .. }), "{error}");
    reads.unlock().await.unwrap();
    test.assert_clean().await;
}

/// Names whose keys would be in several slots are refused on a cluster.
#[tokio::test]
async fn a_cluster_keeps_all_keys_of_a_name_in_one_slot() {
    let cluster = Cluster::start(3, 0).await;
    let client = lockdog::Client::connect(cluster.url()).await.unwrap();
    for name in ["doc", "{test}:abc:key", "my doc"] {
        let rw = client.read_write_lock(name);
        let writes = rw.write().lock().await.unwrap();
        let reads = rw.read().lock().await.unwrap();
        assert!(rw.read().is_locked().await.unwrap());
        reads.unlock().await.unwrap();
        let reads = writes.downgrade().await.unwrap();
        let writes = reads.upgrade().await.unwrap();
        writes.unlock().await.unwrap();
        assert!(rw.holders().await.unwrap().is_empty());
    }
    let error = client
        .read_write_lock("a}b")
        .read()
        .lock()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
}
