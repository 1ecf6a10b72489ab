//! Messages that do not arrive make waits slower, by the poll cap at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockdog::{Client, Guard, Lock};
use tokio::task::JoinHandle;

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME, take};
use crate::support::{Action, RedisServer, eventually, named};

/// Design: invariant 8.
#[tokio::test]
async fn without_permission_to_subscribe_waits_are_only_slower() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis
        .cmd(&[
            "ACL",
            "SETUSER",
            "mute",
            "on",
            ">pw",
            "~*",
            "+@all",
            "-subscribe",
            "resetchannels",
        ])
        .await;
    let url = server.url().replace("redis://", "redis://mute:pw@");
    let client = Client::builder().url(url).poll_cap(CAP).build().await;
    let lock = client.unwrap().lock(NAME);
    let refused = redis.errorstats().await.get("NOPERM").copied();
    let others = Client::connect(server.url()).await.unwrap().lock(NAME);
    for _ in 0..3 {
        let held = take(&others).await;
        let waiting = wait_for(&lock);
        let again = wait_for(&lock);
        eventually(SOON, "the subscription is refused", async || {
            redis.errorstats().await.get("NOPERM").copied() > refused
        })
        .await;
        tokio::time::sleep(CAP).await;
        assert!(!waiting.is_finished() && !again.is_finished());
        held.unlock().await.unwrap();
        drop(waiting.await.unwrap());
        drop(again.await.unwrap());
    }
    redis.assert_clean().await;
}

/// Design: invariant 8. The runtime of the first waiter reads the messages, if it has its own threads.
#[tokio::test]
async fn the_runtime_that_reads_the_messages_may_end() {
    let fixture = Fixture::with(|client| client.poll_cap(SOON * 4)).await;
    let others = fixture.others_lock().await;
    let threads = tokio::runtime::Runtime::new().unwrap();
    for ends in [false, true] {
        let held = take(&others).await;
        let lock = fixture.lock();
        let there = threads.spawn(async move { lock.lock().await });
        eventually(SOON, "its subscription", async || {
            !fixture.redis.channels().await.is_empty()
        })
        .await;
        let here = wait_for(&fixture.lock());
        if ends {
            there.abort();
            let _cancelled = there.await;
            threads.shutdown_background();
            held.unlock().await.unwrap();
            drop(tokio::time::timeout(SOON, here).await.unwrap().unwrap());
            break;
        }
        held.unlock().await.unwrap();
        drop(tokio::time::timeout(SOON, there).await.unwrap().unwrap());
        drop(tokio::time::timeout(SOON, here).await.unwrap().unwrap());
    }
    fixture.assert_recovered().await;
}

