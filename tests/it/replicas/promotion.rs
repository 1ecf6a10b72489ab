//! A replica becomes the master without a granted lock: the behaviour of each setting.

use std::time::Instant;

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::{Client, RedLock};

use super::{SOON, acquired, build, ms, not_replicated};
use crate::support::{Proxy, RedisServer, Replicated, Sentinels, eventually, until_ok};

/// A replica that loses its master and is promoted at the address that clients use.
struct Promotion {
    all: Replicated,
    address: Proxy,
}

impl Promotion {
    async fn start() -> Self {
        let all = Replicated::start(1).await;
        let address = Proxy::start(&all.master).await;
        Self { all, address }
    }

    async fn client(&self, ack: ReplicaAck) -> Client {
        build(Client::builder().url(self.address.url()).replica_ack(ack)).await
    }

    async fn cut_off(&self) {
        self.all.cut_off(0).await;
    }

    async fn promote(&mut self) {
        let replica = self.all.replicas[0].redis().await;
        replica.cmd(&["REPLICAOF", "NO", "ONE"]).await;
        self.address.aim(&self.all.replicas[0]);
        self.address.cut_all();
    }
}

const REQUIRED: ReplicaAck = ReplicaAck::require(Replicas::Count(1)).timeout(super::TIMEOUT);

/// With `Off` a double grant is possible; this test documents it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_acknowledgement_an_unsynced_promotion_grants_a_lock_twice() {
    let mut stage = Promotion::start().await;
    let client = stage.client(ReplicaAck::Off).await;
    let other = stage.client(ReplicaAck::Off).await;
    stage.cut_off().await;
    let first = client.lock("l").lock().lease(SOON).await.unwrap();
    stage.promote().await;
    let second = other.lock("l").try_lock().wait(SOON).await.unwrap();
    let second = second.expect("the new master has no holder");
    // Both guards are valid: two holders.
    assert!(first.is_valid() && second.is_valid());
    second.unlock().await.unwrap();
    // The first client detects the promotion at its next command.
    assert!(!client.lock("l").is_locked().await.unwrap());
    assert!(first.unlock().await.unwrap_err().is_lost());
}

/// With `Require` the acquire fails and leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_required_acknowledgement_no_granted_lock_is_lost_by_an_unsynced_promotion() {
    let mut stage = Promotion::start().await;
    let client = stage.client(REQUIRED).await;
    let other = stage.client(ReplicaAck::Off).await;
    let lock = client.lock("l");
    acquired(&lock).await.unlock().await.unwrap();
    stage.cut_off().await;
    let failed = not_replicated(lock.try_lock().await);
    assert!(failed.is_undone() && !stage.all.redis.exists("l").await);
    stage.promote().await;
    let second = other.lock("l").try_lock().wait(SOON).await.unwrap();
    let second = second.expect("no owner holds it");
    assert!(!lock.is_held().await.unwrap());
    second.unlock().await.unwrap();
    // A lock that was acknowledged before a promotion exists after it.
    let mut stage = Promotion::start().await;
    let client = stage.client(REQUIRED).await;
    let other = stage.client(ReplicaAck::Off).await;
    let first = acquired(&client.lock("l")).await;
    stage.cut_off().await;
    stage.promote().await;
    let second = async || other.lock("l").try_lock().wait(ms(1_500)).await;
    let second = until_ok(SOON, second).await;
    assert!(second.is_none(), "the new master has the holder");
    first.unlock().await.unwrap();
}

/// A quorum tolerates an instance that lost the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_red_lock_keeps_exclusion_after_an_unsynced_promotion_of_one_instance() {
    let mut stage = Promotion::start().await;
    let (second, third) = tokio::join!(RedisServer::start(), RedisServer::start());
    let urls = [stage.address.url().to_owned(), second.url(), third.url()];
    let lock = async || {
        let mut locks = Vec::new();
        for url in &urls {
            locks.push(build(Client::builder().url(url)).await.lock("l"));
        }
        RedLock::new(locks).fenced()
    };
    let (ours, others) = (lock().await, lock().await);
    stage.cut_off().await;
    let guard = ours.lock().await.unwrap();
    eventually(SOON, "all have it", async || guard.margin() == 1).await;
    let token = guard.token().expect("it is fenced");
    stage.promote().await;
    assert!(!stage.all.replicas[0].redis().await.exists("l").await);
    eventually(SOON, "a quorum answers that it is busy", async || {
        match others.try_lock().wait(ms(1500)).await {
            Ok(busy) => busy.is_none(),
            // On a busy machine the answers may come later.
            Err(error) => {
                assert!(error.is_retriable(), "{error:?}");
                false
            }
        }
    })
    .await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    // The tokens of later holders are larger, whichever server lost its data.
    let next = others.lock().await.unwrap();
    assert!(next.token().expect("it is fenced") > token);
    next.unlock().await.unwrap();
}

/// A lock on all replicas survives the death of its master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledged_lock_is_on_the_master_that_sentinels_promote() {
    let all = Sentinels::start().await;
    let ack = ReplicaAck::require(Replicas::All).timeout(ms(3000));
    let builder = Client::builder().url(all.url()).replica_ack(ack);
    // The test is shorter than a third of this lease, so no regular renewal comes.
    let client = build(builder.watchdog_lease(SOON * 10)).await;
    let guard = acquired(&client.lock("l")).await;
    let before = Instant::now() + guard.remaining();
    all.servers[0].kill();
    let master = all.await_switch_from(all.servers[0].port()).await;
    let redis = master.redis().await;
    assert!(redis.exists("l").await);
    eventually(SOON, "it is extended there", async || {
        Instant::now() + guard.remaining() > before + ms(100)
    })
    .await;
    // New locks wait for the remaining replica when it replicates.
    let lock = client.lock("m");
    let next = lock.try_lock().wait(SOON * 4).await.unwrap().unwrap();
    let left = all.servers.iter().skip(1);
    let mut there = 0;
    for server in left {
        there += usize::from(server.redis().await.exists("m").await);
    }
    assert_eq!(there, 2);
    next.unlock().await.unwrap();
    guard.unlock().await.unwrap();
}

/// One replica of two became a master, and the other one still replicates the old master: it
/// acknowledges writes that the new master never gets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_of_a_replaced_master_does_not_count_as_acknowledgement() {
    let all = Sentinels::start().await;
    let client = build(Client::builder().url(all.url()).replica_ack(REQUIRED)).await;
    let lock = client.lock("l");
    acquired(&lock).await.unlock().await.unwrap();
    for sentinel in &all.sentinels {
        sentinel.pause();
    }
    let promoted = all.servers[1].redis().await;
    promoted.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    let old = all.servers[0].redis().await;
    eventually(SOON, "one replica is left", async || {
        let info: String = old.ask(&["INFO", "replication"]).await;
        info.contains("connected_slaves:1")
    })
    .await;
    let failed = not_replicated(lock.try_lock().await);
    assert!(failed.to_string().contains("fewer replicas"), "{failed}");
    assert!(failed.is_undone() && !old.exists("l").await);
    // The sentinels still name this master, with one replica or with two.
    for sentinel in &all.sentinels {
        sentinel.resume();
    }
    eventually(SOON * 4, "locks are granted again", async || {
        match lock.try_lock().await {
            Ok(guard) => guard.expect("it is free").unlock().await.is_ok(),
            Err(error) => {
                assert!(error.is_retriable(), "{error:?}");
                false
            }
        }
    })
    .await;
    client.shutdown().await;
}
