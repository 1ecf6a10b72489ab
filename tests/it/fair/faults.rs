//! Lost, late and repeated commands, and servers that refuse.

use lockdog::{Error, Unlocked};

use super::*;
use crate::support::{Action, Direction, Gate, Proxy};

/// A waiter that retries while a server does not answer, because it has a deadline.
fn patient(lock: &Lock) -> JoinHandle<Guard> {
    let request = lock.try_lock().owner(&Owner::new()).wait(LONG);
    tokio::spawn(async move { request.await.unwrap().expect("it is its turn") })
}

/// A client behind a proxy. All scripts are loaded, so that a rule meets the first sending.
async fn behind_a_proxy(test: &Fixture) -> (Proxy, Lock) {
    behind_a_proxy_with(test, |builder| builder).await
}

async fn behind_a_proxy_with(
    test: &Fixture,
    set: impl FnOnce(ClientBuilder) -> ClientBuilder,
) -> (Proxy, Lock) {
    for script in [ACQUIRE, UNLOCK, TRANSFER] {
        test.redis.cmd(&["SCRIPT", "LOAD", script]).await;
    }
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder()
        .url(proxy.url())
        .command_timeout(ms(2_500))
        .poll_cap(ms(200));
    let client = set(client).build().await.unwrap();
    (proxy, client.fair_lock(NAME))
}

#[tokio::test]
async fn a_repeated_command_counts_once() {
    let test = Fixture::start().await;
    let (proxy, lock) = behind_a_proxy(&test).await;
    for action in [Action::ExecuteThenCut, Action::Twice] {
        let mut attempts = 0;
        while !repeat_each_command(&test, &proxy, &lock, &action).await {
            attempts += 1;
            assert!(
                attempts < 20,
                "no unlock finds the waiter between two looks"
            );
        }
    }
}

/// False if the unlock came during a query of the waiter, so that nothing was handed over. Nothing outside
/// the client shows when the waiter has received its answer.
async fn repeat_each_command(test: &Fixture, proxy: &Proxy, lock: &Lock, action: &Action) -> bool {
    // Free: the repeated command finds the hold.
    let rule = proxy.on(is(ACQUIRE), action.clone());
    let guard = lock.lock().await.unwrap();
    rule.wait_hits(1).await;
    assert_eq!(test.redis.hash(NAME).await.len(), 1);
    // Held: the repeated command finds the place in the queue.
    let rule = proxy.on(is(ACQUIRE), action.clone());
    let waiter = crate::turn::waiter(lock);
    rule.wait_hits(1).await;
    test.eventually_queued(1).await;
    tokio::time::sleep(ms(300)).await;
    let handed_over = proxy.on(is(TRANSFER), action.clone());
    guard.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiter)
        .await
        .expect("in time")
        .unwrap();
    handed_over.remove();
    let rule = proxy.on(is(UNLOCK), action.clone());
    guard.unlock().await.unwrap();
    rule.wait_hits(1).await;
    test.eventually_empty().await;
    handed_over.hits() == 1
}

/// F-d: a query without an answer keeps its hold. The next query finds the grant.
#[tokio::test]
async fn a_query_without_an_answer_keeps_its_place() {
    let test = Fixture::start().await;
    let (proxy, lock) = behind_a_proxy(&test).await;
    let held = test.another().await.lock().lease(LONG).await.unwrap();
    let first = patient(&lock);
    test.eventually_queued(1).await;
    let entry = test.queue().await.remove(0);
    let second = test.queued(&test.lock).await;
    let rule = proxy.on(is(ACQUIRE), Action::DropReply);
    rule.wait_hits(1).await;
    // The grant is in the lost reply.
    let rule = proxy.on(is(ACQUIRE), Action::DropReply);
    held.unlock().await.unwrap();
    rule.wait_hits(1).await;
    let guard = tokio::time::timeout(SOON, first)
        .await
        .expect("in time")
        .unwrap();
    assert_eq!(test.redis.hash(NAME).await.keys().next(), Some(&entry));
    guard.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, second)
        .await
        .expect("in time")
        .unwrap();
    guard.unlock().await.unwrap();
    test.eventually_empty().await;
}

