//! One, two, four and nine instances, several on one server, and names that are none.

use lockdog::error::InstanceState;
use lockdog::{Client, Error, Owner, RedLock};

use super::{SOON, Servers, decided, has, lock_of, ms, states};
use crate::support::Cell;

#[tokio::test]
async fn one_instance_is_a_plain_lock() {
    let servers = Servers::start(1).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().await.unwrap();
    assert_eq!((guard.margin(), guard.instances().len()), (0, 1));
    servers.assert_counts("l", [1]).await;
    let other = servers.clients().await;
    assert!(other[0].lock("l").try_lock().await.unwrap().is_none());
    assert!(decided(|| lock_of(&other, "l").try_lock()).await.is_none());
    guard.unlock().await.unwrap();
    let plain = other[0].lock("l").lock().await.unwrap();
    assert!(decided(|| lock.try_lock()).await.is_none());
    plain.unlock().await.unwrap();
    servers.assert_counts("l", [0]).await;
}

#[tokio::test]
async fn an_even_number_of_instances_needs_more_than_half() {
    for (n, need) in [(2, 2), (4, 3)] {
        let servers = Servers::start(n).await;
        let (mine, other) = (servers.clients().await, servers.clients().await);
        let lock = lock_of(&mine, "l");
        let mut held = Vec::new();
        for client in &other[..n - need] {
            held.push(client.lock("l").lock().await.unwrap());
        }
        let guard = lock.try_lock().wait(SOON).await.unwrap();
        let guard = guard.expect("enough are free");
        has(&guard, need).await;
        assert_eq!(guard.margin() as usize, 2 * need - n - 1);
        guard.unlock().await.unwrap();
        held.push(other[n - need].lock("l").lock().await.unwrap());
        assert!(decided(|| lock.try_lock()).await.is_none());
        drop(held);
    }
}

#[tokio::test]
async fn half_of_the_instances_are_no_quorum() {
    let servers = Servers::start(4).await;
    let (mine, other) = (servers.clients().await, servers.clients().await);
    let mut held = Vec::new();
    for n in 0..4 {
        let client = if n < 2 { &mine[n] } else { &other[n] };
        held.push(client.lock("l").lock().await.unwrap());
    }
    assert!(decided(|| lock_of(&mine, "l").try_lock()).await.is_none());
    assert!(decided(|| lock_of(&other, "l").try_lock()).await.is_none());
    servers.assert_counts("l", [1, 1, 1, 1]).await;
}

#[tokio::test]
async fn nine_instances_tolerate_the_loss_of_four() {
    let servers = Servers::start(9).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(6_000)))
        .await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().await.unwrap();
    has(&guard, 9).await;
    assert_eq!(guard.margin(), 4);
    servers.assert_counts("l", [1; 9]).await;
    for server in &servers.all[..4] {
        server.kill();
    }
    // Longer than a lease: it is extended on what is left.
    tokio::time::sleep(ms(7_000)).await;
    assert!(guard.is_valid());
    assert_eq!(guard.margin(), 0);
    let other = Owner::new();
    assert!(decided(|| lock.try_lock().owner(&other)).await.is_none());
    guard.unlock().await.unwrap();
    let next = lock.try_lock().wait(SOON).owner(&other).await.unwrap();
    let next = next.expect("five of nine are enough");
    let unreachable = |state: &InstanceState| matches!(state, InstanceState::Unreachable { .. });
    assert!(
        states(&next)
            .iter()
            .filter(|state| unreachable(state))
            .count()
            <= 4
    );
    next.unlock().await.unwrap();
}

#[tokio::test]
async fn names_on_one_server_are_separate_instances() {
    let servers = Servers::start(1).await;
    let (mine, yours) = (servers.clients().await, servers.clients().await);
    let names = ["a", "b", "c", "d", "e"];
    let of = |client: &Client| RedLock::new(names.map(|name| client.lock(name)));
    let guard = of(&mine[0]).lock().await.unwrap();
    has(&guard, 5).await;
    for name in names {
        servers.assert_counts(name, [1]).await;
    }
    assert!(decided(|| of(&yours[0]).try_lock()).await.is_none());
    guard.unlock().await.unwrap();

    let cell = Cell::new();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..4 {
        let client = if n % 2 == 0 { &mine[0] } else { &yours[0] };
        let (lock, cell) = (of(client), cell.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = lock.lock().await.unwrap();
                cell.bump(ms(1)).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    cell.assert_exclusive(40);
    for name in names {
        servers.assert_counts(name, [0]).await;
    }
    servers.assert_clean().await;
}

#[tokio::test]
async fn unusual_names_are_valid_and_invalid_names_are_refused() {
    let servers = Servers::start(2).await;
    let clients = servers.clients().await;
    for name in [
        "{x}:y",
        "a}b",
        "",
        "\u{1f512} lock\r\n",
        "x y",
        &"l".repeat(513),
    ] {
        let lock = lock_of(&clients, name);
        if name.is_empty() || name.len() > 512 {
            let error = lock.lock().await.unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            assert!(error.to_string().contains("lock name"), "{error}");
            let error = lock.unlock().await.unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            continue;
        }
        let guard = lock.lock().await.unwrap();
        assert_eq!((lock.name(), guard.name()), (name, name));
        has(&guard, 2).await;
        servers.assert_counts(name, [1, 1]).await;
        guard.unlock().await.unwrap();
        servers.assert_counts(name, [0, 0]).await;
    }
    servers.assert_clean().await;
}

#[tokio::test]
async fn two_names_that_a_mapper_maps_to_one_key_are_refused() {
    let servers = Servers::start(1).await;
    let clients = servers
        .clients_with(|builder| builder.name_mapper(str::to_lowercase))
        .await;
    let lock = RedLock::new(["A", "B", "a"].map(|name| clients[0].lock(name)));
    let error = lock.lock().await.unwrap_err();
    assert!(error.to_string().contains("given twice"), "{error}");
    let lock = RedLock::new(["A", "B", "C"].map(|name| clients[0].lock(name)));
    let guard = lock.lock().await.unwrap();
    has(&guard, 3).await;
    servers.assert_counts("a", [1]).await;
    guard.unlock().await.unwrap();
}
