//! Finding the master.

use std::time::Instant;

use lockdog::{Client, ClientBuilder, Error};

use super::{SOON, ms};
use crate::fixture::connected;
use crate::support::sentinels::MASTER;
use crate::support::{Action, Direction, Proxy, Sentinels, dead_port, eventually, named};
use crate::turn::turn;

/// By URL and by builder; one sentinel of three is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_is_found_while_some_sentinels_are_down() {
    let all = Sentinels::start().await;
    let redis = all.servers[0].redis().await;
    for round in 0..3 {
        let by_url = Client::connect(all.url()).await.unwrap();
        let by_builder = Client::builder().sentinel(MASTER, all.urls());
        let by_builder = by_builder.build().await.unwrap();
        for client in [by_url, by_builder] {
            let guard = client.lock("l").lock().await.unwrap();
            assert!(redis.exists("l").await);
            guard.unlock().await.unwrap();
            assert!(!redis.exists("l").await);
            client.shutdown().await;
        }
        if round < 2 {
            all.sentinels[round].kill();
        }
    }
    all.sentinels[2].kill();
    let client = Client::builder().url(all.url()).command_timeout(ms(1_500));
    let error = client.build().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// The other two answer, so no query waits for the third.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_to_one_sentinel_is_replaced() {
    let all = Sentinels::start().await;
    let mut proxies = Vec::new();
    for sentinel in &all.sentinels {
        proxies.push(Proxy::to_port(sentinel.port()).await);
    }
    let [proxy, others @ ..] = &proxies[..] else {
        panic!("three sentinels")
    };
    for other in others {
        // So the first one always gets its question, and answers before them.
        other.delay(Direction::ToClient, ms(20));
    }
    let builder = Client::builder().sentinel(MASTER, proxies.iter().map(Proxy::url));
    let client = connected(builder).await;
    turn(&client.lock("l")).await;
    let is_query = named("SENTINEL");
    let newest = || {
        let sent = proxy.commands();
        let queries = sent.iter().filter(|it| is_query(&it.args));
        queries.map(|it| it.connection).max()
    };
    let silent = proxy.on(named("SENTINEL"), Action::DropReply).always();
    // From then on nothing on that connection has an answer.
    silent.wait_hits(1).await;
    let before = newest();
    eventually(SOON, "it is asked on a new connection", async || {
        newest() > before
    })
    .await;
    silent.remove();
    client.shutdown().await;
}

#[tokio::test]
async fn login_and_database_apply_to_the_master() {
    let all = Sentinels::start().await;
    let redis = all.servers[0].redis().await;
    for server in &all.servers {
        let user = "ACL SETUSER app on >p@ss ~* &* +@all";
        let redis = server.redis().await;
        redis.cmd(&user.split(' ').collect::<Vec<_>>()).await;
    }
    let rest = all.url().replace("redis+sentinel://", "");
    let by_url = Client::connect(format!("redis+sentinel://app:p%40ss@{rest}/3"));
    let builder = Client::builder().sentinel(MASTER, all.urls());
    let builder = builder.username("app").password("p@ss").database(3);
    for client in [by_url.await.unwrap(), builder.build().await.unwrap()] {
        let guard = client.lock("l").lock().await.unwrap();
        redis.cmd(&["SELECT", "3"]).await;
        assert!(redis.exists("l").await);
        guard.unlock().await.unwrap();
        client.shutdown().await;
    }
    let wrong = Client::connect(format!("redis+sentinel://app:hunter2@{rest}/3"));
    let error = wrong.await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"),
        "{error:?}"
    );
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn invalid_sentinel_settings_are_refused() {
    let all = Sentinels::start().await;
    let unknown = all.url().replace(MASTER, "nobody");
    let error = Client::connect(unknown).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("No such master"), "{error}");
    let none: [&str; 0] = [];
    let error = Client::builder().sentinel(MASTER, none).build().await;
    assert!(matches!(error, Err(Error::Invalid { .. })));
    let error = Client::builder().sentinel("", all.urls()).build().await;
    assert!(matches!(error, Err(Error::Invalid { .. })));
    let both = Client::builder()
        .url("redis://localhost")
        .sentinel(MASTER, all.urls());
    assert!(matches!(both.build().await, Err(Error::Invalid { .. })));
    // The error says that the server is no sentinel.
    let error = Client::builder()
        .sentinel(MASTER, [all.servers[0].url()])
        .build()
        .await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("sentinel 127.0.0.1") && error.contains("SENTINEL"),
        "{error}"
    );
    let unused = format!("redis://127.0.0.1:{}", dead_port());
    let error = Client::builder().sentinel(MASTER, [unused]).build().await;
    assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
}

