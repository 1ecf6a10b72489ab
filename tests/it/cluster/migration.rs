//! Slots move key by key while their locks are held, acquired, renewed and waited for.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockdog::error::LostReason;
use lockdog::{Client, Error, Guard, MultiLock, Owner, ReadWriteLock, Unlocked};

use super::{LONG, SOON, load_scripts, ms, soon, waiter, without_polling};
use crate::crowd::Crowd;
use crate::faults::scripts;
use crate::support::cluster::{names, slot};
use crate::support::{Cluster, Redis, eventually, timed};
use crate::turn::renewed;

const SLOT: u16 = 42;

/// The slot is migrated key by key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_works_at_each_step_of_a_migration() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let other = Client::connect(cluster.url()).await.unwrap();
    let to = &cluster.nodes[2];
    let all = names("l", 6, |it| it == SLOT);
    let [moved, stays, new, unlocked, again, free] = &all[..] else {
        panic!("there are six");
    };
    let mut guards = Vec::new();
    for name in [moved, stays, unlocked, again] {
        guards.push(client.lock(name).lock().lease(LONG).await.unwrap());
    }
    let [first, second, third, fourth] = <[Guard; 4]>::try_from(guards).unwrap();
    let migration = cluster.migrate(SLOT, to).await;
    let (source, target) = (migration.from.redis().await, to.redis().await);
    for name in [moved, unlocked, again] {
        assert!(migration.move_key(name).await);
    }
    // Keys that were moved, keys that were not, and a key that exists on neither node.
    for (name, held) in [(moved, true), (stays, true), (free, false)] {
        let lock = other.lock(name);
        assert_eq!(lock.is_locked().await.unwrap(), held, "{name}");
        assert_eq!(lock.try_lock().await.unwrap().is_some(), !held, "{name}");
    }
    eventually(SOON, "it is free again", async || {
        !target.keys().await.contains(free)
    })
    .await;
    let inner = client.lock(again).lock().await.unwrap();
    assert_eq!(inner.hold_count(), 2);
    let left = Unlocked::StillHeld { count: 1 };
    assert_eq!(inner.unlock().await.unwrap(), left);
    assert_eq!(third.unlock().await.unwrap(), Unlocked::Released);
    let fifth = other.lock(new).lock().await.unwrap();
    let mut here = vec![moved.clone(), again.clone(), new.clone()];
    here.sort();
    assert_eq!(target.keys().await, here);
    assert_eq!(source.keys().await, std::slice::from_ref(stays));
    assert!(other.lock(moved).force_unlock().await.unwrap());
    assert!(!target.keys().await.contains(moved));
    drop(first);
    migration.move_keys().await;
    migration.finish().await;
    for guard in [second, fourth, fifth] {
        assert!(guard.is_valid());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    assert!(target.keys().await.is_empty() && source.keys().await.is_empty());
    for client in [client, other] {
        client.shutdown().await;
    }
}

/// The nodes answer with TRYAGAIN and ASK.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_locks_of_a_half_migrated_slot_are_renewed() {
    let cluster = Cluster::builder(3, 0).announce_proxies().start().await;
    load_scripts(&cluster).await;
    let client = Client::builder().url(cluster.url());
    let client = client.watchdog_lease(ms(6000));
    let client = client.build().await.unwrap();
    let all = names("l", 20, |it| it == SLOT);
    let mut guards = Vec::new();
    for name in &all {
        let lock = client.lock(name);
        guards.push(lock.lock().owner(&Owner::new()).await.unwrap());
    }
    let to = &cluster.nodes[2];
    let migration = cluster.migrate(SLOT, to).await;
    for name in &all[..10] {
        assert!(migration.move_key(name).await);
    }
    let (source, target) = (migration.from.redis().await, to.redis().await);
    source.reset_stats().await;
    let held: Vec<&Guard> = guards.iter().collect();
    // The first renewal may have been sent before the keys moved.
    for _ in 0..2 {
        renewed(&held).await;
    }
    let errors = source.errorstats().await;
    println!("{errors:?}");
    assert!(errors.contains_key("TRYAGAIN") || errors.contains_key("ASK"));
    assert!(guards.iter().all(Guard::is_valid));
    for (redis, half) in [(&target, &all[..10]), (&source, &all[10..])] {
        let mut half = half.to_vec();
        half.sort();
        assert_eq!(redis.keys().await, half);
    }
    // A deleted key is reported as lost, although another node answers for it.
    let gone: u32 = to.asking(&["DEL", &all[0]]).await;
    assert_eq!(gone, 1);
    let lost = soon("it is lost", guards[0].lost()).await;
    assert_eq!(lost.reason(), LostReason::NotOurs);
    assert!(guards[1..].iter().all(Guard::is_valid));
    migration.move_keys().await;
    migration.finish().await;
    renewed(&held[1..]).await;
    assert!(guards[1..].iter().all(Guard::is_valid));
    for guard in guards.drain(1..) {
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    client.shutdown().await;
}

