//! A future dropped at its n-th poll, for every n, leaves nothing behind.

use std::collections::BTreeSet;
use std::time::Duration;

use lockdog::{Client, Error, Lock};

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME, assert_recovered, load_scripts, take};
use crate::faults::poll::{LINGERS, poll_n_times};
use crate::faults::scripts;
use crate::support::{Direction, Proxy, RedisServer, eventually};

#[tokio::test]
async fn a_dropped_lock_leaves_nothing() {
    let stages = &["acquire"];
    everywhere(stages, async |fixture, n, linger| {
        poll_n_times(fixture.lock().lock().into_future(), n, linger)
            .await
            .map(|guard| drop(guard.expect("it is free")))
    })
    .await;
}

#[tokio::test]
async fn a_dropped_try_lock_leaves_nothing() {
    let stages = &["acquire"];
    everywhere(stages, async |fixture, n, linger| {
        poll_n_times(fixture.lock().try_lock().into_future(), n, linger)
            .await
            .map(|guard| drop(guard.expect("nothing is wrong").expect("it is free")))
    })
    .await;
}

#[tokio::test]
async fn a_dropped_wait_leaves_nothing() {
    let stages = &["acquire", "acquire subscribe", "acquire subscribe acquire"];
    everywhere(stages, async |fixture, n, linger| {
        let others = take(&fixture.others_lock().await).await;
        let wait = fixture.lock().try_lock().wait(Duration::from_secs(20));
        let release = async {
            tokio::time::sleep(Duration::from_millis(40)).await;
            others.unlock().await.expect("it is held");
        };
        let (got, ()) = tokio::join!(poll_n_times(wait.into_future(), n, linger), release);
        got.map(|guard| drop(guard.expect("nothing is wrong").expect("it came free")))
    })
    .await;
}

#[tokio::test]
async fn a_dropped_nested_lock_leaves_the_outer_hold_unchanged() {
    // With and without the nested call's command. The other commands are the test's own.
    let stages = &[
        "acquire acquire acquire unlock unlock",
        "acquire acquire unlock unlock",
    ];
    everywhere(stages, async |fixture, n, linger| {
        let outer = fixture.lock().lock().await.unwrap();
        let done = poll_n_times(fixture.lock().lock().into_future(), n, linger)
            .await
            .map(|inner| drop(inner.expect("it is ours")));
        assert!(outer.is_valid());
        assert_eq!(outer.hold_count(), 1);
        let next = fixture.lock().lock().await.unwrap();
        // By then the earlier commands of the hold are done.
        assert_eq!(fixture.counts().await, ["2"]);
        next.unlock().await.unwrap();
        assert_eq!(fixture.counts().await, ["1"]);
        outer.unlock().await.unwrap();
        done
    })
    .await;
}

#[tokio::test]
async fn a_dropped_unlock_releases_the_lock() {
    let stages = &["acquire unlock"];
    everywhere(stages, async |fixture, n, linger| {
        let guard = fixture.lock().lock().await.unwrap();
        poll_n_times(guard.unlock(), n, linger)
            .await
            .map(|unlocked| assert!(unlocked.is_ok(), "{unlocked:?}"))
    })
    .await;
    let stages = &["acquire acquire unlock unlock"];
    everywhere(stages, async |fixture, n, linger| {
        let outer = fixture.lock().lock().await.unwrap();
        let inner = fixture.lock().lock().await.unwrap();
        let done = poll_n_times(inner.unlock(), n, linger)
            .await
            .map(|unlocked| assert!(unlocked.is_ok(), "{unlocked:?}"));
        assert_eq!(outer.hold_count(), 1);
        outer.unlock().await.unwrap();
        done
    })
    .await;
}

#[tokio::test]
async fn a_dropped_unlock_of_a_forgotten_hold_releases_the_lock() {
    let stages = &["acquire unlock"];
    everywhere(stages, async |fixture, n, linger| {
        fixture.lock().lock().await.unwrap().forget();
        poll_n_times(fixture.lock().unlock().into_future(), n, linger)
            .await
            .map(|unlocked| assert!(unlocked.is_ok(), "{unlocked:?}"))
    })
    .await;
}

