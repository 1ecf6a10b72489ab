//! Members that are also locked as plain locks: every server counts the holds of every owner, in any
//! order of their releases.

use lockdog::{Owner, RedLock, Unlocked};

use super::{SOON, Servers, decided, has, lock_of, ms};
use crate::support::{Cell, eventually};
use crate::turn::renewed;

#[tokio::test]
async fn a_member_locked_first_counts_twice_inside_the_red_lock_and_once_after() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let plain = clients[1].lock("l").lock().await.unwrap();
    servers.assert_counts("l", [0, 1, 0]).await;
    let guard = lock.lock().await.unwrap();
    servers.assert_counts("l", [1, 2, 1]).await;
    assert_eq!((guard.hold_count(), plain.hold_count()), (1, 2));
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    servers.assert_counts("l", [0, 1, 0]).await;
    assert!(plain.is_valid());
    assert_eq!(plain.unlock().await.unwrap(), Unlocked::Released);
    servers.assert_counts("l", [0, 0, 0]).await;
    servers.assert_clean().await;
}

#[tokio::test]
async fn a_member_locked_inside_the_red_lock_counts_until_it_is_unlocked_in_any_order() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().await.unwrap();
    servers.assert_counts("l", [1, 1, 1]).await;
    let plain = clients[0].lock("l").lock().await.unwrap();
    servers.assert_counts("l", [2, 1, 1]).await;
    let left = Unlocked::StillHeld { count: 1 };
    assert_eq!(plain.unlock().await.unwrap(), left);
    servers.assert_counts("l", [1, 1, 1]).await;
    // The other way round: the whole ends first.
    let plain = clients[0].lock("l").lock().await.unwrap();
    guard.unlock().await.unwrap();
    servers.assert_counts("l", [1, 0, 0]).await;
    assert!(plain.is_valid());
    // And a second time, around the remaining claims.
    let guard = lock.lock().await.unwrap();
    servers.assert_counts("l", [2, 1, 1]).await;
    assert_eq!(plain.unlock().await.unwrap(), left);
    servers.assert_counts("l", [1, 1, 1]).await;
    drop(guard);
    servers.assert_counts("l", [0, 0, 0]).await;
    servers.assert_clean().await;
}

/// An owner that holds a quorum of the members acquires the red lock without a wait.
#[tokio::test]
async fn the_owner_of_a_quorum_of_members_acquires_the_red_lock() {
    let servers = Servers::start(3).await;
    let clients = servers.clients_without_polling().await;
    let lock = lock_of(&clients, "l");
    let one = clients[0].lock("l").lock().await.unwrap();
    let two = clients[2].lock("l").lock().await.unwrap();
    let other = decided(|| lock.try_lock().owner(&Owner::new())).await;
    assert!(other.is_none());
    // The other owner released the instance that was free.
    servers.assert_counts("l", [1, 0, 1]).await;
    let guard = tokio::time::timeout(SOON, async { lock.lock().await });
    let guard = guard.await.expect("it need not wait").unwrap();
    servers.assert_counts("l", [2, 1, 2]).await;
    drop((one, two));
    servers.assert_counts("l", [1, 1, 1]).await;
    guard.unlock().await.unwrap();
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn a_nested_acquire_of_the_red_lock_does_not_change_the_members_counts() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let plain = clients[2].lock("l").lock().await.unwrap();
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    servers.assert_counts("l", [1, 1, 2]).await;
    assert_eq!((outer.hold_count(), inner.hold_count()), (2, 2));
    drop(outer);
    tokio::time::sleep(ms(50)).await;
    servers.assert_counts("l", [1, 1, 2]).await;
    drop(plain);
    servers.assert_counts("l", [1, 1, 1]).await;
    assert!(inner.is_valid());
    drop(inner);
    servers.assert_counts("l", [0, 0, 0]).await;
}