/// The server sends SUNSUBSCRIBE when the slot migrates. The client subscribes again and wakes each waiter
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_resubscribe_after_their_slot_moved_and_try_once() {
    let cluster = Cluster::builder(3, 0).announce_proxies().start().await;
    load_scripts(&cluster).await;
    let holder = Client::connect(cluster.url()).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(without_polling(&cluster).await);
    }
    let name = &names("l", 1, |it| it == SLOT)[0];
    let guard = holder.lock(name).lock().lease(LONG).await.unwrap();
    let waiters: Vec<_> = waiting.iter().map(|it| waiter(&it.lock(name))).collect();
    let channel = format!("redisson_lock__channel:{{{name}}}");
    listen(&cluster.owner(SLOT).await.redis().await, &channel, 3).await;
    let tries = || super::sent(&cluster, scripts::acquire());
    // One attempt of the holder, and two of each waiter: one before and one after its subscription.
    eventually(SOON, "all attempts were sent", async || tries() >= 7).await;
    // A client repeats an attempt or a subscription without an answer, as when the machine is frozen. So one
    // of these moves has to go without a repetition.
    let mut attempts = Vec::new();
    for number in [2, 1, 0, 2, 1] {
        let to = &cluster.nodes[number];
        let source = cluster.owner(SLOT).await.redis().await;
        let target = to.redis().await;
        let (before, before_there) = (tries(), to.proxy().count(scripts::acquire()));
        let (_, took) = timed(async {
            cluster.move_slot(SLOT, to).await;
            listen(&target, &channel, 3).await;
        })
        .await;
        println!("moved, and subscribed again, in {took:?}");
        eventually(SOON, "no waiter listens at the old owner", async || {
            source.channels().await.is_empty()
        })
        .await;
        let there = || to.proxy().count(scripts::acquire()) - before_there;
        eventually(SOON, "all made an attempt", async || there() >= 3).await;
        tokio::time::sleep(ms(1500)).await;
        attempts.push((there(), tries() - before));
        if is_once(attempts[attempts.len() - 1]) {
            break;
        }
    }
    assert!(attempts.iter().copied().any(is_once), "{attempts:?}");
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    // Messages of the new owner wake them.
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let turns = waiters
        .into_iter()
        .map(|waiter| async { waiter.await.unwrap().unlock().await.unwrap() });
    let (_, took) = timed(soon("all are woken", join_all(turns))).await;
    println!("all had their turn after {took:?}");
    cluster.assert_clean().await;
    for client in waiting {
        client.shutdown().await;
    }
    holder.shutdown().await;
}

