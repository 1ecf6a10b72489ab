//! Nested acquires: counted in the client, with one count on each server and no new grant.

use std::future::IntoFuture;
use std::time::Duration;

use lockdog::error::{InstanceState, LostReason};
use lockdog::{Client, Error, Owner, RedLock, Unlocked};

use super::{SOON, Servers, decided, has, lock_of, ms, states};
use crate::support::{Direction, Proxy, eventually, timed};

#[tokio::test]
async fn a_nested_acquire_sends_nothing_if_the_hold_is_already_renewed() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let outer = lock.lock().await.unwrap();
    has(&outer, 3).await;
    for redis in &servers.redis {
        redis.reset_stats().await;
    }
    let mut inner = Vec::new();
    for _ in 0..3 {
        inner.push(decided(|| lock.try_lock()).await.unwrap());
        inner.push(lock.lock().lease(ms(5_000)).await.unwrap());
    }
    assert_eq!(outer.hold_count(), 7);
    for (left, guard) in (1..7).rev().zip(inner) {
        let still = Unlocked::StillHeld { count: left };
        assert_eq!(guard.unlock().await.unwrap(), still);
    }
    for redis in &servers.redis {
        assert_eq!(redis.commandstats().await.get("evalsha"), None);
    }
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn a_longer_nested_lease_lengthens_the_hold_beyond_its_own_end() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let outer = lock.lock().lease(ms(10_000)).await.unwrap();
    assert!(outer.remaining() <= ms(10_000));
    let inner = lock.lock().lease(ms(60_000)).await.unwrap();
    assert!(outer.remaining() > ms(30_000) && inner.remaining() > ms(30_000));
    let (mut lengthened, deadline) = (0, std::time::Instant::now() + SOON);
    while lengthened < 3 && std::time::Instant::now() < deadline {
        lengthened = 0;
        for redis in &servers.redis {
            lengthened += usize::from(redis.pttl("l").await > 30_000);
        }
    }
    assert_eq!(lengthened, 3);
    inner.unlock().await.unwrap();
    assert!(outer.remaining() > ms(30_000));
    servers.assert_counts("l", [1, 1, 1]).await;
    // A shorter one shortens nothing.
    let short = lock.lock().lease(ms(20)).await.unwrap();
    tokio::time::sleep(ms(40)).await;
    assert!(short.is_valid() && outer.is_valid());
    drop(short);
    outer.unlock().await.unwrap();
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn a_nested_acquire_without_a_lease_renews_a_fixed_lease_until_it_ends() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(6_000)))
        .await;
    let lock = lock_of(&clients, "l");
    let outer = lock.lock().lease(ms(5_000)).await.unwrap();
    let inner = lock.lock().await.unwrap();
    tokio::time::sleep(ms(7_000)).await;
    assert!(outer.is_valid() && inner.is_valid());
    servers.assert_counts("l", [1, 1, 1]).await;
    inner.unlock().await.unwrap();
    assert!(outer.is_valid());
    // From here on no client renews it.
    let lost = tokio::time::timeout(SOON, outer.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn an_owner_with_a_living_guard_gets_lost_until_it_drops_the_guard() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().lease(ms(5_000)).await.unwrap();
    let second = lock.lock().lease(ms(4_500)).await.unwrap();
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    let assert_lost = async |attempt: Result<bool, Error>| {
        let error = attempt.unwrap_err();
        assert!(error.is_lost(), "{error}");
        let text = error.to_string();
        assert!(text.contains("drop its guard before"), "{text}");
    };
    for _ in 0..2 {
        assert_lost(lock.lock().await.map(|_| true)).await;
        assert_lost(lock.try_lock().await.map(|_| true)).await;
        assert_lost(lock.try_lock().wait(ms(50)).await.map(|_| true)).await;
        // Another handle of the same lock knows it, too.
        assert_lost(lock_of(&clients, "l").lock().await.map(|_| true)).await;
    }
    // Others are not kept from it.
    let other = Owner::new();
    let theirs = lock.lock().owner(&other).await.unwrap();
    theirs.unlock().await.unwrap();
    drop(guard);
    assert_lost(lock.lock().await.map(|_| true)).await;
    let error = second.unlock().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    let again = lock.lock().await.unwrap();
    assert_eq!(again.hold_count(), 1);
    again.unlock().await.unwrap();
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn a_nested_acquire_that_would_need_a_new_grant_reports_the_loss() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let outer = lock.lock().lease(ms(40_000)).await.unwrap();
    has(&outer, 3).await;
    // Two of three have lost it, and no client has noticed.
    for redis in &servers.redis[..2] {
        redis.cmd(&["DEL", "l"]).await;
    }
    // It would be longer, so the servers are asked.
    let nested = lock.lock().lease(ms(60_000)).await;
    assert!(nested.unwrap_err().is_lost());
    assert!(!outer.is_valid());
    let lost = outer.lost().await;
    assert_eq!(lost.reason(), LostReason::NotOurs);
    drop(outer);
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn a_nested_acquire_reacquires_one_lost_instance() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let outer = lock.lock().lease(ms(10_000)).await.unwrap();
    has(&outer, 3).await;
    servers.redis[1].cmd(&["DEL", "l"]).await;
    let inner = lock.lock().lease(ms(20_000)).await.unwrap();
    assert!(inner.remaining() > ms(10_000));
    eventually(SOON, "that round noticed it", async || {
        matches!(states(&inner)[1], InstanceState::Lost)
    })
    .await;
    // That round sent no further command. The next round acquires the instance again.
    let longer = lock.lock().lease(ms(30_000)).await.unwrap();
    has(&longer, 3).await;
    servers.assert_counts("l", [1, 1, 1]).await;
    drop((longer, inner, outer));
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn a_nested_acquire_without_a_quorum_leaves_the_outer_hold_unchanged() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| {
            builder
                .watchdog_lease(ms(30_000))
                .command_timeout(ms(300))
                .poll_cap(ms(100))
        })
        .await;
    let lock = lock_of(&clients, "l");
    let outer = lock.try_lock().wait(SOON).lease(ms(5_000)).await.unwrap();
    let outer = outer.expect("no other owner wants it");
    has(&outer, 3).await;
    for server in &servers.all[1..] {
        server.kill();
    }
    let before = outer.remaining();
    let error = lock.try_lock().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    assert!(outer.is_valid() && outer.remaining() <= before);
    assert_eq!(outer.hold_count(), 1);
    // No client renews an acquire with a fixed lease, though another acquire asked for renewal.
    servers.all[1].restart(crate::support::Data::Lost).await;
    servers.all[2].restart(crate::support::Data::Lost).await;
    let lost = tokio::time::timeout(SOON, outer.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    assert!(lost.held_for() < ms(20_000), "{:?}", lost.held_for());
}

