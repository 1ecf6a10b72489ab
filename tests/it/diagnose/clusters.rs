//! On a cluster each master is checked separately.

use std::collections::BTreeSet;

use lockdog::report::FindingKind;
use lockdog::{Client, ClientBuilder};
use tracing::Level;

use super::{SOON, findings};
use crate::support::{Cluster, Logs, eventually, logs};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_master_of_a_cluster_is_checked() {
    let cluster = Cluster::start(3, 1).await;
    let masters = cluster.nodes.iter().take(3);
    let masters = masters.map(|node| format!("127.0.0.1:{}", node.port()));
    let masters: BTreeSet<_> = masters.collect();
    let client = Client::connect(cluster.url()).await.unwrap();
    let found = findings(&client).await;
    for kind in [FindingKind::NoPersistence, FindingKind::NoMinReplicas] {
        let of_kind = found.iter().filter(|it| it.kind == kind && it.is_known);
        let places: BTreeSet<_> = of_kind.map(|it| it.server.clone()).collect();
        assert_eq!(places, masters, "{found:?}");
    }
    assert_eq!(found.len(), 6, "{found:?}");
    for node in &cluster.nodes {
        node.cmd("CONFIG SET appendonly yes").await;
        node.cmd("CONFIG SET min-replicas-to-write 1").await;
        node.cmd("CONFIG SET min-replicas-max-lag 10").await;
    }
    let found = findings(&client).await;
    assert!(found.is_empty(), "{found:?}");
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_master_is_a_finding_beside_those_of_the_others() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let [gone, others @ ..] = &cluster.nodes[..] else {
        panic!("there are three");
    };
    gone.server.kill();
    let found = findings(&client).await;
    let of_kind = |kind| {
        let found = found.iter().filter(move |it| it.kind == kind);
        found.map(|it| it.server.clone()).collect::<BTreeSet<_>>()
    };
    let place = |port: u16| format!("127.0.0.1:{port}");
    let away = BTreeSet::from([place(gone.port())]);
    assert_eq!(of_kind(FindingKind::Unreachable), away, "{found:?}");
    let others: BTreeSet<_> = others.iter().map(|node| place(node.port())).collect();
    assert_eq!(of_kind(FindingKind::NoPersistence), others, "{found:?}");
    for node in &cluster.nodes {
        node.server.kill();
    }
    assert!(client.diagnose().await.is_err_and(|it| it.is_retriable()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_permissions_of_a_cluster_user_are_named() {
    let cluster = Cluster::start(3, 0).await;
    // Without the first permission nothing works. Without the second the client uses plain messages.
    let sharded = "+pubsub|shardnumsub";
    let apart = ["+cluster|nodes", sharded];
    for missing in documented()
        .iter()
        .filter(|rule| !apart.contains(&&***rule))
    {
        let rules = documented();
        let rules: Vec<&str> = rules
            .iter()
            .filter(|it| *it != missing)
            .map(|it| &**it)
            .collect();
        for node in &cluster.nodes {
            let user = "ACL SETUSER lockdog reset on >secret ~* &* +config|get";
            node.cmd(&format!("{user} {}", rules.join(" "))).await;
        }
        let client = by_user(&cluster).build().await.unwrap();
        let found = findings(&client).await;
        let lines = found
            .iter()
            .filter(|it| it.kind == FindingKind::Permissions);
        let lines: Vec<_> = lines.map(|it| (it.is_known, it.fix.clone())).collect();
        let line = (true, format!("ACL SETUSER lockdog {missing}"));
        assert_eq!(lines, vec![line; 3], "{found:?}");
        for node in &cluster.nodes {
            node.cmd(&lines[0].1).await;
        }
        let found = findings(&client).await;
        let kinds: BTreeSet<_> = found.iter().map(|it| format!("{:?}", it.kind)).collect();
        assert_eq!(
            kinds,
            BTreeSet::from(["NoPersistence".to_owned()]),
            "{found:?}"
        );
        client.shutdown().await;
    }
    for node in &cluster.nodes {
        node.cmd("ACL SETUSER lockdog -@all +@read +@write +@scripting +info +ping +client +wait")
            .await;
        node.cmd(
            "ACL SETUSER lockdog +cluster +asking +publish +pubsub|numsub +subscribe +unsubscribe",
        )
        .await;
    }
    let client = by_user(&cluster).build().await.unwrap();
    let found = findings(&client).await;
    let lines = found
        .iter()
        .filter(|it| it.kind == FindingKind::Permissions && it.is_known);
    let lines: Vec<_> = lines.map(|it| it.fix.as_str()).collect();
    assert_eq!(
        lines,
        vec![format!("ACL SETUSER lockdog {sharded}"); 3],
        "{found:?}"
    );
}

#[test]
fn findings_of_a_master_are_logged_when_it_is_first_used() {
    logs::alone(
        "diagnose::clusters::findings_of_a_master_are_logged_when_it_is_first_used",
        async {
            let logs = Logs::of_this_process();
            let cluster = Cluster::start(3, 0).await;
            let client = Client::connect(cluster.url()).await.unwrap();
            let warned = || {
                let mut lines = logs.of_set_up();
                lines.retain(|line| line.level == Level::WARN);
                lines.into_iter().map(|line| line.text).collect::<Vec<_>>()
            };
            assert_eq!(warned(), Vec::<String>::new());
            for (number, node) in cluster.nodes.iter().enumerate() {
                let name = &cluster.names_at(node, "orders", 1).await[0];
                client.lock(name).is_locked().await.unwrap();
                let is_warned = async || warned().len() == number + 1;
                eventually(SOON, "the warning is logged", is_warned).await;
                let line = &warned()[number];
                let place = format!("127.0.0.1:{}", node.port());
                assert!(
                    line.contains(&place) && line.contains("no_persistence"),
                    "{line}"
                );
            }
            client.shutdown().await;
        },
    );
}

/// The permissions that a user of a cluster needs, from both documents.
fn documented() -> Vec<String> {
    let line = |page: &str, start: &str| {
        let mut lines = page.lines();
        let line = lines.find(|line| line.starts_with(start));
        line.expect("the page has the line").to_owned()
    };
    let security = include_str!("../../../docs/security.md");
    let security = line(security, "ACL SETUSER lockdog ");
    let deployments = include_str!("../../../docs/deployments.md");
    let deployments = line(deployments, "+cluster|nodes ");
    let rules = security.split(' ').chain(deployments.split(' '));
    // These permissions are for single servers.
    let plain = ["+publish", "+pubsub|numsub", "+subscribe", "+unsubscribe"];
    rules
        .filter(|rule| rule.starts_with('+') && !plain.contains(rule))
        .map(str::to_owned)
        .collect()
}

fn by_user(cluster: &Cluster) -> ClientBuilder {
    Client::builder()
        .url(cluster.url())
        .username("lockdog")
        .password("secret")
}
