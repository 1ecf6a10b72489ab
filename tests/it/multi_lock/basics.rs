//! Lock and unlock of several as one, on healthy servers.

use lockdog::config::Reentry;
use lockdog::error::InstanceState;
use lockdog::report::Ttl;
use lockdog::{Error, MultiLock, Owner, Unlocked};

use super::{Fixture, SOON, ms, multi};
use crate::support::{eventually, until_ok};

#[tokio::test]
async fn all_members_are_held_by_the_owner_until_the_unlock() {
    let test = Fixture::start(2).await;
    for members in [
        [(0, "a"), (0, "b"), (0, "c")],
        [(1, "c"), (0, "b"), (1, "a")],
    ] {
        let lock = test.multi(&members);
        let owner = Owner::current();
        assert!(!lock.is_held().await.unwrap() && !lock.is_held_by(&owner).await.unwrap());
        assert_eq!(lock.hold_count().await.unwrap(), 0);
        let guard = lock.lock().lease(ms(60_000)).await.unwrap();
        assert!(lock.is_held().await.unwrap() && lock.is_held_by(&owner).await.unwrap());
        assert!(!lock.is_held_by(&Owner::new()).await.unwrap());
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        for (server, name) in members {
            assert_eq!(test.counts(server, name).await, ["1"]);
            let ttl = test.servers.redis[server].pttl(name).await;
            assert!((40_000..=60_000).contains(&ttl), "{ttl}");
            assert!(test.clients[server].lock(name).is_held().await.unwrap());
        }
        assert!(guard.is_valid() && guard.remaining() > ms(40_000));
        assert_eq!((guard.owner(), guard.hold_count()), (owner, 1));
        let name = format!("[{}]", members.map(|(_, name)| name).join(", "));
        assert_eq!((lock.name(), guard.name()), (&*name, &*name));
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        assert!(!lock.is_held().await.unwrap() && !lock.is_held_by(&owner).await.unwrap());
        test.assert_clean().await;
    }
}

/// Design: "members of one client are acquired by one command".
#[tokio::test]
async fn each_client_sends_one_command_to_acquire_its_members() {
    let test = Fixture::start(2).await;
    test.warm_up(&test.clients).await;
    let lock = test.multi(&[(0, "a"), (1, "b"), (0, "c"), (0, "d")]);
    let outer = lock.lock().await.unwrap();
    assert_eq!((test.scripts(0).await, test.scripts(1).await), (1, 1));
    let inner = lock.lock().await.unwrap();
    assert_eq!((test.scripts(0).await, test.scripts(1).await), (2, 2));
    drop(inner);
    outer.unlock().await.unwrap();
    test.assert_clean().await;
}

/// As many as there are.
#[tokio::test]
async fn a_hundred_members_are_one_command() {
    let test = Fixture::start(1).await;
    test.warm_up(&test.clients).await;
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let locks = names.iter().map(|name| test.clients[0].lock(name));
    let lock = MultiLock::new(locks);
    let guard = lock.lock().await.unwrap();
    assert_eq!(test.scripts(0).await, 1);
    assert_eq!(test.servers.redis[0].keys().await.len(), 100);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!(test.servers.redis[0].keys().await.len(), 0);
    test.assert_clean().await;
}

#[tokio::test]
async fn the_owner_reenters_and_the_last_unlock_frees_the_lock() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&[(0, "a"), (0, "b"), (1, "c")]);
    let outer = lock.lock().await.unwrap();
    let inner = lock.try_lock().await.unwrap().expect("it is ours");
    assert_eq!(
        (outer.hold_count(), lock.hold_count().await.unwrap()),
        (2, 2)
    );
    let others = test.multi(&[(1, "c"), (0, "a")]);
    assert!(
        others
            .try_lock()
            .owner(&Owner::new())
            .await
            .unwrap()
            .is_none()
    );
    let kept = Unlocked::StillHeld { count: 1 };
    assert_eq!(inner.unlock().await.unwrap(), kept);
    assert_eq!(
        (outer.hold_count(), lock.hold_count().await.unwrap()),
        (1, 1)
    );
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    let other = others.try_lock().owner(&Owner::new()).await.unwrap();
    other.expect("it is free").unlock().await.unwrap();
    test.assert_clean().await;
}