/// Design: invariant 8.
#[tokio::test]
async fn a_subscription_killed_repeatedly_only_slows_waits() {
    let fixture = Fixture::with(|client| client.poll_cap(CAP)).await;
    let others = fixture.others_lock().await;
    let redis = fixture.redis.clone();
    let killed = Arc::new(AtomicU64::new(0));
    let count = killed.clone();
    let killer = tokio::spawn(async move {
        loop {
            let kill = ["CLIENT", "KILL", "TYPE", "pubsub"];
            count.fetch_add(redis.ask::<u64>(&kill).await, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    });
    let mut rounds = 0;
    while rounds < 5 || killed.load(Ordering::Relaxed) < 5 {
        rounds += 1;
        assert!(
            rounds < 50,
            "{} were killed",
            killed.load(Ordering::Relaxed)
        );
        let held = take(&others).await;
        let waiting = wait_for(&fixture.lock());
        tokio::time::sleep(CAP).await;
        assert!(!waiting.is_finished());
        held.unlock().await.unwrap();
        drop(waiting.await.unwrap());
    }
    killer.abort();
    fixture.assert_recovered().await;
}

/// After a reconnection every waiter queries once, because a message may have been missed.
#[tokio::test]
async fn a_message_missed_during_a_reconnect_loses_no_wake_up() {
    let fixture = Fixture::with(|client| client.poll_cap(SOON * 6)).await;
    let held = take(&fixture.others_lock().await).await;
    let waiting = wait_for(&fixture.lock());
    listening(&fixture).await;
    // The connection is killed, and the client can reconnect only after the message.
    fixture.proxy.refuse();
    let killed: u64 = fixture
        .redis
        .ask(&["CLIENT", "KILL", "TYPE", "pubsub"])
        .await;
    assert_eq!(killed, 1);
    held.unlock().await.unwrap();
    eventually(SOON, "a connection is refused", async || {
        fixture.proxy.counts().refused >= 1
    })
    .await;
    assert!(!waiting.is_finished());
    fixture.proxy.heal();
    let woken = tokio::time::timeout(SOON, waiting).await;
    drop(woken.expect("no timer could have woken it").unwrap());
    fixture.assert_recovered().await;
}

/// Only the waiter of the changed channel queries, and a new connection has no subscriptions.
#[tokio::test]
async fn a_new_connection_subscribes_to_all_channels_and_then_follows_changes() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    // No timer wakes them.
    let mine = Client::builder().url(server.url()).poll_cap(SOON * 4);
    let mine = mine.build().await.unwrap();
    let others = Client::connect(server.url()).await.unwrap();
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..MANY {
        held.push(take(&others.lock(format!("many-{number}"))).await);
        waiting.push(wait_for(&mine.lock(format!("many-{number}"))));
    }
    let subscribed = async |number: usize| {
        eventually(SOON, "all channels have a subscriber", async || {
            redis.channels().await.len() == number
        })
        .await;
    };
    subscribed(MANY).await;
    let kill = ["CLIENT", "KILL", "TYPE", "pubsub"];
    let killed: u64 = redis.ask(&kill).await;
    assert_eq!(killed, 1);
    subscribed(MANY).await;
    for left in (0..MANY).rev() {
        let (guard, waiter) = (held.pop().unwrap(), waiting.pop().unwrap());
        if left % 2 == 0 {
            waiter.abort();
        } else {
            guard.unlock().await.unwrap();
            let woken = tokio::time::timeout(SOON, waiter).await;
            drop(woken.unwrap().unwrap());
        }
        if left % 10 == 0 {
            subscribed(left).await;
        }
    }
    mine.shutdown().await;
    others.shutdown().await;
}

/// Design: invariant 8. The connection stays open and delivers nothing.
#[tokio::test]
async fn messages_lost_on_a_half_open_connection_only_slow_waits() {
    let fixture = Fixture::with(|client| client.poll_cap(CAP)).await;
    let others = fixture.others_lock().await;
    let held = take(&others).await;
    let silenced = fixture
        .proxy
        .on(named("SUBSCRIBE"), Action::DropReply)
        .always();
    let waiting = wait_for(&fixture.lock());
    silenced.wait_hits(1).await;
    listening(&fixture).await;
    let messages = fixture.redis.messages("*").await;
    tokio::time::sleep(CAP).await;
    assert!(!waiting.is_finished());
    held.unlock().await.unwrap();
    eventually(SOON, "it is published", async || {
        !messages.seen().is_empty()
    })
    .await;
    drop(waiting.await.unwrap());
    drop(messages);
    silenced.remove();
    fixture.assert_recovered().await;
}

/// Design: invariant 8. The same, but this subscription was confirmed, so only a timer wakes the waiter.
#[tokio::test]
async fn messages_lost_after_the_subscription_only_slow_waits() {
    let fixture = Fixture::with(|client| client.poll_cap(CAP).command_timeout(SOON * 3)).await;
    let others = fixture.others_lock().await;
    let held = take(&others).await;
    let waiting = wait_for(&fixture.lock());
    listening(&fixture).await;
    // The shared connection becomes silent at the reply of another channel.
    fixture.redis.cmd(&["HSET", "foreign", "holder", "1"]).await;
    let silenced = fixture.proxy.on(named("SUBSCRIBE"), Action::DropReply);
    let other = wait_for(&fixture.client.lock("foreign"));
    silenced.wait_hits(1).await;
    let messages = fixture.redis.messages("*").await;
    held.unlock().await.unwrap();
    eventually(SOON, "it is published", async || {
        !messages.seen().is_empty()
    })
    .await;
    drop(waiting.await.unwrap());
    fixture.redis.cmd(&["DEL", "foreign"]).await;
    drop(other.await.unwrap());
    drop(messages);
}

/// Waits until the server has answered the holder's acquire and two acquires of the waiter, the second of
/// which follows its subscription. From then on only a message or a timer wakes the waiter.
async fn listening(fixture: &Fixture) {
    eventually(
        SOON,
        "the waiter has subscribed and looked again",
        async || {
            let acquires = fixture.redis.commandstats().await["evalsha"];
            fixture.redis.channels().await.len() == 1 && acquires >= 3
        },
    )
    .await;
}

fn wait_for(lock: &Lock) -> JoinHandle<Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { take_within(&lock).await })
}

async fn take_within(lock: &Lock) -> Guard {
    let taken = lock.try_lock().wait(SOON * 3).await;
    taken
        .expect("a lost message is no error")
        .expect("the lock came free")
}

const MANY: usize = 100;
const CAP: Duration = Duration::from_millis(150);
