//! The loss of a member of any kind is the loss of the whole.

use lockdog::error::{InstanceState, LostReason};

use super::*;
use crate::multi_lock::{SOON, ms};

#[tokio::test]
async fn a_lost_member_of_each_kind_ends_the_whole_hold_and_is_reported() {
    let test = Fixture::start(2).await;
    let clients = test
        .servers
        .clients_with(|client| client.watchdog_lease(ms(4_800)))
        .await;
    for kind in KINDS {
        let lock = kind.among_others(&clients);
        let guard = lock.lock().await.unwrap();
        test.servers.redis[0].cmd(&["DEL", MEMBER]).await;
        let lost = tokio::time::timeout(SOON, guard.lost()).await;
        let lost = lost.unwrap_or_else(|_| panic!("{}: it is not notified of the loss", kind.name));
        assert_eq!((lost.lock(), lost.reason()), (MEMBER, LostReason::NotOurs));
        let states: Vec<bool> = lost
            .instances()
            .iter()
            .map(|it| matches!(it.state, InstanceState::Lost))
            .collect();
        assert_eq!(states, [false, true, false], "{}", kind.name);
        let error = guard.unlock().await.unwrap_err();
        assert!(error.is_lost(), "{}: {error}", kind.name);
        test.assert_clean().await;
        // The next one is a new hold of each member.
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
}

/// A watched hold is renewed, and one with a fixed lease is not.
#[tokio::test]
async fn members_of_all_kinds_are_renewed_together() {
    let test = Fixture::start(2).await;
    let lease = ms(4_800);
    let clients = test
        .servers
        .clients_with(|client| client.watchdog_lease(lease))
        .await;
    let lock = MultiLock::new(mixed(&clients));
    let guard = lock.lock().await.unwrap();
    let token = guard.lost_token();
    tokio::time::sleep(lease * 4 / 3).await;
    assert!(guard.is_valid() && !token.is_cancelled());
    guard.unlock().await.unwrap();
    let guard = lock.lock().lease(lease).await.unwrap();
    let lost = tokio::time::timeout(SOON, guard.lost())
        .await
        .expect("its lease ends");
    assert_eq!(lost.reason(), LostReason::Deadline);
    drop(guard);
    test.assert_clean().await;
}