/// A guard of one member and a guard of all members of one owner end independently.
#[tokio::test]
async fn a_member_locked_alone_by_the_owner_keeps_its_own_count() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&[(0, "a"), (0, "b"), (1, "c")]);
    let single = test.clients[0].lock("a").lock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    assert_eq!(test.counts(0, "a").await, ["2"]);
    assert_eq!(test.counts(0, "b").await, ["1"]);
    assert_eq!((single.hold_count(), guard.hold_count()), (2, 1));
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    // The whole is not held any more, though one of its members is.
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!(test.counts(0, "a").await, ["1"]);
    assert!(test.is_free(0, "b").await && test.is_free(1, "c").await);
    assert!(single.is_valid());

    let guard = lock.lock().await.unwrap();
    assert_eq!(
        single.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    assert!(guard.is_valid() && lock.is_held().await.unwrap());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    test.assert_clean().await;
}

/// A failed attempt restores the previous count.
#[tokio::test]
async fn a_failed_attempt_leaves_the_owners_hold_of_a_member_unchanged() {
    let test = Fixture::start(2).await;
    for busy in [(0, "b"), (1, "c")] {
        let elsewhere = test.held_elsewhere(busy.0, busy.1).await;
        let lease = ms(60_000);
        let single = test.clients[0].lock("a").lock().lease(lease).await.unwrap();
        let lock = test.multi(&[(0, "a"), (0, "b"), (1, "c")]);
        let bounded = lock.try_lock().wait(ms(1_000)).max_hold(ms(20_000));
        let bounded = until_ok(SOON, async || bounded.clone().await).await;
        assert!(bounded.is_none());
        assert!(lock.try_lock().await.unwrap().is_none());
        eventually(SOON, "the count is as before", async || {
            test.counts(0, "a").await == ["1"]
        })
        .await;
        assert_eq!(single.hold_count(), 1);
        assert!(single.remaining() > ms(50_000), "{:?}", single.remaining());
        elsewhere.unlock().await.unwrap();
        single.unlock().await.unwrap();
        test.assert_clean().await;
    }
}

