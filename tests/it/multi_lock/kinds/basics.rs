//! What holds for members of every kind.

use lockdog::{Error, MultiLock, Owner, RedLock, Unlocked, Value};

use super::*;
use crate::multi_lock::{LONG, SOON, ms, waiter};
use crate::support::{eventually, until_ok};

#[tokio::test]
async fn a_member_of_each_kind_is_held_with_the_others() {
    let test = Fixture::start(2).await;
    let others = test.others().await;
    for kind in KINDS {
        let lock = kind.among_others(&test.clients);
        let guard = lock.lock().await.unwrap();
        assert!(
            lock.is_held().await.unwrap() && guard.is_valid(),
            "{}",
            kind.name
        );
        assert_eq!(lock.hold_count().await.unwrap(), 1, "{}", kind.name);
        assert_eq!(guard.instances().len(), 3);
        let conflicting = (kind.conflicting)(&others[0], MEMBER);
        assert!(
            conflicting.try_lock().await.unwrap().is_none(),
            "{}",
            kind.name
        );
        let other = kind.among_others(&others);
        assert!(other.try_lock().await.unwrap().is_none(), "{}", kind.name);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        test.assert_clean().await;
        // An unlock of what was forgotten ends each member.
        lock.lock().await.unwrap().forget();
        assert_eq!(lock.unlock().await.unwrap(), Unlocked::Released);
        // A dropped guard, too.
        drop(lock.lock().lease(LONG).await.unwrap());
        test.assert_clean().await;
    }
}

#[tokio::test]
async fn members_of_all_kinds_are_held_together_and_reentered() {
    let test = Fixture::start(2).await;
    let lock = MultiLock::new(mixed(&test.clients));
    let others = test.others().await;
    let outer = lock.lock().await.unwrap();
    let inner = lock.try_lock().await.unwrap().expect("its owner has it");
    assert_eq!(
        (outer.hold_count(), lock.hold_count().await.unwrap()),
        (2, 2)
    );
    let tokens: Vec<bool> = outer
        .instances()
        .iter()
        .map(|it| it.token.is_some())
        .collect();
    let fenced = [false, false, false, false, false, true, false, false, false];
    assert_eq!(tokens, fenced, "the token is that of the fenced member");
    inner.unlock().await.unwrap();
    // Each member alone makes the whole busy, and failed attempts release the other members.
    let elsewhere = MultiLock::new(mixed(&others));
    assert!(
        until_ok(SOON, async || elsewhere.try_lock().wait(ms(300)).await)
            .await
            .is_none()
    );
    outer.unlock().await.unwrap();
    for member in 0..mixed(&others).len() {
        if mixed(&others)[member].name() == "read" {
            continue;
        }
        let held = mixed(&others)[member]
            .lock()
            .owner(&Owner::new())
            .await
            .unwrap();
        assert!(lock.try_lock().await.unwrap().is_none(), "{member}");
        for (at, other) in mixed(&others).into_iter().enumerate() {
            if at != member {
                let free = async || {
                    other
                        .try_lock()
                        .owner(&Owner::new())
                        .await
                        .unwrap()
                        .is_some()
                };
                eventually(SOON, "the other members are free", free).await;
            }
        }
        held.unlock().await.unwrap();
        test.assert_clean().await;
    }
}

/// Each member is waited for by a message: every timer is a minute long.
#[tokio::test]
async fn a_busy_member_of_each_kind_is_waited_for_while_nothing_is_held() {
    let test = Fixture::start(2).await;
    for kind in KINDS {
        let patient = test
            .servers
            .clients_with(|client| client.poll_cap(ms(60_000)).fair_absence(ms(240_000)))
            .await;
        let others = test.others().await;
        let lock = kind.among_others(&patient);
        let conflicting = (kind.conflicting)(&others[0], MEMBER);
        let held = conflicting.lock().lease(LONG).await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none(), "{}", kind.name);
        assert!(
            until_ok(SOON, async || lock.try_lock().wait(ms(200)).await)
                .await
                .is_none()
        );
        let waiting = waiter(&lock);
        eventually(SOON, "it listens for the busy member", async || {
            let channels = test.servers.redis[0].channels().await;
            channels.iter().any(|channel| channel.contains("{m}"))
        })
        .await;
        for (server, name) in [(0, "a"), (1, "z")] {
            let free = async || {
                others[server]
                    .lock(name)
                    .try_lock()
                    .await
                    .unwrap()
                    .is_some()
            };
            eventually(SOON, "the other members are free", free).await;
        }
        assert!(!waiting.is_finished(), "{}", kind.name);
        held.unlock().await.unwrap();
        let guard = tokio::time::timeout(SOON, waiting).await;
        let guard = guard.unwrap_or_else(|_| panic!("{} was not woken", kind.name));
        guard.unwrap().unlock().await.unwrap();
        drop((lock, patient));
        test.assert_clean().await;
    }
}

