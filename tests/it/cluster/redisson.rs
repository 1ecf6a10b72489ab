//! Redisson clients on the same cluster.

use std::future::IntoFuture;

use lockdog::{Client, Unlocked};

use super::{LONG, SOON, ms, soon, without_polling};
use crate::support::cluster::slot;
use crate::support::redisson::Redisson;
use crate::support::{Cluster, eventually, timed};

/// Sharded messages of each side wake the waiters of the other, before and after failovers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_pass_between_redisson_and_lockdog_before_and_after_failovers() {
    let cluster = Cluster::that_elects(3, 1).await;
    let java = Redisson::start(&cluster.url()).await;
    // No renewal is due before a failover is over.
    let client = Client::builder().url(cluster.url()).watchdog_lease(LONG);
    let client = client.poll_cap(LONG).build().await.unwrap();
    let thread = java.thread("t1");
    let name = &cluster.names_at(&cluster.nodes[0], "orders", 1).await[0];
    let lock = client.lock(name);

    for round in ["well", "failed over", "killed"] {
        println!("{round}");
        let guard = lock.lock().await.unwrap();
        assert!(thread.is_locked(name).await && !thread.try_lock(name).await);
        let waiting = thread.start_lock(name);
        let old = cluster.owner_of(name).await;
        listens(&cluster, name).await;
        match round {
            "failed over" => drop(cluster.fail_over(slot(name)).await),
            "killed" => {
                old.server.kill();
                cluster.await_switch(slot(name), &old).await;
            }
            _ => {}
        }
        eventually(SOON * 3, "the waiter listens, or failed", async || {
            waiting.is_finished() || has_listener(&cluster, name).await
        })
        .await;
        tokio::time::sleep(ms(100)).await;
        let has_ended = waiting.is_finished();
        assert!(guard.is_valid());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        let (got, took) = timed(soon("Java gets it", waiting.answer())).await;
        println!("Java was woken after {took:?}");
        assert!(!has_ended || got.result.is_err(), "two have it");
        if let Err(error) = got.result {
            // A Redisson waiter may fail while its master is replaced, with an exception that depends on
            // the command it had sent. Its caller retries.
            let is_of_redis = error.class.starts_with("org.redisson.client.Redis");
            assert!(round == "killed" && is_of_redis, "{round}: {error:?}");
            soon("Java gets it", thread.lock(name)).await;
        }

        assert!(lock.is_locked().await.unwrap());
        assert!(lock.try_lock().await.unwrap().is_none());
        let waiting = tokio::spawn(lock.lock().into_future());
        listens(&cluster, name).await;
        tokio::time::sleep(ms(100)).await;
        assert!(!waiting.is_finished(), "two have it");
        thread.unlock(name).await.expect("Java holds it");
        let (guard, took) = timed(soon("we get it", waiting)).await;
        println!("we were woken after {took:?}");
        guard.unwrap().unwrap().unlock().await.unwrap();
    }
    client.shutdown().await;
    java.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_killed_redisson_is_acquired_when_its_lease_ends() {
    let cluster = Cluster::start(3, 0).await;
    let lease = ms(6000);
    let java = Redisson::builder(&cluster.url()).watchdog_timeout(lease);
    let java = java.own_jvm().start().await;
    let client = without_polling(&cluster).await;
    java.thread("t1").lock("orders").await;
    let waiting = tokio::spawn(client.lock("orders").lock().into_future());
    tokio::time::sleep(lease + ms(1000)).await;
    assert!(!waiting.is_finished(), "it is renewed");
    java.kill();
    let (guard, took) = timed(soon("its lease is over", waiting)).await;
    println!("had after {took:?}");
    guard.unwrap().unwrap().unlock().await.unwrap();
    assert!(took < lease + SOON);
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_pass_between_redisson_and_lockdog_after_their_slot_moved() {
    let cluster = Cluster::start(3, 0).await;
    let java = Redisson::start(&cluster.url()).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let thread = java.thread("t1");
    let name = &cluster.names_at(&cluster.nodes[0], "orders", 1).await[0];
    let lock = client.lock(name);

    let guard = lock.lock().await.unwrap();
    cluster.move_slot(slot(name), &cluster.nodes[1]).await;
    // Redisson may throw until it has refreshed its topology.
    eventually(SOON, "Java finds it at the new owner", async || {
        let tried = thread.start_try_lock_for(name, ms(1), None).answer().await;
        tried.result.inspect(|locked| assert!(!locked)).is_ok()
    })
    .await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(thread.try_lock(name).await);
    let waiting = tokio::spawn(lock.lock().into_future());
    tokio::time::sleep(ms(100)).await;
    cluster.move_slot(slot(name), &cluster.nodes[2]).await;
    eventually(SOON, "Java finds it at the new owner", async || {
        let tried = thread.start_try_lock_for(name, ms(1), None).answer().await;
        tried.result.inspect(|again| assert!(again)).is_ok()
    })
    .await;
    thread.unlock(name).await.expect("Java holds it twice");
    assert!(!waiting.is_finished(), "two have it");
    thread.unlock(name).await.expect("Java holds it");
    let guard = soon("we get it", waiting).await.unwrap().unwrap();
    assert!(!thread.try_lock(name).await);
    guard.unlock().await.unwrap();
    client.shutdown().await;
    java.shutdown().await;
}

/// A waiter is subscribed at the master of the lock's slot.
async fn listens(cluster: &Cluster, name: &str) {
    eventually(SOON, "the waiter listens", async || {
        has_listener(cluster, name).await
    })
    .await;
}

async fn has_listener(cluster: &Cluster, name: &str) -> bool {
    let redis = cluster.owner_of(name).await.redis().await;
    !redis.channels().await.is_empty()
}