/// F-a: the first answer of a waiter is lost, so its client does not know its position. The server does.
#[tokio::test]
async fn a_waiter_whose_first_answer_was_lost_is_called_when_it_is_first() {
    let test = Fixture::start().await;
    let (proxy, lock) = behind_a_proxy(&test).await;
    let held = test.another().await.lock().lease(LONG).await.unwrap();
    let rule = proxy.on(is(ACQUIRE), Action::DropReply);
    let first = patient(&lock);
    rule.wait_hits(1).await;
    test.eventually_queued(1).await;
    let entry = test.queue().await.remove(0);
    let second = patient(&lock);
    test.eventually_queued(2).await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, first)
        .await
        .expect("in time")
        .unwrap();
    assert_eq!(test.redis.hash(NAME).await.keys().next(), Some(&entry));
    guard.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, second)
        .await
        .expect("in time")
        .unwrap();
    guard.unlock().await.unwrap();
    test.eventually_empty().await;
}

/// A late query of a waiter that has left acquires nothing and enters no queue.
#[tokio::test]
async fn a_late_query_of_a_waiter_that_left_does_nothing() {
    let test = Fixture::start().await;
    let (proxy, lock) = behind_a_proxy(&test).await;
    let held = test.another().await.lock().lease(LONG).await.unwrap();
    let waiter = crate::turn::waiter(&lock);
    test.eventually_queued(1).await;
    let entry = test.queue().await.remove(0);
    test.eventually_listening(&entry).await;
    let gate = Gate::new();
    proxy.on(is(ACQUIRE), Action::TwiceLate(gate.clone()));
    gate.wait_reached().await;
    waiter.abort();
    test.eventually_queued(0).await;
    held.unlock().await.unwrap();
    gate.open();
    gate.wait_passed().await;
    test.eventually_empty().await;
    assert!(test.lock.try_lock().await.unwrap().is_some());
}

/// The entry has no waiter. Other clients drop it when its presence is over.
#[tokio::test]
async fn a_late_first_command_leaves_an_entry_for_its_absence() {
    let test = Fixture::with(|builder| builder.poll_cap(ms(200))).await;
    let set = |builder: ClientBuilder| builder.fair_absence(ms(3_000));
    let (proxy, lock) = behind_a_proxy_with(&test, set).await;
    let held = test.another().await.lock().lease(LONG).await.unwrap();
    let gate = Gate::new();
    proxy.on(is(ACQUIRE), Action::TwiceLate(gate.clone()));
    let waiter = crate::turn::waiter(&lock);
    test.eventually_queued(1).await;
    let entry = test.queue().await.remove(0);
    gate.wait_reached().await;
    waiter.abort();
    test.eventually_queued(0).await;
    gate.open();
    gate.wait_passed().await;
    assert_eq!(test.queue().await, [&*entry]);
    let ends: f64 = test.redis.ask(&["ZSCORE", PRESENCE, &entry]).await;
    let next = queued_or_passed(&test, &entry).await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, next).await;
    let guard = guard.expect("it passes the entry").unwrap();
    let [seconds, micros]: [f64; 2] = test.redis.ask::<Vec<f64>>(&["TIME"]).await[..]
        .try_into()
        .unwrap();
    let now = seconds * 1_000.0 + micros / 1_000.0;
    assert!(now >= ends, "{} ms before its end", ends - now);
    assert_ne!(test.redis.hash(NAME).await.keys().next(), Some(&entry));
    guard.unlock().await.unwrap();
    test.eventually_empty().await;
}

/// Starts a task that waits, and waits until it is in the queue behind this entry, or has dropped it.
async fn queued_or_passed(test: &Fixture, entry: &str) -> JoinHandle<Guard> {
    let waiter = crate::turn::waiter(&test.lock);
    eventually(SOON, "it is in the queue", async || {
        test.queue().await.iter().any(|other| other != entry)
    })
    .await;
    waiter
}