#[tokio::test]
async fn tasks_of_one_owner_enter_together() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let owner = Owner::new();
    let guard = lock.lock().owner(&owner).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let lock = lock.clone();
        tasks.spawn(owner.scope(async move {
            let request = if n % 2 == 0 {
                lock.lock()
            } else {
                lock.lock().owner(&Owner::current())
            };
            let guard = request.await.unwrap();
            tokio::time::sleep(ms(5)).await;
            guard.unlock().await.unwrap();
        }));
    }
    let all = tokio::time::timeout(SOON, tasks.join_all());
    all.await.expect("they re-enter");
    assert_eq!(guard.hold_count(), 1);
    guard.unlock().await.unwrap();
    servers.assert_counts("l", [0; 3]).await;
}

/// Two requests of one owner wait. When one acquires the lock, the other re-enters.
#[tokio::test]
async fn a_waiting_request_enters_when_another_request_of_its_owner_has_the_lock() {
    let servers = Servers::start(3).await;
    let (mine, other) = (
        servers.clients_without_polling().await,
        servers.lock("l").await,
    );
    let lock = lock_of(&mine, "l");
    let held = other.lock().await.unwrap();
    let owner = Owner::new();
    let both = tokio::spawn(owner.scope(async move {
        let (first, second) = tokio::join!(lock.lock().into_future(), lock.lock().into_future());
        (first.unwrap(), second.unwrap())
    }));
    tokio::time::sleep(ms(300)).await;
    assert!(!both.is_finished());
    held.unlock().await.unwrap();
    let (first, second) = tokio::time::timeout(SOON, both).await.unwrap().unwrap();
    assert_eq!((first.hold_count(), second.hold_count()), (2, 2));
    assert_eq!(first.owner(), owner);
}

