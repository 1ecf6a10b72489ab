//! Redisson and lockdog read one configuration file, and exclude each other on each kind of deployment.

use std::time::Duration;

use lockdog::Client;

use super::SAFETY;
use crate::support::redisson::Redisson;
use crate::support::sentinels::MASTER;
use crate::support::{Cell, Cluster, RedisServer, Replicated, Sentinels};

#[tokio::test]
async fn both_exclude_each_other_by_one_file_of_a_cluster() {
    let cluster = Cluster::start(3, 0).await;
    let nodes = list(&cluster.urls());
    let section = format!("clusterServersConfig:\n  nodeAddresses: {nodes}\n{POOLS}");
    // Locks in different slots, so on different masters.
    exclude_each_other(&section, &["orders:1", "orders:2", "orders:3", "{a}:b"]).await;
}

#[tokio::test]
async fn both_exclude_each_other_by_one_file_of_sentinels() {
    let all = Sentinels::start().await;
    all.await_replication().await;
    let sentinels = list(&all.urls());
    let section = format!(
        "sentinelServersConfig:\n  masterName: {MASTER}\n  sentinelAddresses: {sentinels}\n{POOLS}  database: 2\n"
    );
    exclude_each_other(&section, &["orders:1"]).await;
}

#[tokio::test]
async fn both_exclude_each_other_by_one_file_of_a_master_and_its_replica() {
    let all = Replicated::start(1).await;
    let (master, replica) = (address(&all.master), address(&all.replicas[0]));
    let section = format!(
        "masterSlaveServersConfig:\n  masterAddress: {master}\n  slaveAddresses: [\"{replica}\"]\n{POOLS}"
    );
    exclude_each_other(&section, &["orders:1"]).await;
}

#[tokio::test]
async fn both_exclude_each_other_by_one_file_of_a_replicated_server() {
    let all = Replicated::start(1).await;
    let master = address(&all.master);
    let section = format!("replicatedServersConfig:\n  nodeAddresses: [\"{master}\"]\n{POOLS}");
    exclude_each_other(&section, &["orders:1"]).await;
}

/// Each side finds a lock of the other busy, and then both change a cell under it.
async fn exclude_each_other(section: &str, names: &[&str]) {
    let file = format!("{section}nettyThreads: 4\nlockWatchdogTimeout: 20000\n");
    let config = lockdog_config::from_str(&file).expect("both read it");
    let ours = config.builder.build().await.expect("the servers are there");
    let redisson = Redisson::of_file(&file).start().await;
    for name in names {
        find_it_busy(&ours, &redisson, name).await;
        contend(&ours, &redisson, name).await;
    }
    redisson.shutdown().await;
    ours.shutdown().await;
}

async fn find_it_busy(ours: &Client, redisson: &Redisson, name: &str) {
    let (lock, java) = (ours.lock(name), redisson.thread("main"));
    java.lock(name).await;
    assert!(lock.try_lock().await.unwrap().is_none(), "Java has {name}");
    let holder = lock.holder().await.unwrap().expect("it is held");
    assert_eq!(holder.field(), java.field().await);
    java.unlock(name).await.unwrap();
    let guard = lock.try_lock().await.unwrap();
    let guard = guard.unwrap_or_else(|| panic!("Java released {name}"));
    assert!(!java.try_lock(name).await, "Rust has {name}");
    guard.unlock().await.unwrap();
    assert!(java.try_lock(name).await, "Rust released {name}");
    java.unlock(name).await.unwrap();
}

/// Both sides wait for each other, so each has to be woken by the other.
async fn contend(ours: &Client, redisson: &Redisson, name: &str) {
    let cell = Cell::new();
    let pause = Duration::from_millis(2);
    let java = async {
        let thread = redisson.thread("contender");
        for _ in 0..ROUNDS {
            thread.lock(name).await;
            cell.bump_as("Java", pause).await;
            thread.unlock(name).await.unwrap();
        }
    };
    let rust = async {
        let lock = ours.lock(name);
        for _ in 0..ROUNDS {
            let guard = lock.lock().await.unwrap();
            cell.bump_as("Rust", pause).await;
            guard.unlock().await.unwrap();
        }
    };
    let both = async { tokio::join!(java, rust) };
    let both = tokio::time::timeout(SAFETY, both).await;
    both.expect("each side wakes the other");
    cell.assert_exclusive(2 * ROUNDS);
}

fn address(server: &RedisServer) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

/// The addresses as a list in the file, without what follows the port.
fn list(urls: &[String]) -> String {
    let urls = urls
        .iter()
        .map(|url| format!("\"{}\"", url.trim_end_matches('/')));
    format!("[{}]", urls.collect::<Vec<_>>().join(", "))
}

/// Redisson's defaults open 24 connections to each server at once. A busy machine may be silent for
/// some seconds.
const POOLS: &str =
    "  timeout: 30000\n  masterConnectionMinimumIdleSize: 2\n  slaveConnectionMinimumIdleSize: 2\n";
const ROUNDS: i64 = 20;
