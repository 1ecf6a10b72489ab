//! Every form of a server's address.

use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use lockdog::{Client, Error};

use super::{SOON, ms, renewed, waiter};
use crate::support::redis::ClientInfo;
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn a_unix_socket_serves_commands_renewals_and_messages() {
    let server = RedisServer::builder().unix_socket().start().await;
    let socket = server.socket().expect("it was asked for");
    let url = format!("unix://{}", path(&socket));
    works_at(&server, &url, "0").await;
    works_at(&server, &format!("{url}?db=3"), "3").await;
    let client = Client::connect(&url).await.unwrap();
    client.lock("l").is_locked().await.unwrap();
    let clients = server.redis().await.clients().await;
    let through = |client: &ClientInfo| client.fields["addr"].contains(path(&socket));
    assert!(clients.iter().any(through), "{clients:?}");
}

#[tokio::test]
async fn a_database_number_selects_where_the_keys_are() {
    let server = RedisServer::start().await;
    let client = Client::connect(format!("{}5", server.url())).await.unwrap();
    let elsewhere = Client::connect(server.url()).await.unwrap();
    let guard = client.lock("l").lock().await.unwrap();
    assert!(!elsewhere.lock("l").is_locked().await.unwrap());
    let redis = server.redis().await;
    assert!(redis.keys().await.is_empty());
    redis.cmd(&["SELECT", "5"]).await;
    assert_eq!(redis.keys().await, ["l"]);
    guard.unlock().await.unwrap();
    works_at(&server, &format!("{}5", server.url()), "5").await;
}

#[tokio::test]
async fn a_password_is_accepted_and_a_wrong_one_fails_at_once() {
    let server = RedisServer::builder().password("open sesame").start().await;
    let port = server.port();
    works_at(
        &server,
        &format!("redis://:open%20sesame@127.0.0.1:{port}"),
        "0",
    )
    .await;
    works_at(
        &server,
        &format!("redis://default:open%20sesame@127.0.0.1:{port}/2"),
        "2",
    )
    .await;
    for url in [
        format!("redis://:wrong@127.0.0.1:{port}"),
        format!("redis://nobody:wrong@127.0.0.1:{port}"),
    ] {
        let error = Client::connect(url).await.unwrap_err();
        assert!(
            matches!(&error, Error::Refused { code, .. } if code == "WRONGPASS"),
            "{error}"
        );
        let server = format!("; server=127.0.0.1:{port}");
        assert!(error.to_string().ends_with(&server), "{error}");
        assert!(!error.is_retriable());
    }
}

#[tokio::test]
async fn a_missing_password_is_an_error_that_says_so() {
    let server = RedisServer::builder().password("secret").start().await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    let refused = match Client::connect(url).await {
        Ok(client) => client.lock("l").lock().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(
        matches!(&refused, Error::Refused { code, .. } if code == "NOAUTH"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_acl_user_can_connect() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis
        .cmd(&["ACL", "SETUSER", "ann", "on", ">p@ss", "~*", "&*", "+@all"])
        .await;
    works_at(
        &server,
        &format!("redis://ann:p%40ss@127.0.0.1:{}", server.port()),
        "0",
    )
    .await;
}

#[tokio::test]
async fn an_address_without_a_listener_is_unavailable() {
    let port = crate::support::port::dead_port();
    for url in [
        format!("redis://127.0.0.1:{port}"),
        "unix:///nowhere/at/all".to_owned(),
    ] {
        let build = || {
            let builder = Client::builder().url(&url);
            builder.command_timeout(ms(1_500)).build()
        };
        let mut error = build().await.unwrap_err();
        for _ in 0..5 {
            // On a busy machine the time may be over during an attempt.
            if error.is_timeout() {
                error = build().await.unwrap_err();
            }
        }
        assert!(matches!(error, Error::Unavailable { .. }), "{url}: {error}");
        assert!(error.is_retriable());
        let (_, server) = url.split_once("://").expect("it is a url");
        let text = error.to_string();
        assert!(text.ends_with(&format!("; server={server}")), "{text}");
    }
}

#[tokio::test]
async fn the_client_name_is_in_the_client_list() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::builder()
        .url(server.url())
        .client_name("billing-7")
        .watchdog_lease(ms(6_000))
        .build()
        .await
        .unwrap();
    // First the callers' connection, then the watchdog's, too.
    let named = async || {
        let clients = redis.clients().await;
        clients
            .iter()
            .filter(|client| client.name == "billing-7")
            .count()
    };
    assert_eq!(named().await, 1);
    let guard = client.lock("l").lock().await.unwrap();
    eventually(SOON, "the watchdog has connected", async || {
        named().await == 2
    })
    .await;
    guard.unlock().await.unwrap();
    client.shutdown().await;
    eventually(SOON, "no connection stays", async || named().await == 0).await;
}

#[test]
fn building_a_client_outside_a_runtime_is_an_error_and_no_panic() {
    let thread = std::thread::spawn(|| {
        let building = pin!(Client::builder().url("redis://127.0.0.1:1").build());
        match building.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(built) => built.unwrap_err(),
            Poll::Pending => panic!("no task would poll it again"),
        }
    });
    let error = thread.join().expect("it does not panic");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("runtime"), "{error}");
}

/// Acquires, renews, waits for and releases a lock, which a message passes to the waiter.
async fn works_at(server: &RedisServer, url: &str, database: &str) {
    let redis = server.redis().await;
    redis.cmd(&["SELECT", database]).await;
    let connect = async || {
        Client::builder()
            .url(url)
            .watchdog_lease(ms(6_000))
            .poll_cap(ms(60_000))
            .build()
            .await
            .unwrap()
    };
    let (one, two) = (connect().await, connect().await);
    let guard = one.lock("l").lock().await.unwrap();
    assert_eq!(redis.keys().await, ["l"]);
    let waiting = waiter(&two.lock("l"));
    let listens = async || redis.channels().await.len() == 1;
    eventually(SOON, "the waiter listens", listens).await;
    renewed(&[&guard]).await;
    guard.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    next.unlock().await.unwrap();
    redis.assert_clean().await;
    assert!(redis.keys().await.is_empty());
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}