/// Both requests start before the owner holds the lock. The second one re-enters.
#[tokio::test]
async fn two_concurrent_requests_of_one_owner_are_one_hold() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    for fenced in [false, true] {
        let name = if fenced { "fenced" } else { "l" };
        let mut lock = lock_of(&clients, name);
        if fenced {
            lock = lock.fenced();
        }
        for _ in 0..10 {
            let ask = || decided(|| lock.try_lock());
            let (first, second) = tokio::join!(ask(), ask());
            let both = [first.unwrap(), second.unwrap()];
            assert_eq!(both.each_ref().map(|guard| guard.hold_count()), [2, 2]);
            assert_eq!(both[0].token(), both[1].token());
            let [first, second] = both;
            // As in ported code, the holds belong to the owner and not to a guard.
            first.forget();
            second.forget();
            let still = Unlocked::StillHeld { count: 1 };
            assert_eq!(lock.unlock().await.unwrap(), still);
            assert_eq!(lock.unlock().await.unwrap(), Unlocked::Released);
            servers.assert_counts(name, [0; 3]).await;
        }
    }
}

#[tokio::test]
async fn an_unpolled_request_does_not_block_its_owner() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let mut left = Box::pin(lock.lock().into_future());
    let polled = futures_util::future::poll_immediate(left.as_mut()).await;
    assert!(polled.is_none());
    let asked = tokio::time::timeout(SOON, decided(|| lock.try_lock()));
    let guard = asked.await.unwrap().expect("it is its owner's");
    assert!(guard.is_valid());
    // When it is polled again, it re-enters the hold of its owner.
    let again = tokio::time::timeout(SOON, left).await.unwrap().unwrap();
    assert_eq!((guard.hold_count(), again.hold_count()), (2, 2));
    drop((guard, again));
    servers.assert_counts("l", [0; 3]).await;
}

/// The second extension restarts the round, and its answers count for the first one, too.
#[tokio::test]
async fn two_concurrent_extensions_take_no_longer_than_the_servers() {
    let servers = Servers::start(3).await;
    let mut proxies = Vec::new();
    let mut clients = Vec::new();
    for server in &servers.all {
        let proxy = Proxy::start(server).await;
        let client = Client::builder().url(proxy.url());
        clients.push(client.build().await.unwrap());
        proxies.push(proxy);
    }
    let lock = lock_of(&clients, "l");
    let _outer = lock.lock().lease(ms(40_000)).await.unwrap();
    // The connections that extend it are open before they are slow.
    let _inner = lock.lock().lease(ms(45_000)).await.unwrap();
    for proxy in &proxies {
        proxy.delay(Direction::ToClient, ms(150));
    }
    // An instance has half a second to answer. A busy machine may take longer now and then.
    let mut shortest = Duration::MAX;
    for n in 1..=50_u64 {
        if n > 5 && shortest < ms(450) {
            break;
        }
        let longer = |by: u64| lock.lock().lease(ms(45_000 + n * 1_200 + by)).into_future();
        let first = timed(longer(0));
        let second = async {
            tokio::time::sleep(ms(100)).await;
            longer(600).await
        };
        let ((first, took), second) = tokio::join!(first, second);
        match (first, second) {
            (Ok(first), Ok(second)) => assert!(first.is_valid() && second.is_valid()),
            (Err(error), _) | (_, Err(error)) => {
                assert!(error.is_retriable(), "{error}");
                continue;
            }
        }
        shortest = shortest.min(took);
    }
    assert!((ms(200)..ms(450)).contains(&shortest), "{shortest:?}");
}

#[tokio::test]
async fn handles_with_the_same_locks_in_any_order_are_one_lock() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = |order: [usize; 3]| RedLock::new(order.map(|n| clients[n].lock("l")));
    let outer = lock([0, 1, 2]).lock().await.unwrap();
    has(&outer, 3).await;
    for order in [[2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let inner = decided(|| lock(order).try_lock())
            .await
            .expect("re-entered");
        assert_eq!(inner.hold_count(), 2);
        assert_eq!(states(&inner).len(), 3);
    }
    eventually(SOON, "one is left", async || outer.hold_count() == 1).await;
    let first = Duration::from_secs(1);
    let second = || lock([2, 1, 0]).try_lock().owner(&Owner::new()).wait(first);
    assert!(decided(second).await.is_none());
}