#[tokio::test]
async fn a_failed_round_restores_the_counts_of_the_members() {
    let servers = Servers::start(5).await;
    let (clients, others) = (servers.clients().await, servers.clients().await);
    let mut held = Vec::new();
    for (client, times) in [(0, 2), (3, 1)] {
        for _ in 0..times {
            held.push(clients[client].lock("l").lock().await.unwrap());
        }
    }
    let mut foreign = Vec::new();
    for client in [1, 2, 4] {
        foreign.push(others[client].lock("l").lock().await.unwrap());
    }
    let lock = lock_of(&clients, "l");
    assert!(decided(|| lock.try_lock()).await.is_none());
    servers.assert_counts("l", [2, 1, 1, 1, 1]).await;
    // Round after round, each of which takes two of five and releases them.
    assert!(decided(|| lock.try_lock().wait(ms(1_500))).await.is_none());
    servers.assert_counts("l", [2, 1, 1, 1, 1]).await;
    let cancelled = tokio::time::timeout(ms(200), async { lock.lock().await });
    assert!(cancelled.await.is_err());
    servers.assert_counts("l", [2, 1, 1, 1, 1]).await;
    assert!(held.iter().chain(&foreign).all(|guard| guard.is_valid()));
    assert_eq!(held[0].hold_count(), 2);
    for guard in foreign.into_iter().chain(held) {
        guard.unlock().await.unwrap();
    }
    servers.assert_counts("l", [0; 5]).await;
    servers.assert_clean().await;
}