/// A lock is released while its slot migrates. Its waiter wakes at the latest when the migration is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_released_during_a_migration_is_acquired_when_the_slot_has_moved() {
    let cluster = Cluster::start(3, 0).await;
    let holder = Client::connect(cluster.url()).await.unwrap();
    let waiting = without_polling(&cluster).await;
    let name = &names("l", 1, |it| it == SLOT)[0];
    let guard = holder.lock(name).lock().lease(LONG).await.unwrap();
    let waiter = waiter(&waiting.lock(name));
    let source = cluster.owner(SLOT).await.redis().await;
    listen(&source, &format!("redisson_lock__channel:{{{name}}}"), 1).await;
    tokio::time::sleep(ms(100)).await;
    let migration = cluster.migrate(SLOT, &cluster.nodes[2]).await;
    assert!(migration.move_key(name).await);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    migration.finish().await;
    let (guard, took) = timed(soon("it is woken", waiter)).await;
    println!("woken {took:?} after the move");
    guard.unwrap().unlock().await.unwrap();
    for client in [holder, waiting] {
        client.shutdown().await;
    }
}

/// Keys are migrated one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contending_tasks_continue_while_their_slot_moves_and_returns() {
    let cluster = Cluster::start(3, 0).await;
    let locks = names("crowd", 2, |it| it == SLOT);
    let refs: Vec<&str> = locks.iter().map(String::as_str).collect();
    let crowd = Crowd::start(&cluster.url(), &refs).await;
    for to in [&cluster.nodes[2], &cluster.nodes[0], &cluster.nodes[1]] {
        let migration = cluster.migrate(SLOT, to).await;
        crowd.goes_on().await;
        for name in &locks {
            migration.move_key(name).await;
        }
        crowd.goes_on().await;
        // Keys that are created meanwhile are created at the target, so the source has none at the end.
        migration.move_keys().await;
        migration.finish().await;
        crowd.goes_on_within(WITHIN).await;
    }
    crowd.end().await;
    cluster.assert_clean().await;
}

/// Waiters are subscribed all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contending_tasks_continue_while_a_node_joins_and_takes_their_slots() {
    let mut cluster = Cluster::start(3, 0).await;
    let locks = names("crowd", 5, |_| true);
    let refs: Vec<&str> = locks.iter().map(String::as_str).collect();
    let crowd = Crowd::start(&cluster.url(), &refs).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let mut guards = Vec::new();
    for name in names("held", 30, |_| true) {
        guards.push(client.lock(&name).lock().await.unwrap());
    }
    let members = names("multi", 4, |_| true);
    let multi = MultiLock::new(members.iter().map(|name| client.lock(name)));
    let whole = multi.lock().await.unwrap();
    let joined = cluster.join().await;
    crowd.goes_on().await;
    let held = guards.iter().map(|guard| slot(guard.name()));
    let mut slots: Vec<u16> = held.collect();
    slots.extend(locks.iter().chain(&members).map(|name| slot(name)));
    slots.sort_unstable();
    slots.dedup();
    for slot in slots {
        cluster.move_slot(slot, &joined).await;
    }
    crowd.goes_on_within(WITHIN).await;
    let redis = joined.redis().await;
    assert!(whole.is_valid());
    for guard in guards {
        assert!(guard.is_valid() && redis.exists(guard.name()).await);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    assert_eq!(whole.unlock().await.unwrap(), Unlocked::Released);
    crowd.end().await;
    client.shutdown().await;
    assert!(redis.keys().await.is_empty());
    cluster.assert_clean().await;
}

/// During a migration the server refuses a command for two keys of the slot (TRYAGAIN). The multi lock is
/// acquired after the migration only, and no part of it is held before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_waits_for_the_end_of_its_slots_migration() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let mut members = names("l", 2, |it| it == SLOT);
    members.extend(cluster.names_at(&cluster.nodes[1], "l", 1).await);
    let multi = MultiLock::new(members.iter().map(|name| client.lock(name)));
    let migration = cluster.migrate(SLOT, &cluster.nodes[2]).await;
    let (answer, took) = timed(multi.try_lock().wait(ms(700)).into_future()).await;
    println!("{answer:?} after {took:?}");
    assert!(!matches!(answer, Ok(Some(_))) && took < SOON);
    let waiting = tokio::spawn({
        let multi = multi.clone();
        async move { multi.try_lock().wait(LONG).owner(&Owner::new()).await }
    });
    tokio::time::sleep(ms(500)).await;
    assert!(!waiting.is_finished());
    migration.move_keys().await;
    migration.finish().await;
    let guard = soon("it is acquired", waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    for node in &cluster.nodes {
        let redis = node.redis().await;
        eventually(SOON, "nothing is left", async || {
            redis.keys().await.is_empty()
        })
        .await;
    }
    client.shutdown().await;
}

