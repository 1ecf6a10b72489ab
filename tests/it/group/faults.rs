//! Lost and repeated commands, leases that end, and a server without memory.

use std::time::Duration;

use lockdog::{Error, Guard, Unlocked};

use super::*;
use crate::support::prelude::WITHIN_A_LEASE;
use crate::support::{Action, Gate, Proxy, until_ok};
use crate::turn::renewed;

/// A client behind a proxy, whose commands have this time for an answer. The scripts are loaded, so that a rule
/// meets the first sending.
async fn behind_a_proxy(test: &Fixture, patience: Duration) -> (Proxy, Client) {
    for script in [ACQUIRE, UNLOCK] {
        test.redis.cmd(&["SCRIPT", "LOAD", script]).await;
    }
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(patience);
    let client = until_ok(SOON, async || client.clone().build().await).await;
    (proxy, client)
}

/// Acquires values that are free, or that are released long before the end of their lease.
async fn take(lock: &Lock) -> Guard {
    let taken = lock.try_lock().wait(WITHIN_A_LEASE).await;
    taken.expect("nothing is wrong").expect("they are free")
}

/// The counts of all values that have an owner.
async fn counts(test: &Fixture) -> Vec<String> {
    let hash = test.redis.hash(GROUP).await.into_iter();
    let counts = hash.filter(|(name, _)| name.ends_with(":lock_count"));
    counts.map(|(_, count)| count).collect()
}

#[tokio::test]
async fn a_repeated_command_counts_once() {
    let test = Fixture::start().await;
    for script in [ACQUIRE, UNLOCK] {
        test.redis.cmd(&["SCRIPT", "LOAD", script]).await;
    }
    let proxy = Proxy::start(&test.server).await;
    let client = Client::connect(proxy.url()).await.unwrap();
    let lock = of(&client, &["Jack", "Mary"]);
    for action in [Action::ExecuteThenCut, Action::Twice] {
        let rule = proxy.on(is(ACQUIRE), action.clone());
        let guard = lock.lock().await.unwrap();
        rule.wait_hits(1).await;
        let rule = proxy.on(is(ACQUIRE), action.clone());
        let again = lock.lock().await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!(lock.hold_count().await.unwrap(), 2);
        let rule = proxy.on(is(UNLOCK), action.clone());
        again.unlock().await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        let rule = proxy.on(is(UNLOCK), action);
        guard.unlock().await.unwrap();
        rule.wait_hits(1).await;
        test.redis.assert_clean().await;
    }
}

