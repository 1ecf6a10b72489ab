//! What a caller can ask for: how many instances, how long, for whom, with how much time left.

use std::time::{Duration, Instant};

use lockdog::config::Reentry;
use lockdog::error::LostReason;
use lockdog::{Error, Owner};

use super::{NEVER, SOON, Servers, decided, has, lock_of, ms};
use crate::support::{Direction, Proxy, until_ok};

#[tokio::test]
async fn masking_requires_more_instances_than_a_majority() {
    let servers = Servers::start(5).await;
    let clients = servers.clients().await;
    let plain = lock_of(&clients, "l");
    let one = lock_of(&clients, "l").masking(1);
    let three = lock_of(&clients, "l").masking(3);
    // (instances held by others, whether 3, 4 and 5 of five can be acquired)
    for (foreign, can) in [
        (0, [true, true, true]),
        (1, [true, true, false]),
        (2, [true, false, false]),
        (3, [false, false, false]),
    ] {
        let mut held = Vec::new();
        for client in &clients[..foreign] {
            let other = Owner::new();
            held.push(client.lock("l").lock().owner(&other).await.unwrap());
        }
        for (lock, can) in [&plain, &one, &three].into_iter().zip(can) {
            // A round does not count an instance that answers late. A later round acquires it.
            let request = lock.try_lock();
            let guard = match can {
                true => request.wait(SOON).await.unwrap(),
                false => decided(|| request.clone()).await,
            };
            assert_eq!(
                guard.is_some(),
                can,
                "{lock:?} with {foreign} in other hands"
            );
            if let Some(guard) = guard {
                guard.unlock().await.unwrap();
            }
            servers
                .assert_counts("l", [0, 1, 2, 3, 4].map(|n| u64::from(n < foreign)))
                .await;
        }
    }
}

#[tokio::test]
async fn the_margin_is_the_number_of_tolerated_losses() {
    let servers = Servers::start(5).await;
    let clients = servers.clients().await;
    for (masked, margin) in [(0, 2), (1, 3), (3, 4)] {
        let guard = lock_of(&clients, "l").masking(masked).lock().await.unwrap();
        has(&guard, 5).await;
        assert_eq!(guard.margin(), margin);
        guard.unlock().await.unwrap();
    }
    let mut held = Vec::new();
    for (foreign, margin) in [(1, 1), (2, 0)] {
        let other = clients[foreign].lock("l").lock().owner(&Owner::new());
        held.push(other.await.unwrap());
        let guard = lock_of(&clients, "l").lock().await.unwrap();
        has(&guard, 5 - foreign).await;
        assert_eq!(guard.margin(), margin);
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn the_lease_is_set_on_every_server() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    for lease in [10, 12_345, 60_000, 120_000] {
        let guard = lock.lock().lease(ms(lease)).await;
        // The shortest lease may end before the acquire returns.
        let guard = match guard {
            Ok(guard) => guard,
            Err(error) if lease == 10 => {
                assert!(error.is_retriable(), "{error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        assert!(guard.remaining() <= ms(lease));
        if lease > 1_000 {
            has(&guard, 3).await;
            for redis in &servers.redis {
                let ttl = redis.pttl("l").await;
                assert!(0 < ttl && ttl <= lease as i64, "{ttl} of {lease}");
            }
        }
        drop(guard);
        servers.assert_counts("l", [0; 3]).await;
    }
}

#[tokio::test]
async fn max_hold_ends_a_watched_hold() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(5_000)))
        .await;
    let lock = lock_of(&clients, "l");
    let began = Instant::now();
    let guard = lock.lock().max_hold(ms(7_000)).await.unwrap();
    let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::MaxHold);
    assert!(began.elapsed() > ms(6_800), "{:?}", began.elapsed());
    servers.assert_counts("l", [0; 3]).await;
    drop(guard);

    // A bound shorter than the lease is used as the lease.
    let guard = lock.lock().max_hold(ms(4_000)).await.unwrap();
    for redis in &servers.redis {
        assert!(redis.pttl("l").await <= 4_000);
    }
    // A nested acquire may move the end earlier, but never later.
    let nested = lock.lock().max_hold(ms(60_000)).await.unwrap();
    assert!(nested.remaining() <= ms(4_000));
    let lost = tokio::time::timeout(SOON, nested.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::MaxHold);
    drop((guard, nested));

    let guard = lock.lock().await.unwrap();
    let bounded = lock.lock().max_hold(ms(2_000)).await.unwrap();
    let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::MaxHold);
    drop((guard, bounded));
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn sixteen_owners_hold_sixteen_names_and_exclude_each_other_from_one() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let mut guards = Vec::new();
    for n in 0..16_u64 {
        let owner = Owner::from_id(n);
        let own = lock_of(&clients, &format!("l{n}"));
        let guard = own.lock().owner(&owner).await.unwrap();
        assert_eq!(guard.owner(), owner);
        guards.push(guard);
    }
    let shared = lock_of(&clients, "l0");
    for n in 1..16_u64 {
        let owner = Owner::from_id(n);
        assert!(decided(|| shared.try_lock().owner(&owner)).await.is_none());
        let own = lock_of(&clients, &format!("l{n}"));
        let again = owner
            .scope(async { decided(|| own.try_lock()).await })
            .await;
        assert_eq!(again.map(|guard| guard.hold_count()), Some(2));
    }
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    for n in 0..16 {
        servers.assert_counts(&format!("l{n}"), [0; 3]).await;
    }
    servers.assert_clean().await;
}

