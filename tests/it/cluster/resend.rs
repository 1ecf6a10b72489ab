//! A connection to a node ends after the command ran. The client sends the command again, and it counts
//! once.

use std::collections::BTreeMap;
use std::time::Duration;

use lockdog::{Client, Guard, Unlocked};

use super::{LONG, SOON, load_scripts, ms, sent};
use crate::faults::scripts::{acquire, acquire_to, renew, unlock_to};
use crate::support::cluster::{Node, names};
use crate::support::{Action, Cluster, eventually};
use crate::turn::{renewed, turn};

/// The nodes announce the address of a proxy. It closes the connection after the command ran, and sees the
/// command at least twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_and_an_unlock_executed_twice_count_once() {
    let test = Fixture::start(LONG).await;
    for node in &test.cluster.nodes {
        let name = &test.cluster.names_at(node, "l", 1).await[0];
        let (proxy, redis) = (node.proxy(), node.redis().await);
        let lock = test.client.lock(name);
        redis.reset_stats().await;

        let rule = proxy.on(acquire_to(1), Action::ExecuteThenCut);
        let guard = lock.lock().await.unwrap();
        assert!(rule.hits() == 1 && proxy.count(acquire_to(1)) >= 2);
        assert!(ran(node).await >= 2);
        assert_eq!(counts(node, name).await, ["1"]);

        let rule = proxy.on(acquire_to(2), Action::ExecuteThenCut);
        let inner = lock.lock().await.unwrap();
        assert!(rule.hits() == 1 && proxy.count(acquire_to(2)) >= 2);
        assert_eq!(inner.hold_count(), 2);
        assert!(ran(node).await >= 4);
        assert_eq!(counts(node, name).await, ["2"]);

        let rule = proxy.on(unlock_to(1), Action::ExecuteThenCut);
        let left = Unlocked::StillHeld { count: 1 };
        assert_eq!(inner.unlock().await.unwrap(), left);
        assert!(rule.hits() == 1 && proxy.count(unlock_to(1)) >= 2);
        assert!(ran(node).await >= 6);
        assert_eq!(counts(node, name).await, ["1"]);

        let rule = proxy.on(unlock_to(0), Action::ExecuteThenCut);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        assert!(rule.hits() == 1 && proxy.count(unlock_to(0)) >= 2);
        assert!(ran(node).await >= 8);
        assert!(counts(node, name).await.is_empty());
    }
    test.end().await;
}

/// The same for a renewal: no lock is lost, and no other owner's lock is renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_executed_twice_keeps_the_locks() {
    let test = Fixture::start(ms(6000)).await;
    let all = names("l", 10, |it| it == 7000);
    let node = test.cluster.owner(7000).await;
    let mut guards = Vec::new();
    for name in &all {
        guards.push(test.client.lock(name).lock().await.unwrap());
    }
    let rule = node.proxy().on(renew(), Action::ExecuteThenCut).times(3);
    rule.wait_hits(3).await;
    let held: Vec<&Guard> = guards.iter().collect();
    renewed(&held).await;
    assert!(guards.iter().all(Guard::is_valid));
    for guard in guards {
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    test.end().await;
}

/// The command was redirected, and ran twice at the second node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirected_acquire_executed_twice_counts_once() {
    let test = Fixture::start(LONG).await;
    let slot = 7000;
    let name = &names("l", 1, |it| it == slot)[0];
    let to = &test.cluster.nodes[0];
    let migration = test.cluster.migrate(slot, to).await;
    // The client first asks the node that has the slot, which redirects it to the target of the migration.
    let rule = to.proxy().on(acquire(), Action::ExecuteThenCut);
    let guard = test.client.lock(name).lock().lease(LONG).await.unwrap();
    assert!(rule.hits() == 1 && to.proxy().count(acquire()) >= 2);
    assert_eq!(counts(to, name).await, ["1"]);
    let rule = to.proxy().on(unlock_to(0), Action::ExecuteThenCut);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(rule.hits() == 1 && to.proxy().count(unlock_to(0)) >= 2);
    assert!(counts(to, name).await.is_empty());
    migration.finish().await;
    test.end().await;
}

/// An acquire that is never answered is undone at the master that received it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_without_an_answer_is_an_error_and_is_undone() {
    let cluster = Cluster::builder(3, 0).announce_proxies().start().await;
    load_scripts(&cluster).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let node = &cluster.nodes[1];
    let name = &cluster.names_at(node, "l", 1).await[0];
    turn(&client.lock(name)).await;
    let rule = node.proxy().on(acquire(), Action::DropReply);
    let error = client.lock(name).lock().await.unwrap_err();
    assert!(error.is_timeout() && error.is_retriable(), "{error}");
    assert_eq!(rule.hits(), 1);
    let redis = node.redis().await;
    eventually(SOON, "it is undone", async || !redis.exists(name).await).await;
    // The next call may use the silent connection, too, until the settlement has detected that it is
    // silent.
    eventually(SOON, "a call works again", async || {
        client.lock(name).lock().await.is_ok()
    })
    .await;
    assert!(sent(&cluster, acquire()) >= 3);
    client.shutdown().await;
    cluster.assert_clean().await;
}

struct Fixture {
    cluster: Cluster,
    client: Client,
}

impl Fixture {
    async fn start(watchdog_lease: Duration) -> Self {
        let cluster = Cluster::builder(3, 0).announce_proxies().start().await;
        load_scripts(&cluster).await;
        let client = Client::builder().url(cluster.url());
        let client = client.watchdog_lease(watchdog_lease);
        let client = client.build().await.unwrap();
        Self { cluster, client }
    }

    async fn end(self) {
        self.client.shutdown().await;
        for node in &self.cluster.nodes {
            node.redis().await.eventually_empty().await;
        }
        self.cluster.assert_clean().await;
    }
}

/// The number of scripts that the node ran.
async fn ran(node: &Node) -> u64 {
    let stats = node.redis().await.commandstats().await;
    stats.get("evalsha").copied().unwrap_or(0)
}

/// The counts of all holders. There is at most one holder.
async fn counts(node: &Node, name: &str) -> Vec<String> {
    let holders: BTreeMap<String, String> = node.asking(&["HGETALL", name]).await;
    holders.into_values().collect()
}
