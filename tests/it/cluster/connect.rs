//! Connecting to a cluster, and addresses that are no cluster.

use std::future::IntoFuture;

use lockdog::{Client, Error};

use super::ms;
use crate::kinds;
use crate::support::cluster::names;
use crate::support::{Binary, Cluster, RedisServer, dead_port, dead_ports};
use crate::turn::turn;

/// By URL and by builder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_live_node_among_dead_nodes_is_enough() {
    let cluster = Cluster::start(3, 1).await;
    let dead = dead_port();
    // A replica knows the cluster as well as a master does.
    for node in &cluster.nodes[1..4] {
        let port = node.port();
        let url = format!("redis+cluster://127.0.0.1:{dead},127.0.0.1:{port}");
        let by_url = Client::connect(&url).await.unwrap();
        let urls = [format!("redis://127.0.0.1:{dead}"), node.url()];
        let by_builder = Client::builder().cluster(urls).build().await.unwrap();
        for client in [by_url, by_builder] {
            for owner in &cluster.nodes[..3] {
                let name = &cluster.names_at(owner, "l", 1).await[0];
                let guard = client.lock(name).lock().await.unwrap();
                assert!(owner.redis().await.exists(name).await);
                guard.unlock().await.unwrap();
                assert!(!owner.redis().await.exists(name).await);
            }
            client.shutdown().await;
        }
    }
}

/// The nodes do not answer, or are not cluster nodes. A lazy client reports it in its calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_fails_without_a_node_that_answers() {
    let [one, other] = dead_ports();
    let dead = format!("redis+cluster://127.0.0.1:{one},127.0.0.1:{other}");
    let patience = ms(500);
    let builder = || Client::builder().url(&dead).command_timeout(patience);
    let error = builder().build().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let lazy = builder().lazy(true).build().await.unwrap();
    let error = lazy.lock("l").lock().await.unwrap_err();
    assert!(error.is_retriable(), "{error:?}");
    lazy.shutdown().await;

    // A frozen node does not answer; another node does.
    let cluster = Cluster::start(3, 0).await;
    let [frozen, well, _] = &cluster.nodes[..] else {
        panic!("there are three");
    };
    // The other nodes do not mark it as failed.
    for node in &cluster.nodes {
        node.cmd("CONFIG SET cluster-node-timeout 600000").await;
    }
    let name = &cluster.names_at(well, "l", 1).await[0];
    frozen.server.pause();
    let seeds = [frozen.url(), well.url()];
    let client = Client::builder().cluster(seeds).build().await.unwrap();
    turn(&client.lock(name)).await;
    frozen.server.resume();
    client.shutdown().await;

    // A single server without cluster mode is refused.
    let server = RedisServer::start().await;
    let error = Client::builder().cluster([server.url()]).build().await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("cluster"), "{error}");
}

