//! Many locks in all slots.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use lockdog::error::LostReason;
use lockdog::{Client, Guard, Owner};

use super::{SOON, soon};
use crate::faults::scripts;
use crate::support::cluster::{names, slot};
use crate::support::{Action, Cluster, eventually};

/// One renewal command contains locks of one slot only, and all locks are kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_locks_are_renewed_in_batches_per_slot() {
    let cluster = Cluster::builder(3, 0).announce_proxies().start().await;
    let client = Client::builder().url(cluster.url()).watchdog_lease(LEASE);
    let client = client.build().await.unwrap();
    let mut all = names("spread", 150, |_| true);
    for at in [0, 7000, 16_383] {
        all.extend(names("crowd", 20, |it| it == at));
    }
    let guards = hold(&client, &all).await;
    tokio::time::sleep(LEASE * 3 / 2).await;
    assert!(guards.iter().all(Guard::is_valid));
    let mut largest = 0;
    let mut renewed = BTreeSet::new();
    for node in &cluster.nodes {
        for seen in node.proxy().commands() {
            if !scripts::renew()(&seen.args) {
                continue;
            }
            let keys: usize = seen.args[2].parse().unwrap();
            let keys = &seen.args[3..3 + keys];
            let slots: BTreeSet<u16> = keys.iter().map(|key| slot(key)).collect();
            assert_eq!(slots.len(), 1, "{keys:?}");
            largest = largest.max(keys.len());
            renewed.extend(keys.iter().cloned());
        }
    }
    // On a busy machine the renewals of the locks of a slot may be due at different times.
    assert!(largest >= 5, "{largest} in a command at most");
    assert_eq!(renewed, all.iter().cloned().collect());
    for guard in guards {
        guard.unlock().await.expect("it was held all the time");
    }
    cluster.assert_clean().await;
    client.shutdown().await;
}

/// A refused key or a refused batch does not affect the other locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_batch_is_split_and_no_lock_is_lost() {
    let cluster = Cluster::builder(3, 0).announce_proxies().start().await;
    let client = Client::builder().url(cluster.url()).watchdog_lease(LEASE);
    let client = client.build().await.unwrap();
    let all = names("crowd", 20, |it| it == 7000);
    let guards = hold(&client, &all).await;
    let node = cluster.owner(7000).await;
    let of_many = |args: &[String]| scripts::renew()(args) && args[2] != "1";
    let refusal = "-TRYAGAIN Multiple keys request during rehashing of slot".to_owned();
    let rule = node
        .proxy()
        .on(of_many, Action::ReplyWith(refusal))
        .always();
    tokio::time::sleep(LEASE * 3 / 2).await;
    assert!(rule.hits() >= 2, "{} batches", rule.hits());
    assert!(guards.iter().all(Guard::is_valid));
    rule.remove();
    let redis = node.redis().await;
    redis.cmd(&["DEL", &all[3]]).await;
    let lost = soon("one is lost", guards[3].lost()).await;
    assert_eq!(lost.reason(), LostReason::NotOurs);
    let valid = guards.iter().filter(|guard| guard.is_valid());
    assert_eq!(valid.count(), all.len() - 1);
    drop(guards);
    eventually(SOON, "all are free", async || redis.keys().await.is_empty()).await;
    client.shutdown().await;
}

async fn hold(client: &Client, names: &[String]) -> Vec<Guard> {
    let acquires = names.iter().map(async |name| {
        let owner = Owner::new();
        client.lock(name).lock().owner(&owner).await.unwrap()
    });
    join_all(acquires).await
}

/// Long enough for a busy machine to renew all of them in time.
const LEASE: Duration = Duration::from_secs(9);