/// RW2: the lock was migrated, and the timeout keys of two readers were not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_timeout_key_has_not_arrived_yet_keeps_the_lock() {
    let cluster = Cluster::start(3, 0).await;
    let (client, waits) = (
        Client::connect(cluster.url()).await.unwrap(),
        without_polling(&cluster).await,
    );
    let name = &names("rw", 1, |it| it == SLOT)[0];
    let rw = client.read_write_lock(name);
    let read = |rw: &ReadWriteLock| {
        let request = rw.read().lock().owner(&Owner::new()).lease(LONG);
        request.into_future()
    };
    let (source, to) = (cluster.owner(SLOT).await.redis().await, &cluster.nodes[2]);
    let (stays, mut upgrades) = (read(&rw).await.unwrap(), read(&rw).await.unwrap());
    let before = source.keys().await;
    let ends = read(&rw).await.unwrap();
    let mut added = source.keys().await;
    added.retain(|key| !before.contains(key));
    // With its announcement all keys of an unlock and of an upgrade exist, so the new node runs the
    // scripts.
    let writer = waits.read_write_lock(name).write().lock();
    let writer = tokio::spawn(writer.into_future());
    let announcement = format!("lockdog_writer:{{{name}}}");
    eventually(SOON, "it is announced", async || {
        source.exists(&announcement).await
    })
    .await;
    let migration = cluster.migrate(SLOT, to).await;
    for key in [&announcement, name].into_iter().chain(&added) {
        assert!(migration.move_key(key).await, "{key}");
    }
    assert_eq!(ends.unlock().await.unwrap(), Unlocked::Released);
    let fields: usize = to.asking(&["HLEN", name]).await;
    assert_eq!(fields, 3, "the mode and two readers");
    assert_eq!(rw.holders().await.unwrap().len(), 2);
    let deadline = Instant::now() + SOON;
    loop {
        let upgraded = upgrades.upgrade().wait(ms(2_000)).await;
        let refused = upgraded.expect_err("another one reads");
        // On a busy machine the last attempt may have no answer.
        let is_late = refused.error().is_some_and(Error::is_timeout);
        let is_refused = refused.error().is_none();
        assert!(
            is_refused || is_late && Instant::now() < deadline,
            "{refused}"
        );
        upgrades = refused.into_guard().expect("it still reads");
        if is_refused {
            break;
        }
    }
    eventually(SOON, "it withdrew its announcement there", async || {
        let there: usize = to.asking(&["EXISTS", &announcement]).await;
        there == 0
    })
    .await;
    assert!(stays.is_valid() && upgrades.is_valid());
    migration.move_keys().await;
    migration.finish().await;
    for guard in [stays, upgrades] {
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    let writes = soon("it writes", writer).await.unwrap().unwrap();
    writes.unlock().await.unwrap();
    cluster.assert_clean().await;
    for client in [client, waits] {
        client.shutdown().await;
    }
}

/// Whether each of three waiters made one attempt at the new owner of the slot. The old owner may have redirected it.
fn is_once((there, in_all): (usize, usize)) -> bool {
    there == 3 && in_all <= 6
}

/// Waits until this number of connections is subscribed to the channel at this server.
async fn listen(redis: &Redis, channel: &str, n: u64) {
    let sharded = redis.try_cmd(&["PUBSUB", "SHARDNUMSUB"]).await.is_ok();
    let count = if sharded { "SHARDNUMSUB" } else { "NUMSUB" };
    eventually(SOON, "all listen", async || {
        let (_, subscribed): (String, u64) = redis.ask(&["PUBSUB", count, channel]).await;
        subscribed == n
    })
    .await;
}

/// How soon waiters get the lock.
const WITHIN: Duration = Duration::from_secs(20);