/// Nodes may announce names instead of addresses, or only a port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_found_by_announced_names_and_ports() {
    if Binary::under_test() == Binary::Redis62 {
        // Redis 6.2 announces addresses only.
        return;
    }
    let cluster = Cluster::start(3, 0).await;
    for node in &cluster.nodes {
        node.cmd("CONFIG SET cluster-announce-hostname localhost")
            .await;
    }
    for kind in ["ip", "hostname", "unknown-endpoint"] {
        for node in &cluster.nodes {
            let set = "CONFIG SET cluster-preferred-endpoint-type";
            node.cmd(&format!("{set} {kind}")).await;
        }
        let client = Client::builder().cluster([cluster.nodes[0].url()]);
        let client = client.build().await.unwrap();
        use_all_nodes(&cluster, &client).await;
        // And led there by a node that has it no more.
        let slot = 7000;
        let name = &names("moved", 1, |it| it == slot)[0];
        let guard = client.lock(name).lock().await.unwrap();
        let from = cluster.owner(slot).await;
        let to = cluster.nodes.iter().find(|it| it.id != from.id).unwrap();
        cluster.move_slot(slot, to).await;
        guard.unlock().await.unwrap();
        assert!(!to.redis().await.exists(name).await, "{kind}");
        client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_and_password_apply_to_every_node() {
    let cluster = Cluster::builder(3, 0).password("p@ss").start().await;
    for node in &cluster.nodes {
        node.cmd("ACL SETUSER app on >w@rd ~* &* +@all").await;
    }
    let bare = cluster.url().replace(":p@ss@", "");
    let rest = bare.replace("redis+cluster://", "");
    let plain = |url: &String| url.replace(":p@ss@", "");
    let urls: Vec<_> = cluster.urls().iter().map(plain).collect();
    let by_builder = || Client::builder().cluster(&urls);
    for client in [
        Client::connect(format!("redis+cluster://:p%40ss@{rest}")),
        Client::connect(format!("redis+cluster://app:w%40rd@{rest}/")),
    ] {
        let client = client.await.unwrap();
        use_all_nodes(&cluster, &client).await;
        client.shutdown().await;
    }
    let builder = by_builder().username("app").password("w@rd");
    let client = builder.build().await.unwrap();
    use_all_nodes(&cluster, &client).await;
    client.shutdown().await;

    let wrong = Client::connect(format!("redis+cluster://app:hunter2@{rest}")).await;
    let wrong_too = by_builder().username("app").password("hunter2");
    for error in [wrong, wrong_too.build().await] {
        let error = error.unwrap_err();
        assert!(
            matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"),
            "{error:?}"
        );
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
    let none = Client::connect(&bare).await.unwrap_err();
    assert!(
        matches!(&none, Error::Refused { code, .. } if code == "NOAUTH"),
        "{none:?}"
    );
}

async fn use_all_nodes(cluster: &Cluster, client: &Client) {
    for node in &cluster.nodes {
        let name = &cluster.names_at(node, "l", 1).await[0];
        let guard = client.lock(name).lock().await.unwrap();
        assert!(node.redis().await.exists(name).await);
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn invalid_cluster_settings_are_refused() {
    let none: [&str; 0] = [];
    let urls = ["redis://127.0.0.1:7000"];
    for builder in [
        Client::builder().cluster(none),
        Client::builder().cluster(urls).database(1),
        Client::builder().cluster(["redis://127.0.0.1:7000/1"]),
        Client::builder().cluster(["unix:///tmp/x"]),
        Client::builder().cluster(urls).url(urls[0]),
        Client::builder().cluster(urls).sentinel("m", urls),
        Client::builder().url("redis+cluster://"),
        Client::builder().url("redis+cluster://127.0.0.1:7000/1"),
        Client::builder().url("redis+cluster://127.0.0.1:7000?x=1"),
        Client::builder().url("redis+cluster://127.0.0.1:7000,,127.0.0.1:7001"),
    ] {
        let shown = format!("{builder:?}");
        let error = builder.build().await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{shown}: {error:?}");
    }
}

/// Names whose key and channel would be in different slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_redisson_could_not_unlock_are_refused_before_any_command() {
    let cluster = Cluster::builder(3, 0).announce_proxies().start().await;
    let client = Client::connect(cluster.url()).await.unwrap();
    for name in ["plain", "{a}:x", "x:{a}", "x{a}y{b}", "{{a}", "a{b}c{"] {
        let guard = client.lock(name).lock().await.unwrap();
        assert!(
            cluster
                .owner_of(name)
                .await
                .redis()
                .await
                .exists(name)
                .await
        );
        guard.unlock().await.unwrap();
    }
    let sent = || super::sent(&cluster, |args| args[0].to_uppercase().starts_with("EVAL"));
    let before = sent();
    for name in ["a}b", "{}a", "x{", "}{", "{}{x}"] {
        let lock = client.lock(name);
        for error in [
            lock.lock().await.map(drop),
            lock.try_lock().await.map(drop),
            lock.is_locked().await.map(drop),
            lock.force_unlock().await.map(drop),
            lock.unlock().into_future().await.map(drop),
        ] {
            let error = error.unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{name}: {error:?}");
            assert!(error.to_string().contains("slot"), "{name}: {error}");
        }
    }
    for kind in kinds::ALL {
        let error = kind.lock(&client, "a}b").lock().await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{kind:?}: {error}");
    }
    assert_eq!(sent(), before);
    client.shutdown().await;
}

/// The counter of the tokens has the slot of the channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_lock_whose_keys_are_in_several_slots_is_refused() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    for name in ["{}door", "do}or", "door{", "}{"] {
        for lock in [client.fenced_lock(name), client.fenced_lock_from_one(name)] {
            for error in [
                lock.lock().await.map(drop).unwrap_err(),
                lock.try_lock().await.map(drop).unwrap_err(),
                lock.last_token().await.map(drop).unwrap_err(),
                lock.force_unlock().await.map(drop).unwrap_err(),
            ] {
                assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
            }
        }
    }
    // Also no counter, which `keys` leaves out.
    for node in &cluster.nodes {
        assert!(node.redis().await.all_keys().await.is_empty());
    }
    // A tag in the name keeps all of them together.
    let name = "{tag}door";
    let lock = client.fenced_lock(name);
    let guard = lock.lock().await.unwrap();
    let redis = cluster.owner_of(name).await.redis().await;
    let keys = ["redisson_lock_token:{tag}door", name];
    assert_eq!(redis.all_keys().await, keys);
    assert_eq!(lock.last_token().await.unwrap(), guard.token());
    guard.unlock().await.unwrap();
    client.shutdown().await;
}