#[tokio::test]
async fn a_lock_with_less_than_min_validity_left_is_not_granted() {
    let servers = Servers::start(3).await;
    let mut slow = Vec::new();
    let mut clients = Vec::new();
    for server in &servers.all {
        let proxy = Proxy::start(server).await;
        let client = lockdog::Client::connect(proxy.url()).await.unwrap();
        slow.push(proxy);
        clients.push(client);
    }
    let lock = lock_of(&clients, "l");
    // The answers arrive within a twentieth of the lease, and that time reduces the validity.
    let lease = ms(6_000);
    for proxy in &slow {
        proxy.delay(Direction::ToClient, ms(150));
    }
    let enough = lock.clone().min_validity(ms(10_000));
    let guard = enough.lock().lease(ms(20_000)).await.unwrap();
    assert!(guard.remaining() > ms(10_000));
    guard.unlock().await.unwrap();
    let much = lock.min_validity(ms(5_850));
    let error = much.try_lock().lease(lease).await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    assert!(error.to_string().contains(": late"), "{error}");
    for error in [
        much.try_lock()
            .wait(ms(800))
            .lease(lease)
            .await
            .unwrap_err(),
        much.lock().lease(lease).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    }
    for proxy in &slow {
        proxy.heal();
    }
    servers.assert_counts("l", [0; 3]).await;
    // On a busy machine the answers may still be late.
    let guard = until_ok(SOON, async || much.lock().lease(lease).await).await;
    assert!(guard.is_valid());
}

#[tokio::test]
async fn impossible_options_are_refused_before_anything_is_sent() {
    let servers = Servers::start(2).await;
    let clients = servers.clients().await;
    let refused = async |lock: lockdog::RedLock, what: &str| {
        for error in [
            lock.lock().await.unwrap_err(),
            lock.try_lock().await.unwrap_err(),
            lock.try_lock().wait(SOON).await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
    };
    let lock = || lock_of(&clients, "l");
    refused(lock().masking(2), "masking").await;
    refused(lock().masking(u32::MAX), "masking").await;
    refused(lock().min_validity(ms(30_000)), "min_validity").await;
    refused(lock().min_validity(Duration::MAX), "min_validity").await;
    let why = "invalid watchdog_lease: it must be at most RedLock::max_lease=1s, got=30s";
    refused(lock().max_lease(ms(1_000)), why).await;
    refused(lock().max_lease(Duration::ZERO), "max_lease").await;
    let error = lock().lock().lease(Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("invalid lease"), "{error}");
    let error = lock().lock().lease(Duration::MAX).await.unwrap_err();
    assert!(error.to_string().contains("invalid lease"), "{error}");
    let error = lock().lock().max_hold(ms(1)).await.unwrap_err();
    assert!(error.to_string().contains("invalid max_hold"), "{error}");
    // These options are valid.
    let longest = lock().max_lease(Duration::MAX);
    let guard = longest.lock().lease(NEVER).await.unwrap();
    guard.unlock().await.unwrap();
    let local = lock().lock().reentry(Reentry::Local).await.unwrap();
    local.unlock().await.unwrap();
    servers.assert_counts("l", [0; 2]).await;
    servers.assert_clean().await;
}

/// A server that stores its epoch, and the longest possible leases.
#[tokio::test]
async fn the_longest_lease_causes_a_quarantine_and_no_panic() {
    let servers = Servers::start(1).await;
    let clients = servers
        .clients_with(|builder| builder.quarantine_on_server(true))
        .await;
    let lock = lock_of(&clients, "l").max_lease(Duration::MAX);
    let error = lock.try_lock().await.unwrap_err();
    assert!(error.to_string().contains("quarantined"), "{error}");
    clients[0].provision().await.unwrap();
    let guard = lock.try_lock().wait(SOON).await.unwrap();
    assert!(guard.is_some());
}