/// The hold has no holder, and ends with its lease.
#[tokio::test]
async fn a_late_first_command_takes_a_free_lock_for_one_lease() {
    let test = Fixture::start().await;
    let (proxy, lock) = behind_a_proxy(&test).await;
    let (owner, lease, gate) = (Owner::new(), ms(4_800), Gate::new());
    proxy.on(is(ACQUIRE), Action::TwiceLate(gate.clone()));
    let guard = lock.lock().owner(&owner).lease(lease).await.unwrap();
    let held = test.redis.hash(NAME).await;
    assert_eq!(held.len(), 1);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    gate.wait_reached().await;
    assert!(!test.redis.exists(NAME).await);
    gate.open();
    gate.wait_passed().await;
    // Its owner neither holds nor re-enters it, and no client renews it.
    assert_eq!(test.redis.hash(NAME).await, held);
    assert!(!lock.is_held_by(&owner).await.unwrap());
    assert!(lock.try_lock().owner(&owner).await.unwrap().is_none());
    let left = test.redis.pttl(NAME).await;
    assert!(left <= lease.as_millis() as i64, "{left}");
    let next = lock.try_lock().owner(&owner).wait(SOON).await.unwrap();
    let next = next.expect("the lease ends");
    assert_ne!(test.redis.hash(NAME).await, held);
    next.unlock().await.unwrap();
    test.eventually_empty().await;
}

#[tokio::test]
async fn an_unlock_without_an_answer_is_repeated_and_calls_the_next() {
    let test = Fixture::start().await;
    let (proxy, lock) = behind_a_proxy(&test).await;
    let guard = lock.lock().await.unwrap();
    let waiter = test.queued(&test.lock).await;
    let gate = Gate::new();
    proxy.on(is(UNLOCK), Action::HoldRequest(gate.clone()));
    let unlocked = guard.unlock().await;
    gate.wait_reached().await;
    let next = tokio::time::timeout(SOON, waiter)
        .await
        .expect("in time")
        .unwrap();
    // The late command finds nothing of its own.
    gate.open();
    gate.wait_passed().await;
    assert!(next.is_valid() && test.redis.hash(NAME).await.len() == 1);
    println!("the unlock said {unlocked:?}");
    next.unlock().await.unwrap();
    test.eventually_empty().await;
}

/// Invariant 12: an error about the queue does not look like a failed release.
#[tokio::test]
async fn a_queue_of_another_type_does_not_hide_a_release() {
    let test = Fixture::start().await;
    for is_forced in [false, true] {
        let guard = test.lock.lock().lease(LONG).await.unwrap();
        test.redis.cmd(&["SET", QUEUE, "no list"]).await;
        match is_forced {
            false => assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released),
            true => {
                assert!(test.lock.force_unlock().await.unwrap());
                drop(guard);
            }
        }
        assert!(!test.redis.exists(NAME).await);
        // The next acquire reports it. Another client sends it, because this one still repeats a
        // settlement.
        let error = test.another().await.try_lock().await.unwrap_err();
        assert!(
            matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE"),
            "{error}"
        );
        test.redis.cmd(&["DEL", QUEUE]).await;
    }
}

#[tokio::test]
async fn a_server_out_of_memory_refuses_a_waiter_and_releases_the_lock() {
    let test = Fixture::start().await;
    let guard = test.lock.lock().await.unwrap();
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let another = test.another().await;
    let waits = [
        another.lock().await.map(drop),
        another.try_lock().wait(SOON).await.map(drop),
    ];
    for wait in waits {
        let refused = wait.expect_err("it cannot enter the queue");
        assert!(refused.to_string().contains("OOM"), "{refused}");
    }
    test.eventually_queued(0).await;
    guard.unlock().await.unwrap();
    assert!(!test.redis.exists(NAME).await);
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    crate::turn::turn(&another).await;
    test.eventually_empty().await;
}

/// FA4: the contender's query is unanswered for longer than a second and a poll cap, and all waiters are
/// polled.
#[tokio::test]
async fn waiters_keep_their_places_while_a_real_server_is_paused() {
    let set = |builder: ClientBuilder| builder.poll_cap(ms(200)).command_timeout(LONG);
    let test = Fixture::with(set).await;
    let held = test.another().await.lock().lease(LONG).await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(test.queued(&test.lock).await);
    }
    let before = test.queue().await;
    test.redis.reset_stats().await;
    test.redis.cmd(&["CLIENT", "PAUSE", "3000", "ALL"]).await;
    // It is answered after the pause.
    assert_eq!(test.queue().await, before);
    let blocked = test.redis.commandstats().await;
    assert!(
        blocked.contains_key("evalsha"),
        "no look waited: {blocked:?}"
    );
    held.unlock().await.unwrap();
    for (waiter, entry) in waiters.into_iter().zip(before) {
        let guard = tokio::time::timeout(SOON, waiter).await;
        let guard = guard.expect("in time").unwrap();
        assert_eq!(test.redis.hash(NAME).await.keys().next(), Some(&entry));
        guard.unlock().await.unwrap();
    }
    test.eventually_empty().await;
}