/// A plain member is busy, and the member of the kind is free.
#[tokio::test]
async fn a_member_of_each_kind_is_released_while_a_plain_one_is_busy() {
    let test = Fixture::start(2).await;
    for kind in KINDS {
        let others = test.others().await;
        let lock = kind.among_others(&test.clients);
        for (server, name) in [(0, "a"), (1, "z")] {
            let held = others[server].lock(name).lock().lease(LONG).await.unwrap();
            let waiting = waiter(&lock);
            eventually(SOON, "it listens for the busy member", async || {
                let channels = test.servers.redis[server].channels().await;
                channels
                    .iter()
                    .any(|channel| channel.contains(&format!("{{{name}}}")))
            })
            .await;
            let conflicting = (kind.conflicting)(&others[0], MEMBER);
            let free = async || conflicting.try_lock().await.unwrap().is_some();
            eventually(SOON, "the member of the kind is free", free).await;
            held.unlock().await.unwrap();
            let guard = tokio::time::timeout(SOON, waiting).await;
            guard.expect("it is woken").unwrap().unlock().await.unwrap();
        }
        test.assert_clean().await;
    }
}

#[tokio::test]
async fn members_that_exclude_each_other_are_refused_and_nothing_is_sent() {
    let test = Fixture::start(1).await;
    let client = &test.clients[0];
    test.servers.redis[0].reset_stats().await;
    for kind in KINDS {
        let twice = || [(kind.lock)(client, MEMBER), (kind.lock)(client, MEMBER)];
        let beside_plain = || [(kind.lock)(client, MEMBER), client.lock(MEMBER)];
        for members in [twice(), beside_plain()] {
            let lock = MultiLock::new(members);
            for refused in [lock.lock().await.err(), lock.try_lock().await.err()] {
                let Some(error @ Error::Invalid { .. }) = refused else {
                    panic!("{}: {refused:?}", kind.name);
                };
                assert!(error.to_string().contains("twice"), "{error}");
            }
        }
        let unnamed = MultiLock::new([client.lock("a"), (kind.lock)(client, "")]);
        let error = unnamed.lock().await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains("place=2"), "{error}");
        let lock = MultiLock::new([client.lock("a"), (kind.lock)(client, MEMBER)]);
        let error = lock.lock().lease(ms(0)).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    assert_eq!(
        test.servers.redis[0].commandstats().await.get("evalsha"),
        None
    );
}

/// A quorum needs reentrant locks that only one owner holds, whose servers have no order of waiters.
#[tokio::test]
async fn a_red_lock_refuses_every_kind_and_says_why() {
    let test = Fixture::start(2).await;
    test.servers.redis[0].reset_stats().await;
    for kind in KINDS {
        let why = match kind.name {
            "fair" => "no order of waiters",
            "non-reentrant fair" | "non-reentrant" => "needs reentrant locks",
            "fenced" => "issues tokens itself",
            "read" | "write" => "one holder at a time",
            "group" => "some values",
            _ => panic!("{} has no reason", kind.name),
        };
        let lock = RedLock::new([
            test.clients[1].lock(MEMBER),
            (kind.lock)(&test.clients[0], MEMBER),
        ]);
        for refused in [
            lock.lock().await.err(),
            lock.try_lock().wait(ms(10)).await.err(),
        ] {
            let Some(error @ Error::Invalid { .. }) = refused else {
                panic!("{}: {refused:?}", kind.name);
            };
            let text = error.to_string();
            assert!(text.contains(why) && text.contains("place=2"), "{text}");
        }
    }
    assert_eq!(
        test.servers.redis[0].commandstats().await.get("evalsha"),
        None
    );
}

#[tokio::test]
async fn an_owner_that_holds_a_non_reentrant_fair_member_is_refused() {
    let test = Fixture::start(2).await;
    let lock = KINDS[1].among_others(&test.clients);
    let guard = lock.lock().await.unwrap();
    for refused in [lock.lock().await.err(), lock.try_lock().await.err()] {
        let refused = refused.expect("its owner holds it");
        assert!(matches!(refused, Error::AlreadyHeld { .. }), "{refused}");
    }
    guard.unlock().await.unwrap();
    test.assert_clean().await;
}

/// As for the read lock alone, the owner that writes may also read.
#[tokio::test]
async fn an_owner_that_writes_acquires_its_read_lock_as_a_member() {
    let test = Fixture::start(1).await;
    let both = test.clients[0].read_write_lock("doc");
    let writes = both.write().lock().await.unwrap();
    let lock = MultiLock::new([both.read().into(), test.clients[0].lock("b")]);
    let guard = lock.try_lock().await.unwrap().expect("its owner writes");
    writes.unlock().await.unwrap();
    assert!(guard.is_valid() && both.read().is_held().await.unwrap());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    test.assert_clean().await;
}

/// As for the lock of values alone, the call would wait for its own owner.
#[tokio::test]
async fn an_owner_with_some_values_of_a_member_is_refused() {
    let test = Fixture::start(1).await;
    let values = |values: [&str; 2]| test.clients[0].group_lock("g", values.map(Value::utf8));
    let held = values(["y", "z"]).lock().await.unwrap();
    let lock = MultiLock::new([values(["x", "y"]), test.clients[0].lock("b")]);
    for refused in [
        lock.lock().await.err(),
        lock.try_lock().await.err(),
        lock.try_lock().wait(LONG).await.err(),
    ] {
        assert!(
            matches!(refused, Some(Error::WouldDeadlock { .. })),
            "{refused:?}"
        );
    }
    assert!(held.is_valid());
    held.unlock().await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    test.assert_clean().await;
}