#[tokio::test]
async fn a_dropped_with_releases_the_lock_and_drops_the_work() {
    let stages = &["acquire", "acquire unlock"];
    everywhere(stages, async |fixture, n, linger| {
        let work = async |held: lockdog::Held| {
            assert!(held.is_valid());
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        poll_n_times(fixture.lock().with(work), n, linger)
            .await
            .map(|done| done.expect("it was held throughout"))
    })
    .await;
}

#[tokio::test]
async fn a_dropped_force_unlock_leaves_the_lock_held_or_free() {
    let stages = &["hgetall", "hgetall force_unlock"];
    everywhere(stages, async |fixture, n, linger| {
        let others = take(&fixture.others_lock().await).await;
        let done = poll_n_times(fixture.lock().force_unlock().into_future(), n, linger)
            .await
            .map(|freed| assert!(freed.expect("nothing is wrong")));
        drop(others);
        done
    })
    .await;
}

#[tokio::test]
async fn a_dropped_query_does_not_disturb_other_calls() {
    // Dropped after the first query, and after the last.
    let stages = &[
        "acquire exists hget hgetall pttl unlock",
        "acquire exists hget hget pttl hgetall pttl hget hgetall pttl unlock",
    ];
    everywhere(stages, async |fixture, n, linger| {
        let lock = fixture.lock();
        let guard = lock.lock().await.unwrap();
        let questions = async {
            assert!(lock.is_locked().await.unwrap());
            assert!(lock.is_held().await.unwrap());
            assert_eq!(lock.hold_count().await.unwrap(), 1);
            assert!(lock.remaining_ttl().await.unwrap().is_some());
            assert!(lock.holder().await.unwrap().is_some());
        };
        let done = poll_n_times(questions, n, linger).await;
        // Some answers were not read, and later answers still belong to their queries.
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        assert!(lock.holder().await.unwrap().unwrap().ours);
        guard.unlock().await.unwrap();
        done
    })
    .await;
}

#[tokio::test]
async fn a_dropped_shutdown_releases_every_hold() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let redis = server.redis().await;
    load_scripts(&redis).await;
    let others = Client::connect(server.url()).await.unwrap();
    let (mut stages, mut is_dropped) = (BTreeSet::new(), false);
    for linger in LINGERS {
        for n in 1.. {
            let client = Client::connect(proxy.url()).await.unwrap();
            let names = [NAME, "orders:43", "orders:44"];
            let mut guards = Vec::new();
            for name in names {
                guards.push(client.lock(name).lock().await.unwrap());
            }
            let before = proxy.commands().len();
            let done = poll_n_times(client.shutdown(), n, linger).await;
            stages.insert(sent(&proxy, before, &["client", "info"]));
            let refused = client.lock(NAME).lock().await.unwrap_err();
            assert!(matches!(refused, Error::Closed), "{refused}");
            assert!(guards.iter().all(|guard| !guard.is_valid()));
            let mut locks: Vec<Lock> = names.iter().map(|name| others.lock(name)).collect();
            for lock in &mut locks {
                take(lock).await.unlock().await.unwrap();
            }
            assert_recovered(&client, &redis, &others.lock(NAME)).await;
            if done.is_some() {
                // The client's own thread settles, perhaps during the first poll.
                break;
            }
            is_dropped = true;
        }
    }
    assert!(is_dropped, "it waits for something");
    Stages(stages).assert_seen("settle settle settle");
}

#[tokio::test]
async fn a_dropped_connect_leaves_nothing() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let redis = server.redis().await;
    let mut stages = BTreeSet::new();
    // A task connects, so the future's polls are not its stages. The time that it had decides.
    proxy.delay(Direction::ToClient, Duration::from_millis(100));
    let left = poll_n_times(Client::connect(proxy.url()), 1, Duration::ZERO).await;
    assert!(left.is_none(), "it waits for something");
    stages.insert(sent(&proxy, 0, &[]));
    for tenths in 0.. {
        assert!(tenths < 1000, "it is not finished in ten seconds");
        let before = proxy.commands().len();
        let patience = Duration::from_millis(10 * tenths);
        let done = tokio::time::timeout(patience, Client::connect(proxy.url()))
            .await
            .map(|client| drop(client.expect("the server is reachable")));
        stages.insert(sent(&proxy, before, &[]));
        // The test's own connection stays.
        eventually(SOON, "no connection is left", async || {
            redis.clients().await.len() == 1
        })
        .await;
        if done.is_ok() {
            break;
        }
    }
    let stages = Stages(stages);
    // Before the connection was open, after redis-rs named the connection, and after the client asked about
    // the server.
    stages.assert_seen("");
    stages.assert_seen("client client");
    stages.assert_seen("client client client client info info");
}

/// The commands that the client had sent when a future was dropped.
struct Stages(BTreeSet<String>);

impl Stages {
    fn assert_seen(&self, stage: &str) {
        assert!(self.0.contains(stage), "{stage:?} is not in {:?}", self.0);
    }
}

/// Runs `call` with every number of polls up to its end, and checks each time that nothing is left. On a
/// busy machine a sweep may miss one of the stages, so it is repeated.
async fn everywhere(stages: &[&str], call: impl AsyncFn(&Fixture, usize, Duration) -> Option<()>) {
    let fixture = Fixture::start().await;
    let mut seen = BTreeSet::new();
    for _ in 0..SWEEPS {
        for linger in LINGERS {
            for n in 1.. {
                assert!(n < 100, "it is polled again and again");
                let before = fixture.proxy.commands().len();
                let done = call(&fixture, n, linger).await;
                seen.insert(stages_of(&fixture, before));
                fixture.assert_recovered().await;
                if done.is_some() {
                    assert!(n > 1, "it waits for something");
                    break;
                }
            }
        }
        if stages.iter().all(|stage| seen.contains(*stage)) {
            return;
        }
    }
    panic!("not all of {stages:?} are in {seen:?}");
}

const SWEEPS: usize = 5;

/// Without the commands of the background, and without opening connections.
fn stages_of(fixture: &Fixture, before: usize) -> String {
    let background = ["client", "info", "settle", "unsubscribe", "hello"];
    sent(&fixture.proxy, before, &background)
}

fn sent(proxy: &Proxy, before: usize, without: &[&str]) -> String {
    let commands = proxy.commands();
    let sent = commands[before..].iter();
    let mut names: Vec<String> = sent.map(|seen| scripts::name(&seen.args)).collect();
    names.retain(|name| !without.contains(&&**name));
    // The channels of the lock and of its waiting list are subscribed by one command or by two.
    names.dedup_by(|later, name| later == name && name == "subscribe");
    names.join(" ")
}
