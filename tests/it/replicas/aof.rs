//! Locks that count as granted when they are written to disk.

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::{Client, Error};

use super::{SOON, acquired, build, ms, not_replicated};
use crate::support::{Binary, Replicated, eventually};

async fn client(all: &Replicated, local: bool, replicas: u32) -> Client {
    let ack = ReplicaAck::require_aof(Replicas::Count(replicas))
        .local(local)
        .timeout(ms(2500));
    build(Client::builder().url(all.master.url()).replica_ack(ack)).await
}

/// By WAITAOF, on servers that know it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_granted_lock_is_on_the_requested_disks() {
    let on_disk = |server: crate::support::server::ServerBuilder| {
        let server = server.arg("--appendonly", "yes");
        let server = server.arg("--appendfsync", "always");
        server.binary(Binary::Valkey9)
    };
    let all = Replicated::start_with(1, on_disk).await;
    for (local, replicas) in [(true, 0), (true, 1), (false, 1)] {
        let client = client(&all, local, replicas).await;
        let guard = acquired(&client.lock("l")).await;
        guard.unlock().await.unwrap();
    }
    assert!(all.calls(["waitaof"]).await[0] >= 3);
    // The client requires two replicas, and there is one. Its answer must arrive in time.
    let two = client(&all, true, 2).await;
    eventually(SOON, "one acknowledged", async || {
        let failed = not_replicated(two.lock("l").try_lock().await);
        assert!(failed.required() == 2 && failed.acknowledged() < 2);
        all.redis.eventually_gone("l").await;
        failed.acknowledged() == 1
    })
    .await;
    // The replica does not persist writes any more.
    let replica = all.replicas[0].redis().await;
    replica.cmd(&["CONFIG", "SET", "appendonly", "no"]).await;
    let failed = not_replicated(client(&all, true, 1).await.lock("l").try_lock().await);
    assert_eq!((failed.acknowledged(), failed.required()), (0, 1));
    all.redis.eventually_gone("l").await;
}

/// The client requires persistence that the master does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_without_an_append_only_file_refuses() {
    let all = Replicated::start_on(Binary::Valkey9, 0).await;
    let client = client(&all, true, 0).await;
    let error = client.lock("l").lock().await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(
        error.to_string().contains("appendonly is disabled"),
        "{error}"
    );
    assert!(!all.redis.exists("l").await);
}

/// Servers before 7.2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_waitaof_is_an_error_that_says_so() {
    for binary in [Binary::Redis7, Binary::Redis62] {
        let all = Replicated::start_on(binary, 1).await;
        let client = client(&all, false, 1).await;
        for _ in 0..3 {
            let error = client.lock("l").lock().await.unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error:?}");
            assert!(error.to_string().contains("WAITAOF"), "{error}");
            assert!(!error.is_retriable() && !all.redis.exists("l").await);
        }
    }
}

/// Since Redis 7.2, WAIT considers the writes of its own connection. Before, it considers the commands
/// of its connection. Both distinguish a replica that has a lock from one that has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_acknowledges_nothing_on_every_server() {
    for binary in [Binary::Redis62, Binary::Redis7, Binary::Valkey9] {
        let all = Replicated::start_on(binary, 1).await;
        let client = super::requiring(&all, Replicas::Count(1)).await;
        acquired(&client.lock("l")).await.unlock().await.unwrap();
        all.replicas[0].pause();
        for _ in 0..2 {
            let failed = not_replicated(client.lock("l").try_lock().await);
            assert_eq!(failed.acknowledged(), 0, "{binary:?}");
        }
        all.replicas[0].resume();
        let guard = client.lock("l").try_lock().wait(SOON).await.unwrap();
        guard.unwrap().unlock().await.unwrap();
    }
}