/// An invalid multi lock is an error of each request, and no command is sent.
#[tokio::test]
async fn invalid_members_are_an_error_of_each_request() {
    let test = Fixture::start(1).await;
    test.warm_up(&test.clients).await;
    let client = &test.clients[0];
    let mapped = lockdog::Client::builder()
        .url(test.servers.all[0].url())
        .name_mapper(|_| "one".to_owned())
        .build()
        .await
        .unwrap();
    // Clients query their servers when they connect.
    let connecting = test.scripts(0).await;
    let bad = [
        (MultiLock::new([]), "no locks were given"),
        (
            MultiLock::new([client.lock("a"), client.lock("b"), client.lock("a")]),
            "lock=\"a\"",
        ),
        (
            MultiLock::new([mapped.lock("a"), mapped.lock("b")]),
            "one lock of one client is given twice, lock=",
        ),
        (
            MultiLock::new([client.lock("a"), client.lock("")]),
            "empty, place=2",
        ),
    ];
    for (lock, why) in bad {
        let errors = [
            lock.lock().await.unwrap_err(),
            lock.try_lock().await.unwrap_err(),
            lock.try_lock().wait(SOON).await.unwrap_err(),
            lock.with(|_| async {}).await.unwrap_err(),
            lock.unlock().await.unwrap_err(),
            lock.is_held().await.unwrap_err(),
            lock.hold_count().await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }
    assert_eq!(test.scripts(0).await, connecting);
    // One name on two servers, or through two clients, is two locks.
    let two = MultiLock::new([client.lock("a"), mapped.lock("b")]);
    two.lock().await.unwrap().unlock().await.unwrap();
}

/// Invalid arguments are refused as by a plain lock.
#[tokio::test]
async fn invalid_terms_are_refused() {
    let test = Fixture::start(2).await;
    let short = lockdog::Client::builder()
        .url(test.servers.all[1].url())
        .watchdog_lease(ms(10_000))
        .max_lease(ms(10_000))
        .build()
        .await
        .unwrap();
    let lock = MultiLock::new([test.clients[0].lock("a"), short.lock("b")]);
    for refused in [
        lock.lock().lease(ms(1)),
        lock.lock().max_hold(ms(1)),
        // The limits of each member's client apply.
        lock.lock().lease(ms(20_000)),
    ] {
        let error = refused.await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    lock.lock()
        .lease(ms(10_000))
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    test.assert_clean().await;
}

/// Forgotten holds, for code that locks and unlocks in different places.
#[tokio::test]
async fn unlock_of_the_lock_ends_forgotten_holds() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&[(0, "a"), (0, "b"), (1, "c")]);
    for _ in 0..2 {
        lock.lock().await.unwrap().forget();
    }
    assert_eq!(lock.hold_count().await.unwrap(), 2);
    assert_eq!(
        lock.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    let error = lock.unlock().owner(&Owner::new()).await.unwrap_err();
    assert!(matches!(error, Error::NotHeld(_)), "{error}");
    assert_eq!(lock.unlock().await.unwrap(), Unlocked::Released);
    let error = lock.unlock().await.unwrap_err();
    assert!(matches!(error, Error::NotHeld(_)), "{error}");
    test.assert_clean().await;

    // While a guard lives, only the guard can unlock.
    let guard = lock.lock().await.unwrap();
    let error = lock.unlock().await.unwrap_err();
    assert!(matches!(error, Error::NotHeld(_)), "{error}");
    guard.unlock().await.unwrap();

    // A member that was released by itself does not keep the others locked.
    lock.lock().await.unwrap().forget();
    test.clients[0].lock("b").unlock().await.unwrap();
    let error = lock.unlock().await.unwrap_err();
    let Error::NotHeld(not_held) = &error else {
        panic!("{error}")
    };
    assert_eq!(not_held.lock(), "b");
    test.assert_clean().await;

    // A rate limit: a hold that is forgotten and expires.
    lock.lock().lease(ms(6_000)).await.unwrap().forget();
    assert!(
        lock.try_lock()
            .owner(&Owner::new())
            .await
            .unwrap()
            .is_none()
    );
    let next = lock
        .try_lock()
        .owner(&Owner::new())
        .wait(SOON)
        .await
        .unwrap();
    next.expect("its lease is over").unlock().await.unwrap();
    test.assert_clean().await;
}

/// `with` holds all while the work is done.
#[tokio::test]
async fn with_runs_the_work_while_all_members_are_held() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&[(0, "a"), (1, "b")]);
    let work = async |held: lockdog::Held| {
        let counts = (test.counts(0, "a").await, test.counts(1, "b").await);
        (held.is_valid(), held.name().to_owned(), counts)
    };
    let (valid, name, counts) = lock.with(work).await.unwrap();
    assert!(valid);
    assert_eq!(name, "[a, b]");
    assert_eq!(counts, (vec!["1".to_owned()], vec!["1".to_owned()]));
    let busy = test.held_elsewhere(1, "b").await;
    let untouched = lock.try_lock().with(async |_| unreachable!("it is taken"));
    assert!(untouched.await.unwrap().is_none());
    busy.unlock().await.unwrap();
    test.assert_clean().await;
}

/// The guard reports each member. It has no token and a margin of zero.
#[tokio::test]
async fn a_guard_reports_each_member_in_the_given_order() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&[(1, "c"), (0, "a"), (0, "b")]);
    let guard = lock.lock().await.unwrap();
    let report = guard.instances();
    let found: Vec<(&str, String)> = report
        .iter()
        .map(|instance| (&*instance.lock, instance.server.clone()))
        .collect();
    let server = |number: usize| format!("127.0.0.1:{}", test.servers.all[number].port());
    assert_eq!(
        found,
        [("c", server(1)), ("a", server(0)), ("b", server(0))]
    );
    let is_acquired = |state: &InstanceState| matches!(state, InstanceState::Acquired);
    assert!(report.iter().all(|instance| is_acquired(&instance.state)));
    assert_eq!((guard.token(), guard.margin()), (None, 0));
    let names: Vec<&str> = lock.locks().iter().map(lockdog::Lock::name).collect();
    assert_eq!(names, ["c", "a", "b"]);
    let plain = test.clients[0].lock("x").lock().await.unwrap();
    assert!(plain.instances().is_empty());
    assert_eq!((plain.token(), plain.margin()), (None, 0));
}

