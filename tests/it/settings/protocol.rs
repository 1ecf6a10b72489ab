//! The same locks with RESP3.

use lockdog::config::Protocol;
use lockdog::report::Ttl;
use lockdog::{Client, ClientBuilder, Error, Owner, RedLock};

use super::{SOON, ms, works};
use crate::support::{Cluster, Redis, RedisServer, Sentinels, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_renewals_and_messages_work_with_either_protocol() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let plain = Client::builder().url(server.url());
    let by_url = Client::builder().url(format!("{}?protocol=resp3", server.url()));
    for (builder, spoken) in [
        (plain.clone(), "2"),
        (plain.clone().protocol(Protocol::Resp2), "2"),
        (plain.protocol(Protocol::Resp3), "3"),
        (by_url.clone(), "3"),
        (by_url.protocol(Protocol::Resp2), "2"),
    ] {
        works(&redis, &builder).await;
        let client = builder.client_name("billing").build().await.unwrap();
        assert_eq!(protocols_of(&redis, "billing").await, [spoken]);
        client.shutdown().await;
    }
}

/// The answers to a caller are the same by both: counts, TTLs, fields, nothing, errors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_the_same_with_either_protocol() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let builder = Client::builder().url(server.url()).protocol(protocol);
        let (one, two) = (connect(&builder).await, connect(&builder).await);
        let (lock, others) = (one.lock("l"), two.lock("l"));
        let owner = Owner::new();
        owner
            .scope(async {
                assert!(!lock.is_locked().await.unwrap());
                assert!(lock.holder().await.unwrap().is_none());
                assert!(lock.remaining_ttl().await.unwrap().is_none());
                assert_eq!(lock.hold_count().await.unwrap(), 0);
                let guard = lock.lock().lease(ms(60_000)).await.unwrap();
                let inner = lock.lock().await.unwrap();
                assert_eq!(lock.hold_count().await.unwrap(), 2);
                let holder = others.holder().await.unwrap().expect("it is held");
                assert_eq!((holder.count, holder.ours), (2, false));
                assert!(matches!(holder.ttl, Ttl::Expires(ttl) if ttl > ms(1_000)));
                assert!(others.try_lock().await.unwrap().is_none());
                inner.unlock().await.unwrap();
                guard.unlock().await.unwrap();
            })
            .await;
        // Handed over inside a client, freed by force, and found missing.
        let first = lock.lock().owner(&Owner::new()).await.unwrap();
        let request = lock.lock().owner(&Owner::new());
        let waiting = tokio::spawn(async move { request.await.unwrap() });
        tokio::time::sleep(ms(50)).await;
        first.unlock().await.unwrap();
        let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
        assert!(others.force_unlock().await.unwrap());
        assert!(!others.force_unlock().await.unwrap());
        let error = next.unlock().await.unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{protocol:?}: {error}");
        redis.cmd(&["SET", "text", "x"]).await;
        let error = one.lock("text").try_lock().await.unwrap_err();
        let code = matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE");
        assert!(code, "{protocol:?}: {error}");
        redis.cmd(&["DEL", "text"]).await;
        one.shutdown().await;
        two.shutdown().await;
        redis.assert_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_red_lock_and_a_password_work_with_resp3() {
    let server = RedisServer::builder().password("secret").start().await;
    let builder = Client::builder()
        .url(server.url())
        .protocol(Protocol::Resp3)
        .database(3)
        .quarantine_on_server(true);
    let client = connect(&builder).await;
    client.provision().await.unwrap();
    let lock = RedLock::new(["a", "b", "c"].map(|name| client.lock(name))).fenced();
    let tokens = [take(&lock).await, take(&lock).await];
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    let wrong = builder.password("hunter2").build().await.unwrap_err();
    let code = matches!(&wrong, Error::Refused { code, .. } if code == "WRONGPASS");
    assert!(code, "{wrong}");
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_sentinels_works_with_resp3() {
    let all = Sentinels::start().await;
    let redis = all.servers[0].redis().await;
    let builder = Client::builder().url(format!("{}?protocol=resp3", all.url()));
    works(&redis, &builder).await;
    let client = builder.client_name("billing").build().await.unwrap();
    assert_eq!(protocols_of(&redis, "billing").await, ["3"]);
    let guard = client.lock("l").lock().await.unwrap();
    all.failover().await;
    let known = async || guard.remaining() > ms(29_000);
    eventually(SOON, "it is extended at the new master", known).await;
    guard.unlock().await.unwrap();
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_works_with_resp3() {
    let cluster = Cluster::start(3, 0).await;
    let url = format!("{}?protocol=resp3", cluster.url());
    let node = cluster.owner_of("l").await;
    let redis = node.redis().await;
    let builder = Client::builder().url(url).client_name("billing");
    let (one, two) = (connect(&builder).await, connect(&builder).await);
    let guard = one.lock("l").lock().await.unwrap();
    // The watchdog's connection may be open already.
    let spoken = protocols_of(&redis, "billing").await;
    assert!(
        !spoken.is_empty() && spoken.iter().all(|it| it == "3"),
        "{spoken:?}"
    );
    let request = two.lock("l").lock().owner(&Owner::new());
    let waiting = tokio::spawn(async move { request.await.unwrap() });
    tokio::time::sleep(ms(200)).await;
    guard.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    next.unlock().await.unwrap();
    one.shutdown().await;
    two.shutdown().await;
}

async fn connect(builder: &ClientBuilder) -> Client {
    builder.clone().build().await.expect("it runs")
}

async fn take(lock: &RedLock) -> Option<u64> {
    let guard = lock.lock().await.unwrap();
    let token = guard.token();
    guard.unlock().await.unwrap();
    token
}

/// The protocols of the connections of this name, as the server knows them.
async fn protocols_of(redis: &Redis, name: &str) -> Vec<String> {
    let clients = redis.clients().await;
    let named = clients.iter().filter(|client| client.name == name);
    named.map(|client| client.fields["resp"].clone()).collect()
}
