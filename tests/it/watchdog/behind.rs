//! A service that fails over behind one address. The old master stays as a replica, and closes no connection.

use super::{LEASE, SAFETY, builder, connected, is_renewal};
use crate::support::prelude::LONG;
use crate::support::{Proxy, Redis, Replicated, eventually};
use crate::turn::renewed;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_renewed_at_the_master_that_took_over() {
    let all = Replicated::start(1).await;
    let address = Proxy::start(&all.master).await;
    let client = connected(builder(address.url()).watchdog_lease(LEASE * 2)).await;
    let guard = client.lock("a").lock().await.unwrap();
    let renewing = || {
        let sent = address.commands();
        let renewals = sent.iter().filter(|it| is_renewal(&it.args));
        renewals.map(|it| it.connection).collect::<Vec<u64>>()
    };
    renewed(&[&guard]).await;
    let last = *renewing().last().expect("it was renewed");
    let master = fail_over(&all, &address, "a").await;
    renewed(&[&guard]).await;
    assert_ne!(renewing().last(), Some(&last));
    assert!(guard.is_valid() && master.exists("a").await);
    guard.unlock().await.unwrap();
    client.shutdown().await;
    master.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_lock_is_released_at_the_master_that_took_over() {
    let all = Replicated::start(1).await;
    let address = Proxy::start(&all.master).await;
    let client = connected(builder(address.url())).await;
    // The client's own thread opens its connection for this release.
    drop(client.lock("before").lock().lease(LONG).await.unwrap());
    all.redis.eventually_gone("before").await;
    let guard = client.lock("a").lock().lease(LONG).await.unwrap();
    let master = fail_over(&all, &address, "a").await;
    drop(guard);
    master.eventually_gone("a").await;
    client.shutdown().await;
    master.assert_clean().await;
}

/// The replica, which has this lock, becomes the master at the address of the clients, and the old master follows it.
async fn fail_over(all: &Replicated, address: &Proxy, lock: &str) -> Redis {
    let replica = &all.replicas[0];
    let master = replica.redis().await;
    eventually(SAFETY, "the replica has the lock", async || {
        master.exists(lock).await
    })
    .await;
    master.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    address.aim_at(replica.port());
    let port = replica.port().to_string();
    all.redis.cmd(&["REPLICAOF", "127.0.0.1", &port]).await;
    let info: String = all.redis.ask(&["INFO", "replication"]).await;
    assert!(info.contains("role:slave"), "{info}");
    assert!(address.connections() >= 2, "they stay open");
    master
}
