//! One WAIT for many grants, which delays no other command.

use std::time::Duration;

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::{Client, ClientBuilder, Owner};
use tokio::task::JoinSet;

use super::{SLACK, SOON, build, requiring};
use crate::support::{Cell, Direction, Proxy, Replicated, eventually, timed};
use crate::turn::turn;

/// A WAIT covers everything that was granted before it was sent, so it does not stop other callers'
/// commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_a_wait_command() {
    let all = Replicated::start(1).await;
    // As if server and replica were a millisecond away.
    let proxy = Proxy::start(&all.master).await;
    proxy.delay(Direction::ToServer, Duration::from_millis(1));
    let ack = ReplicaAck::require(Replicas::Count(1)).timeout(SOON);
    let builder = Client::builder().url(proxy.url()).replica_ack(ack);
    let client = build(builder.command_timeout(SOON)).await;
    let mut tasks = JoinSet::new();
    for task in 0..64 {
        let lock = client.lock(format!("l{task}"));
        tasks.spawn(async move {
            for _ in 0..20 {
                turn(&lock).await;
            }
        });
    }
    tasks.join_all().await;
    let [waits, connections] = [
        all.calls(["wait"]).await[0],
        u64::try_from(proxy.connections()).unwrap(),
    ];
    assert!(waits < 64 * 20 / 4, "{waits} waits for 1280 acquires");
    // The callers', the watchdog's if it had to do anything, and this one.
    assert!(connections <= 3, "{connections} connections");
    client.shutdown().await;
    all.redis.assert_clean().await;
}

/// Exclusion holds for contenders that wait for replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_exclude_each_other() {
    let all = Replicated::start(1).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for client in 0..3 {
        let client = match client {
            0 => build(Client::builder().url(all.master.url())).await,
            _ => requiring(&all, Replicas::Count(1)).await,
        };
        for _ in 0..4 {
            let (lock, cell) = (client.lock("l"), cell.clone());
            tasks.spawn(async move {
                for _ in 0..10 {
                    let guard = lock.try_lock().wait(SOON).await.unwrap().unwrap();
                    cell.bump_at_once().await;
                    guard.unlock().await.unwrap();
                }
            });
        }
    }
    tasks.join_all().await;
    cell.assert_exclusive(120);
    all.redis.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pending_wait_command_does_not_delay_other_commands() {
    let all = Replicated::start(1).await;
    let ack = ReplicaAck::require(Replicas::Count(1)).timeout(SOON);
    let builder = Client::builder().url(all.master.url()).replica_ack(ack);
    let client = build(builder.command_timeout(SOON)).await;
    let held = client.lock("held").lock().await.unwrap();
    let before = all.calls(["wait"]).await[0];
    all.replicas[0].pause();
    let request = client.lock("l").lock().owner(&Owner::new());
    let waiting = tokio::spawn(async move { request.await });
    eventually(SOON, "it is waited for", async || {
        all.calls(["wait"]).await[0] > before
    })
    .await;
    let others = async {
        assert!(client.lock("l").is_locked().await.unwrap());
        let again = client.lock("held").lock().await.unwrap();
        again.unlock().await.unwrap();
        held.unlock().await.unwrap();
    };
    let ((), took) = timed(others).await;
    assert!(took < SLACK && !waiting.is_finished(), "{took:?}");
    all.replicas[0].resume();
    waiting.await.unwrap().unwrap().unlock().await.unwrap();
}

/// The future of one caller drives the WAIT of all. That future and its runtime may end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_wait_continues_when_its_first_caller_is_gone() {
    let all = Replicated::start(1).await;
    let builder = Client::builder().url(all.master.url());
    goes_on_without_its_first_caller(&all, builder).await;
}

/// The connections of a pool have a timer for each answer.
#[cfg(feature = "deadpool")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_wait_on_a_pool_continues_when_its_first_caller_is_gone() {
    let all = Replicated::start(1).await;
    let config = deadpool_redis::Config::from_url(all.master.url());
    let builder = Client::builder().pool(config.create_pool(None).unwrap());
    goes_on_without_its_first_caller(&all, builder).await;
}

async fn goes_on_without_its_first_caller(all: &Replicated, builder: ClientBuilder) {
    let ack = ReplicaAck::require(Replicas::Count(1)).timeout(SOON);
    let client = build(builder.replica_ack(ack).command_timeout(SOON)).await;
    turn(&client.lock("l")).await;
    let before = all.calls(["wait"]).await[0];
    all.replicas[0].pause();
    let elsewhere = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let first = client.lock("first");
    elsewhere.spawn(async move { first.lock().await });
    eventually(SOON, "the first is waited for", async || {
        all.calls(["wait"]).await[0] > before
    })
    .await;
    let mut others = JoinSet::new();
    for other in 0..3 {
        let lock = client.lock(format!("l{other}"));
        others.spawn(async move { lock.lock().await });
    }
    eventually(SOON, "the others were granted", async || {
        all.redis.keys().await.len() == 4
    })
    .await;
    elsewhere.shutdown_background();
    eventually(SOON, "the first is undone", async || {
        !all.redis.exists("first").await
    })
    .await;
    all.replicas[0].resume();
    for guard in others.join_all().await {
        guard.unwrap().unlock().await.unwrap();
    }
}
