//! What Redisson's own tests of RedLock check. Those with crowds are where their leases cost no time:
//! `quorum` in `crates/lockdog-test`.

use lockdog::{Client, Owner, RedLock};

use super::{SOON, Servers, lock_of, ms};
use crate::support::{Cell, timed};

/// Any one of the three, held by another owner of this client or by another client.
#[tokio::test]
async fn one_busy_instance_of_three_does_not_block_an_acquire() {
    let servers = Servers::start(3).await;
    let (mine, others) = (servers.clients().await, servers.clients().await);
    let case = async |held: usize, by: &[Client]| {
        let name = format!("{held} {}", by[0].id());
        let other = by[held].lock(&name).lock().owner(&Owner::new());
        let other = other.await.unwrap();
        let lock = lock_of(&mine, &name);
        let guard = lock.try_lock().wait(SOON).lease(ms(10_000)).await;
        let guard = guard.unwrap().expect("two of three are enough");
        tokio::time::sleep(ms(3_000)).await;
        guard.unlock().await.unwrap();
        assert!(other.is_valid());
        other.unlock().await.unwrap();
    };
    tokio::join!(
        case(0, &mine),
        case(1, &mine),
        case(2, &mine),
        case(0, &others),
        case(1, &others),
        case(2, &others),
    );
    servers.assert_clean().await;
}

/// The server is down before any client asks.
#[tokio::test]
async fn two_owners_get_the_lock_in_turn_with_one_of_three_servers_down() {
    let servers = Servers::start(3).await;
    // No client has ever connected to it.
    servers.all[1].kill();
    let lazy = || servers.clients_with(|builder| builder.lazy(true));
    let (first, second) = (lock_of(&lazy().await, "l"), lock_of(&lazy().await, "l"));
    let cell = Cell::new();
    let guard = first.lock().await.unwrap();
    let waiter = tokio::spawn({
        let cell = cell.clone();
        async move {
            let guard = second.lock().await.unwrap();
            cell.bump(ms(1)).await;
            guard.unlock().await.unwrap();
        }
    });
    cell.bump(ms(3_000)).await;
    assert!(!waiter.is_finished());
    guard.unlock().await.unwrap();
    waiter.await.unwrap();
    cell.assert_exclusive(2);
}

/// Checks `is_held` and `is_held_by`.
#[tokio::test]
async fn three_names_are_held_by_the_owner_until_the_unlock() {
    let servers = Servers::start(1).await;
    let client = &servers.clients().await[0];
    let names = ["lock1", "lock2", "lock3"];
    let lock = RedLock::new(names.map(|name| client.lock(name)));
    let guard = lock.lock().lease(ms(10_000)).await.unwrap();
    super::has(&guard, 3).await;
    tokio::time::sleep(ms(1_000)).await;
    let me = Owner::current();
    for name in names {
        assert!(client.lock(name).is_held().await.unwrap());
        assert!(client.lock(name).is_held_by(&me).await.unwrap());
    }
    guard.unlock().await.unwrap();
    servers.assert_counts("lock1", [0]).await;
    for name in names {
        assert!(!client.lock(name).is_held().await.unwrap());
        assert!(!client.lock(name).is_held_by(&me).await.unwrap());
    }
}

/// In Redisson's test the first holds the lock for 3 s, and the second comes 1 s later.
#[tokio::test]
async fn the_second_owner_enters_after_the_first() {
    let servers = Servers::start(2).await;
    let clients = servers.clients().await;
    let lock = seven(&clients);
    let guard = lock.lock().owner(&Owner::new()).await.unwrap();
    let second = tokio::spawn({
        let lock = lock.clone();
        async move {
            tokio::time::sleep(ms(1_000)).await;
            timed(async { lock.lock().await.unwrap() }).await
        }
    });
    tokio::time::sleep(ms(3_000)).await;
    assert!(guard.is_valid() && !second.is_finished());
    guard.unlock().await.unwrap();
    let second = tokio::time::timeout(SOON, second).await.unwrap();
    let (guard, waited) = second.unwrap();
    assert!(waited > ms(500), "{waited:?}");
    guard.unlock().await.unwrap();
}

/// Four names on one server and three on the other.
fn seven(clients: &[Client]) -> RedLock {
    RedLock::new((0..7).map(|n| clients[n % 2].lock(format!("lock{n}"))))
}