#[tokio::test]
async fn a_member_held_by_another_owner_of_the_client_is_only_one_instance_less() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    for client in &clients {
        let other = Owner::new();
        let plain = client.lock("l").lock().owner(&other).await;
        let plain = plain.unwrap();
        let guard = lock.try_lock().wait(SOON).await.unwrap();
        let guard = guard.expect("two are enough");
        assert_eq!(guard.margin(), 0);
        guard.unlock().await.unwrap();
        // The call must not wait.
        let guard = tokio::time::timeout(SOON, async { lock.lock().await });
        drop(guard.await.expect("two are enough").unwrap());
        assert!(plain.is_valid());
        plain.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_for_one_member_does_not_block_the_red_lock() {
    let servers = Servers::start(3).await;
    let (clients, others) = (servers.clients().await, servers.clients().await);
    for member in 0..3 {
        let held = others[member].lock("l").lock().await.unwrap();
        // The plain waiter is the first in the member's queue.
        let waits = plain_waiter(&clients[member].lock("l"));
        tokio::time::sleep(ms(100)).await;
        let lock = lock_of(&clients, "l");
        let guard = tokio::time::timeout(SOON, async { lock.lock().await });
        let guard = guard.await.expect("two are enough").unwrap();
        assert!(!waits.is_finished());
        guard.unlock().await.unwrap();
        held.unlock().await.unwrap();
        waits.await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_for_the_red_lock_does_not_block_a_member() {
    let servers = Servers::start(3).await;
    let (clients, others) = (
        servers.clients_without_polling().await,
        servers.clients().await,
    );
    for member in 0..3 {
        let mut held = Vec::new();
        for other in &others {
            held.push(other.lock("l").lock().await.unwrap());
        }
        let lock = lock_of(&clients, "l");
        let whole = tokio::spawn(async move { lock.lock().owner(&Owner::new()).await.unwrap() });
        eventually(SOON, "it listens everywhere", async || {
            for redis in &servers.redis {
                if redis.channels().await.is_empty() {
                    return false;
                }
            }
            true
        })
        .await;
        let plain = plain_waiter(&clients[member].lock("l"));
        tokio::time::sleep(ms(100)).await;
        // One released instance of three is not enough for the red lock, but enough for the plain lock.
        held.swap_remove(member).unlock().await.unwrap();
        let plain = tokio::time::timeout(SOON, plain);
        plain.await.expect("it is woken").unwrap();
        assert!(!whole.is_finished());
        drop(held);
        drop(whole.await.unwrap());
        servers.assert_counts("l", [0; 3]).await;
    }
}

#[tokio::test]
async fn red_locks_with_shared_members_nest_for_one_owner_and_exclude_another() {
    let servers = Servers::start(4).await;
    let clients = servers.clients().await;
    let (first, second) = (lock_of(&clients[..3], "l"), lock_of(&clients[1..], "l"));
    let one = first.lock().await.unwrap();
    has(&one, 3).await;
    let two = second.lock().await.unwrap();
    servers.assert_counts("l", [1, 2, 2, 1]).await;
    let other = Owner::new();
    assert!(decided(|| second.try_lock().owner(&other)).await.is_none());
    assert!(decided(|| first.try_lock().owner(&other)).await.is_none());
    one.unlock().await.unwrap();
    servers.assert_counts("l", [0, 1, 1, 1]).await;
    assert!(two.is_valid() && two.hold_count() == 1);
    two.unlock().await.unwrap();
    servers.assert_counts("l", [0; 4]).await;
}

/// The two kinds of holders exclude each other where they meet.
#[tokio::test]
async fn holders_of_a_quorum_of_members_and_of_the_red_lock_lose_no_update() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let cell = Cell::new();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (cell, lock) = (cell.clone(), lock_of(&clients, "l"));
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = lock.lock().await.unwrap();
                cell.bump(ms(2)).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    for n in 0..3 {
        // Two of three are a quorum, too, and in one order for all.
        let pair = match n {
            0 => [clients[0].lock("l"), clients[1].lock("l")],
            1 => [clients[1].lock("l"), clients[2].lock("l")],
            _ => [clients[0].lock("l"), clients[2].lock("l")],
        };
        let cell = cell.clone();
        tasks.spawn(async move {
            for _ in 0..10 {
                let first = pair[0].lock().await.unwrap();
                let second = pair[1].lock().await.unwrap();
                cell.bump(ms(2)).await;
                second.unlock().await.unwrap();
                first.unlock().await.unwrap();
            }
        });
    }
    let all = tokio::time::timeout(ms(60_000), tasks.join_all());
    all.await.expect("every owner gets it");
    cell.assert_exclusive(60);
    servers.assert_clean().await;
}

#[tokio::test]
async fn a_fixed_lease_of_the_red_lock_does_not_shorten_a_renewed_member() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(15_000)))
        .await;
    let plain = clients[0].lock("l").lock().await.unwrap();
    let lock: RedLock = lock_of(&clients, "l");
    let guard = decided(|| lock.try_lock().lease(ms(2_000))).await;
    let guard = guard.expect("it is its owner's");
    // Its lease is shorter than the plain lock's, and takes nothing from it.
    assert!(plain.remaining() > guard.remaining());
    guard.lost().await;
    drop(guard);
    servers.assert_counts("l", [1, 0, 0]).await;
    renewed(&[&plain]).await;
    assert!(plain.is_valid());
    servers.assert_counts("l", [1, 0, 0]).await;
    plain.unlock().await.unwrap();
}

fn plain_waiter(lock: &lockdog::Lock) -> tokio::task::JoinHandle<()> {
    let request = lock.lock().owner(&Owner::new());
    tokio::spawn(async move {
        let guard = request.await.unwrap();
        guard.unlock().await.unwrap();
    })
}

/// A client lists its instance as watched as long as the red lock is extended.
#[tokio::test]
async fn a_client_lists_its_instance_as_watched_while_the_red_lock_is_extended() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let shown = || {
        let watched = |client: &lockdog::Client| client.holds().first().map(|hold| hold.watched);
        clients.iter().map(watched).collect::<Vec<_>>()
    };
    let fixed = lock.lock().lease(ms(60_000)).await.unwrap();
    has(&fixed, 3).await;
    assert_eq!(shown(), [Some(false); 3]);
    let watched = lock.lock().await.unwrap();
    assert_eq!(shown(), [Some(true); 3]);
    watched.unlock().await.unwrap();
    assert_eq!(shown(), [Some(false); 3]);
    fixed.unlock().await.unwrap();
    servers.assert_counts("l", [0; 3]).await;
    assert_eq!(shown(), [None; 3]);
}
