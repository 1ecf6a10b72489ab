//! The permanent faults of the proxy, each with its counter.

use std::collections::BTreeSet;
use std::time::Instant;

use futures_util::future::join_all;
use redis::Value;

use crate::harness::{PATIENCE, Plain};
use crate::support::prelude::SOON;
use crate::support::{Background, Direction, Proxy, RedisServer, eventually, named, timed};

#[tokio::test]
async fn without_faults_the_proxy_only_records() {
    let began = Instant::now();
    let server = RedisServer::start().await;
    let proxy = Proxy::to_port(server.port()).await;
    assert_ne!(proxy.port(), server.port());
    let client = Plain::connect(proxy.url()).await;
    assert_eq!(client.incr().await, Ok(Value::Int(1)));
    assert_eq!(proxy.count(named("incr")), 1);
    let commands = proxy.commands();
    let last = commands.last().expect("INCR was sent");
    assert_eq!(
        (last.connection, &last.args[..]),
        (1, &["INCR".to_owned(), "n".to_owned()][..])
    );
    assert!((began..=Instant::now()).contains(&last.at));
    assert_eq!(proxy.connections(), 1);
    drop(client);
    eventually(SOON, "the client left", async || proxy.connections() == 0).await;
    assert_eq!(proxy.counts(), Default::default());
}

#[tokio::test]
async fn wait_for_returns_when_enough_commands_were_sent() {
    let (_server, proxy, client) = connected().await;
    tokio::join!(proxy.wait_for(named("INCR"), 3), async {
        for _ in 0..3 {
            client.incr().await.expect("nothing is wrong");
        }
    });
}

#[tokio::test]
async fn each_direction_has_its_own_delay_and_replies_stay_in_order() {
    let (_server, proxy, client) = connected().await;
    let delay = PATIENCE / 2;
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.heal();
        proxy.delay(direction, delay);
        let before = proxy.counts().delayed;
        let (replies, took) = timed(join_all((0..40).map(|_| client.incr()))).await;
        let numbers = replies.into_iter().map(|reply| match reply {
            Ok(Value::Int(number)) => number,
            reply => panic!("it is only late: {reply:?}"),
        });
        assert_eq!(numbers.collect::<BTreeSet<_>>().len(), 40);
        // A delay is not a throttle: forty delays would be longer.
        assert!(took >= delay && took < SOON, "{direction:?} took {took:?}");
        assert_eq!(proxy.counts().delayed, before + 40);
    }
}

#[tokio::test]
async fn a_request_in_a_blackhole_is_not_executed_until_it_heals() {
    let (server, proxy, client) = connected().await;
    proxy.blackhole(Direction::ToServer);
    assert!(client.incr_is_unanswered().await);
    eventually(SOON, "it is in the blackhole", async || {
        proxy.counts().blackholed == 1
    })
    .await;
    assert_eq!(proxy.connections(), 1);
    assert!(!server.redis().await.exists("n").await);
    proxy.heal();
    let redis = server.redis().await;
    eventually(SOON, "the request arrived", async || {
        redis.exists("n").await
    })
    .await;
}

#[tokio::test]
async fn a_reply_in_a_blackhole_is_lost_but_the_command_ran() {
    let (server, proxy, client) = connected().await;
    proxy.blackhole(Direction::ToClient);
    assert!(client.incr_is_unanswered().await);
    let redis = server.redis().await;
    eventually(SOON, "it ran", async || redis.exists("n").await).await;
    assert_eq!(redis.ask::<i64>(&["GET", "n"]).await, 1);
    eventually(SOON, "the reply is in the blackhole", async || {
        proxy.counts().blackholed >= 1
    })
    .await;
    assert!(
        Plain::try_connect(proxy.url()).await.is_err(),
        "new connections are dark as well"
    );
    proxy.heal();
    assert_eq!(client.incr().await, Ok(Value::Int(2)));
}