/// A query without an answer has granted the lock to the second hold. Its client counts the lease from the
/// transfer.
#[tokio::test]
async fn a_transfer_to_a_hold_that_has_the_lock_extends_its_lease() {
    let test = Fixture::start().await;
    test.redis.cmd(&["HSET", NAME, "to", "1"]).await;
    test.redis.cmd(&["PEXPIRE", NAME, "10000"]).await;
    for (lease, least) in [("30000", 20_000), ("1000", 20_000)] {
        let keys = ["EVAL", TRANSFER, "4", NAME, QUEUE, PLACES, PRESENCE];
        let values = ["from", "to", lease, "prefix", "publish", "300000"];
        let answer: i64 = test.redis.ask(&[&keys[..], &values[..]].concat()).await;
        // The first hold was not there.
        assert_eq!(answer, -3);
        let left: i64 = test.redis.ask(&["PTTL", NAME]).await;
        assert!(left > least, "{left} ms are left");
    }
}

/// The first hold has expired, and a query whose answer is on its way granted the lock to the waiter.
#[tokio::test]
async fn a_hand_over_of_a_lost_lock_reports_the_loss() {
    let test = Fixture::with(|builder| builder.poll_cap(LONG)).await;
    let guard = test.lock.lock().lease(LONG).await.unwrap();
    let waiter = test.queued(&test.lock).await;
    // The waiter has read its answer, so that the unlock hands over.
    tokio::time::sleep(ms(300)).await;
    let next = test.queue().await.remove(0);
    let granted = "redis.call('del', KEYS[1], KEYS[2], KEYS[3], KEYS[4])\n\
        redis.call('hset', KEYS[1], ARGV[1], 1)\n\
        redis.call('pexpire', KEYS[1], 10000)";
    let keys = ["EVAL", granted, "4", NAME, QUEUE, PLACES, PRESENCE, &next];
    test.redis.cmd(&keys).await;
    let unlocked = guard.unlock().await;
    assert!(matches!(unlocked, Err(Error::Lost(_))), "{unlocked:?}");
    let guard = tokio::time::timeout(SOON, waiter).await;
    guard.expect("in time").unwrap().unlock().await.unwrap();
    test.eventually_empty().await;
}

/// FA6: the waiter of a stopped process keeps its place while its presence lasts.
#[tokio::test]
async fn a_stopped_head_delays_the_others_by_its_absence_only() {
    // The absence is long enough for a second waiter on a busy machine.
    let set = |builder: ClientBuilder| builder.poll_cap(ms(250)).fair_absence(ms(5_000));
    let test = Fixture::with(set).await;
    let held = test
        .another_with(set)
        .await
        .lock()
        .lease(LONG)
        .await
        .unwrap();
    // From now on no command of this client arrives.
    let proxy = Proxy::start(&test.server).await;
    let stopped = set(Client::builder().url(proxy.url()));
    let stopped = stopped.build().await.unwrap().fair_lock(NAME);
    let first = test.queued(&stopped).await;
    // The second comes before the first is absent, because it would drop it from the queue.
    let second = test.queued(&test.lock).await;
    proxy.blackhole(Direction::ToServer);
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, second)
        .await
        .expect("in time")
        .unwrap();
    guard.unlock().await.unwrap();
    // It enters the queue again.
    proxy.heal();
    first.abort();
    test.eventually_empty().await;
}

fn is(script: &'static str) -> impl Fn(&[String]) -> bool + Clone + Send + Sync + 'static {
    let digest = redis::Script::new(script).get_hash().to_owned();
    move |args: &[String]| args.get(1) == Some(&digest)
}

const ACQUIRE: &str = include_str!("../../../lua/fair/acquire.lua");
const UNLOCK: &str = include_str!("../../../lua/fair/unlock.lua");
const TRANSFER: &str = include_str!("../../../lua/fair/transfer.lua");
