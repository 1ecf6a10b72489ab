//! Holds without a guard, as in ported code.

use lockdog::{Error, Owner, RedLock, Unlocked};

use super::{SOON, Servers, decided, lock_of, ms};
use crate::support::eventually;

#[tokio::test]
async fn forgotten_locks_and_unlocks_pair_up_as_in_java() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    for _ in 0..2 {
        lock.lock().await.unwrap().forget();
        decided(|| lock.try_lock().lease(ms(10_000)))
            .await
            .unwrap()
            .forget();
        servers.assert_counts("l", [1, 1, 1]).await;
        assert_eq!(
            lock.unlock().await.unwrap(),
            Unlocked::StillHeld { count: 1 }
        );
        // Through any handle, whatever its order.
        let handle = RedLock::new([2, 0, 1].map(|n: usize| clients[n].lock("l")));
        assert_eq!(handle.unlock().await.unwrap(), Unlocked::Released);
        servers.assert_counts("l", [0, 0, 0]).await;
        let error = lock.unlock().await.unwrap_err();
        assert!(matches!(error, Error::NotHeld(_)), "{error}");
    }
    servers.assert_clean().await;
}

#[tokio::test]
async fn an_unlock_ends_a_claim_of_its_owner_and_no_living_guard() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let (mine, yours) = (Owner::new(), Owner::new());
    let guard = lock.lock().owner(&mine).await.unwrap();
    let refused = lock.unlock().owner(&mine).await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::NotHeld(_)), "{text}");
    assert!(
        text.contains("a guard, a MultiLock or a RedLock of this owner has the lock"),
        "{text}"
    );
    let refused = lock.unlock().owner(&yours).await.unwrap_err();
    assert!(refused.to_string().contains("never had one"), "{refused}");
    lock.lock().owner(&mine).await.unwrap().forget();
    let unlocked = mine.scope(async { lock.unlock().await }).await;
    assert_eq!(unlocked.unwrap(), Unlocked::StillHeld { count: 1 });
    assert!(guard.is_valid());
    // The members are not separate forgotten holds.
    let member = clients[0].lock("l").unlock().owner(&mine).await;
    assert!(matches!(member.unwrap_err(), Error::NotHeld(_)));
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn a_forgotten_hold_without_a_lease_is_extended() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(4_800)))
        .await;
    let lock = lock_of(&clients, "l");
    lock.lock().await.unwrap().forget();
    tokio::time::sleep(ms(6_000)).await;
    servers.assert_counts("l", [1, 1, 1]).await;
    assert_eq!(lock.unlock().await.unwrap(), Unlocked::Released);
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn a_forgotten_try_lock_limits_the_rate() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("report").await;
    // The window is long, so that the second attempt of a slow machine is within it.
    let window = ms(5_000);
    let first = decided(|| lock.try_lock().lease(window)).await;
    first.expect("it has not run yet").forget();
    let another = decided(|| lock.try_lock().lease(window).owner(&Owner::new())).await;
    assert!(another.is_none());
    eventually(SOON, "the window is over", async || {
        servers.taken("report").await == 0
    })
    .await;
    // No guard is left to be notified, so the next call of the same owner is a first acquire.
    let late = lock.unlock().await.unwrap_err();
    assert!(matches!(late, Error::NotHeld(_)), "{late}");
    let again = decided(|| lock.try_lock().lease(window)).await;
    let again = again.expect("the window is over");
    assert_eq!(again.hold_count(), 1);
    again.unlock().await.unwrap();
    servers.assert_clean().await;
}

#[tokio::test]
async fn only_a_guard_beside_a_forgotten_claim_blocks_its_owner_after_a_loss() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    lock.lock().lease(ms(8_000)).await.unwrap().forget();
    let guard = lock.lock().lease(ms(6_000)).await.unwrap();
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert!(lock.try_lock().await.unwrap_err().is_lost());
    drop(guard);
    let again = lock.try_lock().wait(SOON).await.unwrap();
    let again = again.expect("a first acquire");
    assert_eq!(again.hold_count(), 1);
    again.unlock().await.unwrap();
    servers.assert_counts("l", [0; 3]).await;
}