#[tokio::test]
async fn refusing_affects_new_connections_only() {
    let (_server, proxy, client) = connected().await;
    proxy.refuse();
    assert!(Plain::try_connect(proxy.url()).await.is_err());
    assert_eq!(client.incr().await, Ok(Value::Int(1)));
    eventually(SOON, "it was refused", async || proxy.counts().refused >= 1).await;
    proxy.heal();
    Plain::connect(proxy.url()).await;
}

#[tokio::test]
async fn cut_connections_end_and_new_ones_work() {
    let (_server, proxy, client) = connected().await;
    assert_eq!(proxy.cut_all(), 1);
    assert!(
        client
            .incr()
            .await
            .expect_err("it is closed")
            .is_unrecoverable_error()
    );
    assert_eq!(proxy.counts().cut, 1);
    assert_eq!(
        Plain::connect(proxy.url()).await.incr().await,
        Ok(Value::Int(1))
    );
}

#[tokio::test]
async fn a_reset_sends_rst_and_a_cut_does_not() {
    use tokio::io::AsyncReadExt;

    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    for reset in [true, false] {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", proxy.port()))
            .await
            .unwrap();
        eventually(SOON, "it is accepted", async || proxy.connections() == 1).await;
        let ended = if reset {
            proxy.reset_all()
        } else {
            proxy.cut_all()
        };
        assert_eq!(ended, 1);
        let end = stream.read(&mut [0]).await.map_err(|error| error.kind());
        let rst = Err(std::io::ErrorKind::ConnectionReset);
        assert_eq!(end, if reset { rst } else { Ok(0) });
    }
    assert_eq!((proxy.counts().reset, proxy.counts().cut), (1, 1));
}

#[tokio::test]
async fn a_connection_is_cut_after_a_number_of_bytes() {
    let request = b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".len();
    for (bytes, executed) in [(request - 1, false), (request, true)] {
        let (server, proxy, client) = connected().await;
        proxy.cut_after_bytes(Direction::ToServer, bytes);
        assert!(client.incr().await.is_err());
        assert_eq!(proxy.counts().cut_after_bytes, 1);
        let redis = server.redis().await;
        if executed {
            eventually(SOON, "the whole request ran", async || {
                redis.exists("n").await
            })
            .await;
        } else {
            assert!(!redis.exists("n").await);
        }
    }
    let (server, proxy, client) = connected().await;
    proxy.cut_after_bytes(Direction::ToClient, 2);
    assert!(client.incr().await.is_err());
    assert_eq!(proxy.counts().cut_after_bytes, 1);
    assert_eq!(server.redis().await.ask::<i64>(&["GET", "n"]).await, 1);
}

#[tokio::test]
async fn a_killed_server_closes_its_connections_through_the_proxy() {
    let (server, proxy, client) = connected().await;
    server.kill();
    assert!(client.incr().await.is_err());
    assert!(Plain::try_connect(proxy.url()).await.is_err());
    assert_eq!(proxy.counts().cut, 0, "it was the server, not the proxy");
    eventually(SOON, "the proxy found no server", async || {
        proxy.counts().unreachable >= 1
    })
    .await;
}

#[tokio::test]
async fn the_proxy_works_while_the_worker_of_the_test_is_starved() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    // The client has its own thread, so only a frozen proxy would delay it.
    let elsewhere = Background::new("client");
    let url = proxy.url().to_owned();
    let replied = elsewhere
        .spawn(async move { timed(async { Plain::connect(&url).await.incr().await }).await });
    let began = Instant::now();
    std::thread::sleep(5 * PATIENCE);
    let starved = began.elapsed();
    let (reply, took) = replied.await.expect("it only connects");
    assert_eq!(reply, Ok(Value::Int(1)));
    assert!(took < starved, "it took {took:?}");
}

async fn connected() -> (RedisServer, Proxy, Plain) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = Plain::connect(proxy.url()).await;
    (server, proxy, client)
}
