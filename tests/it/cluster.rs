//! Locks on a cluster. Each lock is at the current master of its slot.

mod basics;
mod connect;
mod down;
mod failover;
mod fencing;
mod foreign;
mod hand_over;
mod logs;
mod many;
mod migration;
mod named;
mod nemesis;
mod quarantine;
mod red_lock;
mod redisson;
mod resend;
mod tokens;

use lockdog::Client;

use crate::faults::scripts;
use crate::support::Cluster;
use crate::support::prelude::{LONG, WITHIN_A_LEASE as SOON, ms};
use crate::turn::waiter;

/// A client whose waiters are woken only by messages and TTLs during the test.
async fn without_polling(cluster: &Cluster) -> Client {
    let client = Client::builder().url(cluster.url()).poll_cap(LONG);
    client.build().await.expect("it runs")
}

/// Loads the scripts, so that no command is sent twice because the node does not know the script yet.
async fn load_scripts(cluster: &Cluster) {
    for node in &cluster.nodes {
        for text in scripts::texts() {
            node.redis().await.cmd(&["SCRIPT", "LOAD", text]).await;
        }
    }
}

/// How often scripts of this kind were sent to all nodes together, through the proxies that the nodes
/// announce.
fn sent(cluster: &Cluster, is_it: impl Fn(&[String]) -> bool) -> usize {
    let counts = cluster.nodes.iter();
    counts.map(|node| node.proxy().count(&is_it)).sum()
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(SOON, work).await;
    done.unwrap_or_else(|_| panic!("it did not happen in time: {what}"))
}