/// Re-entries counted locally send nothing, and outlive each other in any order.
#[tokio::test]
async fn a_reentry_may_be_counted_locally() {
    let test = Fixture::start(2).await;
    test.warm_up(&test.clients).await;
    let lock = test.multi(&[(0, "a"), (0, "b"), (1, "c")]);
    let outer = lock.lock().await.unwrap();
    let sent = (test.scripts(0).await, test.scripts(1).await);
    let inner = lock.lock().reentry(Reentry::Local).await.unwrap();
    assert_eq!((test.scripts(0).await, test.scripts(1).await), sent);
    assert_eq!(
        (inner.hold_count(), lock.hold_count().await.unwrap()),
        (2, 1)
    );
    assert_eq!(
        outer.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    assert_eq!((test.scripts(0).await, test.scripts(1).await), sent);
    assert!(inner.is_valid());
    // The owner does not hold one of the members yet, so only its server is asked.
    let more = test.multi(&[(0, "a"), (1, "c"), (1, "d")]);
    let more = more.lock().reentry(Reentry::Local).await.unwrap();
    assert_eq!(
        (test.scripts(0).await, test.scripts(1).await),
        (sent.0, sent.1 + 1)
    );
    more.unlock().await.unwrap();
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
    test.assert_clean().await;
}

/// Two tasks of one scope are one owner; a child that awaits the lock of its parent gets it.
#[tokio::test]
async fn tasks_of_one_scope_reenter_while_other_owners_wait() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&[(0, "a"), (1, "b")]);
    let owner = Owner::new();
    let guard = lock.lock().owner(&owner).await.unwrap();
    let stranger = super::waiter(&lock);
    let child = lock.clone();
    let child = tokio::spawn(owner.scope(async move { child.lock().await }));
    let inner = tokio::time::timeout(SOON, child).await.unwrap().unwrap();
    inner.unwrap().unlock().await.unwrap();
    assert!(!stranger.is_finished());
    guard.unlock().await.unwrap();
    stranger.await.unwrap().unlock().await.unwrap();
    test.assert_clean().await;
}

/// `max_hold` ends the whole.
#[tokio::test]
async fn a_bounded_hold_is_lost_at_its_bound() {
    let test = Fixture::start(2).await;
    let clients = test
        .servers
        .clients_with(|client| client.watchdog_lease(ms(4_800)))
        .await;
    let lock = multi(&clients, &[(0, "a"), (1, "b")]);
    let guard = lock.lock().max_hold(ms(9_000)).await.unwrap();
    tokio::time::sleep(ms(5_400)).await;
    assert!(guard.is_valid(), "it is renewed up to its bound");
    let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), lockdog::error::LostReason::MaxHold);
    // A busy machine notifies later.
    assert!(lost.held_for() >= ms(8_900), "{:?}", lost.held_for());
    drop(guard);
    test.assert_clean().await;
}

/// A lease of its own is not renewed.
#[tokio::test]
async fn a_fixed_lease_ends_without_renewal() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&[(0, "a"), (1, "b")]);
    let lease = ms(6_000);
    let guard = lock.lock().lease(lease).await.unwrap();
    let Some(Ttl::Expires(left)) = lock.locks()[1].remaining_ttl().await.unwrap() else {
        panic!("it is held")
    };
    assert!(left <= lease, "{left:?}");
    let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), lockdog::error::LostReason::Deadline);
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert!(guard.unlock().await.unwrap_err().is_lost());
    test.assert_clean().await;
}