/// A call without time left returns the error, and its client releases the values. A call with time left sends
/// another command.
#[tokio::test]
async fn an_acquire_without_an_answer_is_undone_or_sent_again() {
    let test = Fixture::start().await;
    let other = test.another(&["Mary", "Tom"]).await;
    let (proxy, client) = behind_a_proxy(&test, PATIENCE).await;
    let rule = proxy.on(is(ACQUIRE), Action::DropReply);
    let lock = of(&client, &["Jack", "Mary"]);
    let error = lock.lock().await.unwrap_err();
    assert!(error.is_timeout() && error.is_retriable(), "{error}");
    assert!(error.may_be_held() && !error.is_lost(), "{error}");
    rule.wait_hits(1).await;
    take(&other).await.unlock().await.unwrap();
    eventually(SOON, "nothing is held", async || {
        client.holds().is_empty() && !test.redis.exists(GROUP).await
    })
    .await;

    let (proxy, client) = behind_a_proxy(&test, PATIENCE).await;
    let rule = proxy.on(is(ACQUIRE), Action::DropReply);
    let lock = of(&client, &["Jack", "Mary"]);
    let guard = lock.try_lock().wait(LONG).await.unwrap();
    let guard = guard.expect("no other owner has them");
    rule.wait_hits(1).await;
    assert!(proxy.count(is(ACQUIRE)) >= 2);
    assert_eq!(counts(&test).await, ["1", "1"]);
    assert_eq!(guard.hold_count(), 1);
    assert!(tried(&other).await.is_none());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    eventually(SOON, "nothing is held", async || client.holds().is_empty()).await;
    test.redis.eventually_empty().await;
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn an_unlock_without_an_answer_is_unconfirmed_and_is_settled_later() {
    let test = Fixture::start().await;
    let other = test.another(&["Mary", "Tom"]).await;
    for is_inner in [true, false] {
        let (proxy, client) = behind_a_proxy(&test, PATIENCE).await;
        let lock = of(&client, &["Jack", "Mary"]);
        let outer = take(&lock).await;
        let (ended, kept) = match is_inner {
            true => (take(&lock).await, Some(outer)),
            false => (outer, None),
        };
        let rule = proxy.on(is(UNLOCK), Action::DropReply);
        let error = ended.unlock().await.unwrap_err();
        assert!(matches!(error, Error::UnlockUnconfirmed(_)), "{error}");
        assert!(error.is_timeout() && error.may_be_held(), "{error}");
        rule.wait_hits(1).await;
        if let Some(outer) = kept {
            assert_eq!(outer.hold_count(), 1);
            eventually(SOON, "the counts are lowered", async || {
                counts(&test).await == ["1", "1"]
            })
            .await;
            assert!(outer.is_valid() && tried(&other).await.is_none());
            // The background releases it, because this connection does not answer.
            drop(outer);
        }
        take(&other).await.unlock().await.unwrap();
        eventually(SOON, "nothing is held", async || {
            client.holds().is_empty() && test.redis.keys().await.is_empty()
        })
        .await;
    }
    test.redis.assert_clean().await;
}

/// Invariant 6: the first sending of an acquire arrives after the unlock.
#[tokio::test]
async fn a_late_acquire_leaves_an_orphan_for_one_lease_at_most() {
    let test = Fixture::start().await;
    let (proxy, client) = behind_a_proxy(&test, SOON).await;
    let (lock, owner, gate) = (of(&client, &["Jack", "Mary"]), Owner::new(), Gate::new());
    let lease = ms(4_800);
    let late = proxy.on(is(ACQUIRE), Action::HoldRequest(gate.clone()));
    let cut = async {
        gate.wait_reached().await;
        assert!(proxy.cut_all() >= 1);
    };
    let (guard, ()) = tokio::join!(lock.lock().lease(lease).owner(&owner), cut);
    let guard = guard.unwrap();
    assert_eq!(counts(&test).await, ["1", "1"]);
    let held = owners(&test).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    gate.open();
    gate.wait_passed().await;
    assert_eq!(late.hits(), 1);
    // Its owner neither holds the values nor acquires them again, and its client renews nothing.
    assert_eq!(owners(&test).await, held);
    assert!(!lock.is_held_by(&owner).await.unwrap());
    assert!(lock.try_lock().owner(&owner).await.unwrap().is_none());
    assert!(client.holds().is_empty());
    let left = test.redis.pttl(GROUP).await;
    assert!(left <= lease.as_millis() as i64, "{left}");
    let next = lock.lock().owner(&owner).await.unwrap();
    assert_ne!(owners(&test).await, held);
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    test.redis.eventually_empty().await;
    test.redis.assert_clean().await;
}

/// The values and their owners.
async fn owners(test: &Fixture) -> Vec<(String, String)> {
    let hash = test.redis.hash(GROUP).await.into_iter();
    hash.filter(|(name, _)| !name.contains(':')).collect()
}

/// The server executes the command before or after the future is dropped.
#[tokio::test]
async fn values_granted_to_a_dropped_try_lock_are_freed_soon_and_not_renewed() {
    let test = Fixture::start().await;
    let (proxy, client) = behind_a_proxy(&test, SOON).await;
    let other = test.another(&["Mary", "Tom"]).await;
    for is_executed in [false, true] {
        let gate = Gate::new();
        let action = match is_executed {
            true => Action::HoldReply(gate.clone()),
            false => Action::HoldRequest(gate.clone()),
        };
        let rule = proxy.on(is(ACQUIRE), action);
        let lock = of(&client, &["Jack", "Mary"]);
        tokio::select! {
            biased;
            () = gate.wait_reached() => {}
            _ = lock.try_lock().into_future() => panic!("it has no answer"),
        }
        gate.open();
        rule.wait_hits(1).await;
        take(&other).await.unlock().await.unwrap();
        eventually(SOON, "they are free for good", async || {
            client.holds().is_empty() && !test.redis.exists(GROUP).await
        })
        .await;
    }
    assert_eq!(proxy.count(is(RENEW)), 0);
    test.redis.assert_clean().await;
}

/// GL1: a value is free when its owner's lease is over, also while the key exists for other owners.
#[tokio::test]
async fn a_value_is_free_when_its_owners_lease_is_over() {
    let test = Fixture::start().await;
    let long = tried(&test.another(&["Mary"]).await).await.unwrap();
    let lock = test.lock(&["Jack"]);
    let short = until_ok(SOON, async || lock.lock().lease(ms(1_000)).await).await;
    let other = test.another(&["Jack"]).await;
    let next = tokio::time::timeout(SOON, other.lock().into_future()).await;
    let next = next.expect("in time").unwrap();
    assert!(!short.is_valid());
    // The fields of the first owner are deleted (GL4).
    assert_eq!(test.redis.hash(GROUP).await.len(), 6);
    assert!(short.unlock().await.unwrap_err().is_lost());
    assert!(next.is_valid());
    next.unlock().await.unwrap();
    long.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

/// A Redisson client that takes a value in the last millisecond of the key does not extend the key, and loses
/// the value at once. It comes when the time of the value ends.
#[tokio::test]
async fn the_key_ends_before_the_time_of_its_values() {
    let test = Fixture::start().await;
    let set = |it: ClientBuilder| it.watchdog_lease(ms(6_000));
    let lock = test.another_with(&["Jack"], set).await;
    let guard = lock.lock().await.unwrap();
    assert_key_ends_first(&test, "acquired").await;
    renewed(&[&guard]).await;
    assert_key_ends_first(&test, "renewed").await;
    guard.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

async fn assert_key_ends_first(test: &Fixture, when: &str) {
    // How much later the key ends than its value, in one command, because the watchdog renews both. If the server
    // pauses between the two, the key seems to end earlier. So the latest of some results counts.
    let script = "local all = redis.call('hgetall', KEYS[1]) \
        local now, left = redis.call('time'), redis.call('pttl', KEYS[1]) \
        for i = 1, #all, 2 do if all[i]:find(':expire_time') then \
        return now[1] * 1000 + math.floor(now[2] / 1000) + left - all[i + 1] end end";
    let mut latest = i64::MIN;
    for _ in 0..5 {
        let later: i64 = test.redis.ask(&["EVAL", script, "1", GROUP]).await;
        latest = latest.max(later);
    }
    assert!(latest < 0, "{when}: {latest} ms later");
}

/// The watchdog renews all values, and detects that one was taken.
#[tokio::test]
async fn the_watchdog_renews_values_and_notices_a_loss() {
    let test = Fixture::start().await;
    let set = |it: ClientBuilder| it.watchdog_lease(ms(6_000));
    let lock = test.another_with(&["Jack", "Mary"], set).await;
    let guard = lock.lock().await.unwrap();
    renewed(&[&guard]).await;
    assert!(guard.is_valid());
    assert!(tried(&test.another(&["Jack"]).await).await.is_none());
    test.redis
        .cmd(&["HSET", GROUP, "230jWNvarrOid4cfBqB4JQ", "java:1"])
        .await;
    tokio::time::timeout(SOON, guard.lost())
        .await
        .expect("it is notified");
    drop(guard);
    eventually(SOON, "only the other's is left", async || {
        test.redis.hash(GROUP).await.len() == 1
    })
    .await;
}

/// GL2: all values or none, also for an unlock.
#[tokio::test]
async fn a_hold_without_one_of_its_values_is_lost() {
    let test = Fixture::start().await;
    let (lock, jack) = (test.lock(&["Jack", "Mary"]), test.another(&["Jack"]).await);
    for is_inner in [true, false] {
        let guard = lock.lock().lease(LONG).await.unwrap();
        let again = match is_inner {
            true => Some(lock.lock().lease(LONG).await.unwrap()),
            false => None,
        };
        assert!(jack.force_unlock().await.unwrap());
        let taken = tried(&jack).await.expect("it is free");
        let before = test.redis.hash(GROUP).await;
        if let Some(again) = again {
            assert!(again.unlock().await.unwrap_err().is_lost());
            assert_eq!(test.redis.hash(GROUP).await, before);
        }
        assert!(guard.unlock().await.unwrap_err().is_lost());
        // The other values of the hold are free, and Jack is not.
        eventually(SOON, "only Jack is left", async || {
            test.redis.hash(GROUP).await.len() == 3
        })
        .await;
        taken.unlock().await.unwrap();
    }
    let guard = lock.lock().lease(LONG).await.unwrap();
    assert!(jack.force_unlock().await.unwrap());
    let taken = tried(&jack).await.expect("it is free");
    let slow = |builder: ClientBuilder| builder.poll_cap(LONG);
    let waiting = crate::turn::waiter(&test.another_with(&["Mary"], slow).await);
    eventually(SOON, "it listens", async || {
        !test.redis.channels().await.is_empty()
    })
    .await;
    tokio::time::sleep(ms(200)).await;
    assert!(guard.unlock().await.unwrap_err().is_lost());
    let mary = tokio::time::timeout(SOON, waiting).await.expect("in time");
    mary.unwrap().unlock().await.unwrap();
    assert_eq!(taken.unlock().await.unwrap(), Unlocked::Released);
    test.redis.assert_clean().await;
}

/// A hold is not reported as held if another client has one of its values, or if its lease is over.
#[tokio::test]
async fn a_lost_hold_is_not_reported_as_held() {
    let test = Fixture::start().await;
    let jack = tried(&test.another(&["Jack"]).await).await.unwrap();
    let lock = test.lock(&["Mary", "Tom"]);
    let guard = lock.lock().lease(ms(4_000)).await.unwrap();
    assert!(lock.is_held().await.unwrap());
    test.redis
        .cmd(&["HSET", GROUP, "230jWNvarrOid4cfBqB4JQ", "java:1"])
        .await;
    assert!(guard.is_valid(), "the lease is not over yet");
    assert!(!lock.is_held().await.unwrap());
    assert_eq!(lock.hold_count().await.unwrap(), 0);
    test.redis
        .cmd(&[
            "HSET",
            GROUP,
            "230jWNvarrOid4cfBqB4JQ",
            guard_field(&test).await.as_str(),
        ])
        .await;
    assert!(lock.is_held().await.unwrap());
    eventually(SOON, "its time is over", async || {
        !lock.is_held().await.unwrap()
    })
    .await;
    assert!(test.redis.exists(GROUP).await && !guard.is_valid());
    drop(guard);
    jack.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

/// The field of the hold of Mary and Tom.
async fn guard_field(test: &Fixture) -> String {
    let hash = test.redis.hash(GROUP).await;
    let count = hash.keys().find_map(|name| {
        let rest = name.strip_suffix(":lock_count")?;
        let (value, field) = rest.split_once(':')?;
        (hash.get(value)? == field
            && hash.contains_key(&format!("230jWNvarrOid4cfBqB4JQ:{field}:lock_count")))
        .then(|| field.to_owned())
    });
    count.expect("a hold has Mary and Tom")
}

/// Expired holds do not accumulate while others use the group. A hold that expired a moment ago stays,
/// because by the clock of a Redisson client it may still be valid.
#[tokio::test]
async fn what_holds_left_is_deleted_by_later_acquires() {
    let test = Fixture::start().await;
    let mary = tried(&test.another(&["Mary"]).await).await.unwrap();
    let [seconds, _] = test.redis.ask::<[u64; 2]>(&["TIME"]).await;
    let late = ((seconds - 10) * 1_000).to_string();
    let leave = async |value: String, ends: &str, is_superseded: bool| {
        let (ends_at, count) = (
            format!("{value}:u:1:expire_time"),
            format!("{value}:u:1:lock_count"),
        );
        test.redis
            .cmd(&["HSET", GROUP, &ends_at, ends, &count, "1"])
            .await;
        if !is_superseded {
            test.redis.cmd(&["HSET", GROUP, &value, "u:1"]).await;
        }
    };
    for number in 0..100 {
        leave(format!("left{number}"), "1000", number % 3 == 0).await;
    }
    leave("late".to_owned(), &late, false).await;
    let jack = test.lock(&["Jack"]);
    let mut rounds = 0;
    while test.redis.hash(GROUP).await.len() > 6 {
        rounds += 1;
        assert!(rounds < 5_000, "{:?}", test.redis.hash(GROUP).await);
        jack.lock().await.unwrap().unlock().await.unwrap();
    }
    let hash = test.redis.hash(GROUP).await;
    assert_eq!(hash["late"], "u:1");
    assert_eq!(
        (
            &hash["late:u:1:expire_time"],
            hash["late:u:1:lock_count"].as_str()
        ),
        (&late, "1")
    );
    mary.unlock().await.unwrap();
    test.redis.cmd(&["DEL", GROUP]).await;
    test.redis.assert_clean().await;
}

/// An owner that left some values to their lease waits for the others like any waiter.
#[tokio::test]
async fn a_wait_for_values_that_were_left_to_their_lease_asks_once_for_each_poll_cap() {
    let test = Fixture::start().await;
    let slow = |builder: ClientBuilder| builder.poll_cap(LONG);
    let owner = Owner::new();
    let both = test.another_with(&["Jack", "Mary"], slow).await;
    let client = Client::builder().url(test.server.url()).poll_cap(LONG);
    let client = client.build().await.unwrap();
    let jack = of(&client, &["Jack"]).lock().owner(&owner).lease(LONG);
    jack.await.unwrap().leave_to_lease();
    test.redis.reset_stats().await;
    let waiting = of(&client, &["Jack", "Mary"]);
    let waiting = waiting.try_lock().owner(&owner).wait(ms(2_000)).await;
    // On a busy machine its last query may have no answer.
    let is_over = match &waiting {
        Ok(guard) => guard.is_none(),
        Err(error) => error.is_timeout(),
    };
    assert!(is_over, "{waiting:?}");
    let sent = test.redis.commandstats().await["evalsha"];
    assert!(sent <= 6, "{sent} commands");
    assert!(both.force_unlock().await.unwrap());
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_server_without_memory_renews_and_releases() {
    let test = Fixture::start().await;
    let set = |it: ClientBuilder| it.watchdog_lease(ms(6_000));
    let lock = test.another_with(&["Jack", "Mary"], set).await;
    let guard = lock.lock().await.unwrap();
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    renewed(&[&guard]).await;
    assert!(guard.is_valid());
    let refused = test.another(&["Tom"]).await.try_lock().await.unwrap_err();
    assert!(refused.to_string().contains("OOM"), "{refused}");
    guard.unlock().await.unwrap();
    assert!(!test.redis.exists(GROUP).await);
}

fn is(script: &'static str) -> impl Fn(&[String]) -> bool + Clone + Send + Sync + 'static {
    let digest = redis::Script::new(script).get_hash().to_owned();
    move |args: &[String]| args.get(1) == Some(&digest)
}

const ACQUIRE: &str = include_str!("../../../lua/group/acquire.lua");
const RENEW: &str = include_str!("../../../lua/group/renew.lua");
const UNLOCK: &str = include_str!("../../../lua/group/unlock.lua");

/// A command timeout that a test can wait for, and long enough for an answer on a busy machine.
const PATIENCE: Duration = Duration::from_millis(2_000);