/// The documented ACL line is enough for sentinels with users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_sentinel_permissions_are_sufficient() {
    const DOCUMENT: &str = include_str!("../../../docs/deployments.md");
    let mut lines = DOCUMENT.lines();
    let line = lines.find(|line| line.starts_with("ACL SETUSER lockdog"));
    let line: Vec<_> = line.expect("it is there").split(' ').collect();
    let all = Sentinels::start().await;
    for sentinel in &all.sentinels {
        sentinel.redis().await.cmd(&line).await;
    }
    let with_login = |url: String| url.replace("redis://", "redis://lockdog:secret@");
    let client = Client::builder().sentinel(MASTER, all.urls().into_iter().map(with_login));
    let client = client.build().await.unwrap();
    let guard = client.lock("l").lock().await.unwrap();
    // The client subscribes at all sentinels.
    for sentinel in &all.sentinels {
        let redis = sentinel.redis().await;
        eventually(SOON, "its messages arrive", async || {
            let list: String = redis.ask(&["CLIENT", "LIST"]).await;
            let mut own = list.lines().filter(|line| line.contains("user=lockdog"));
            own.any(|line| line.contains("sub=1"))
        })
        .await;
    }
    all.failover().await;
    let before = Instant::now() + guard.remaining();
    eventually(SOON, "it is extended there", async || {
        Instant::now() + guard.remaining() > before + ms(100)
    })
    .await;
    guard.unlock().await.unwrap();
    let wrong = |url: String| url.replace("redis://", "redis://lockdog:hunter2@");
    let client = Client::builder().sentinel(MASTER, all.urls().into_iter().map(wrong));
    let error = refused(&client, "WRONGPASS").await;
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

/// The builder sets the sentinels' login, because the URL has no place for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_logs_in_to_sentinels_without_a_default_user() {
    let all = Sentinels::start().await;
    for sentinel in &all.sentinels {
        let redis = sentinel.redis().await;
        let user = "ACL SETUSER ann on >p@ss allchannels +@all";
        redis.cmd(&user.split(' ').collect::<Vec<_>>()).await;
        redis.cmd(&["ACL", "SETUSER", "default", "off"]).await;
    }
    let by_url = Client::builder().url(all.url());
    let login = |url: String| url.replace("redis://", "redis://nobody:hunter2@");
    let in_urls = Client::builder().sentinel(MASTER, all.urls().into_iter().map(login));
    for builder in [by_url, in_urls] {
        let builder = builder.command_timeout(ms(2_000));
        let known = builder
            .clone()
            .sentinel_username("ann")
            .sentinel_password("p@ss");
        let client = connected(known).await;
        let guard = client.lock("l").lock().await.unwrap();
        guard.unlock().await.unwrap();
        client.shutdown().await;
        let wrong = builder
            .clone()
            .sentinel_username("ann")
            .sentinel_password("hunter2");
        for (builder, code) in [(wrong, "WRONGPASS"), (builder, "")] {
            let error = refused(&builder, code).await;
            assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }
}

/// A sentinel with `requirepass` has one user, and its password is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_alone_belongs_to_the_sentinels_default_user() {
    let all = Sentinels::start().await;
    for sentinel in &all.sentinels {
        let redis = sentinel.redis().await;
        redis
            .cmd(&["ACL", "SETUSER", "default", "resetpass", ">p@ss"])
            .await;
    }
    let builder = Client::builder().url(all.url()).command_timeout(ms(2_000));
    refused(&builder, "NOAUTH").await;
    let client = connected(builder.sentinel_password("p@ss")).await;
    let guard = client.lock("l").lock().await.unwrap();
    guard.unlock().await.unwrap();
    client.shutdown().await;
}

/// As Redisson does. A sentinel that requires no password would refuse one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_requires_a_password_gets_the_servers_password() {
    let all = Sentinels::start().await;
    for server in &all.servers {
        let user = "ACL SETUSER app on >p@ss ~* &* +@all";
        let redis = server.redis().await;
        redis.cmd(&user.split(' ').collect::<Vec<_>>()).await;
    }
    let mut sentinels = Vec::new();
    for sentinel in &all.sentinels {
        sentinels.push(sentinel.redis().await);
    }
    let set_password = async |rule: &str| {
        for redis in &sentinels {
            redis.cmd(&["ACL", "SETUSER", "default", rule]).await;
        }
    };
    // The newest connection that listens, at each sentinel that has one.
    let listening = async || {
        let mut ids = Vec::new();
        for redis in &sentinels {
            let list: String = redis.ask(&["CLIENT", "LIST"]).await;
            let lines = list.lines().filter(|line| line.contains("sub=1"));
            let of_line = lines.filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
            ids.extend(of_line.filter_map(|id| id.parse::<u64>().ok()).max());
        }
        ids
    };
    set_password("resetpass").await;
    set_password(">p@ss").await;

    let builder = Client::builder().sentinel(MASTER, all.urls());
    let builder = builder.command_timeout(ms(2_000)).username("app");
    let error = refused(&builder.clone().password("hunter2"), "WRONGPASS").await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));

    let client = connected(builder.password("p@ss")).await;
    let guard = client.lock("l").lock().await.unwrap();
    eventually(SOON, "the client listens at each sentinel", async || {
        listening().await.len() == 3
    })
    .await;

    let before = listening().await;
    set_password("nopass").await;
    for redis in &sentinels {
        for kind in ["normal", "pubsub"] {
            redis.cmd(&["CLIENT", "KILL", "TYPE", kind]).await;
        }
    }
    eventually(SOON, "it listens again, without a password", async || {
        let now = listening().await;
        now.len() == 3 && now.iter().zip(&before).all(|(now, before)| now > before)
    })
    .await;
    guard.unlock().await.unwrap();
    client.shutdown().await;
}

/// The error of a client that may not connect. On a busy machine its time may be over before the refusal comes.
async fn refused(builder: &ClientBuilder, code: &str) -> Error {
    let deadline = Instant::now() + SOON;
    loop {
        let error = builder.clone().build().await.unwrap_err();
        if error.to_string().contains(code) {
            return error;
        }
        assert!(Instant::now() < deadline, "{error}");
    }
}
