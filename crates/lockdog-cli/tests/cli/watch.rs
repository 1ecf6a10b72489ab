//! `lockdog watch`.

use lockdog::Client;

use crate::program::{lockdog, lockdog_at};
use crate::support::prelude::SOON;
use crate::support::{Action, Proxy, RedisServer, eventually, named};

#[tokio::test]
async fn each_change_is_reported_until_the_lock_is_free() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    let args = [
        "watch",
        "orders",
        "--interval",
        "20ms",
        "--until",
        "free",
        "--json",
    ];
    let running = lockdog(&server, &args).start();
    // Each scan of `watch` asks for the number of listeners.
    let asked = async || {
        let stats = redis.commandstats().await;
        stats.get("pubsub|numsub").copied().unwrap_or(0)
    };
    eventually(SOON, "it polls", async || asked().await >= 2).await;
    let again = lock.lock().await.unwrap();
    // A scan that began before the change may end after it, so only the second scan has certainly seen
    // it.
    let before = asked().await;
    eventually(SOON, "it has seen it", async || asked().await >= before + 2).await;
    redis.cmd(&["PERSIST", "orders"]).await;
    let before = asked().await;
    eventually(SOON, "it has seen it", async || asked().await >= before + 2).await;
    again.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    let ended = running.end().await.code(0);
    let lines = ended.json_lines();
    let events: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["event"].as_str())
        .collect();
    for wanted in ["held", "count", "ttl_gone", "free"] {
        assert!(events.contains(&wanted), "{wanted} is not in {events:?}");
    }
    assert_eq!((events[0], events[events.len() - 1]), ("held", "free"));
    assert!(
        lines
            .iter()
            .all(|line| line["schema"] == 1 && line["key"] == "orders")
    );
    // In other commands `holders` is a list.
    for line in &lines {
        let count = u64::from(!line["holder"].is_null());
        assert_eq!(line["holder_count"], count, "{line}");
        assert!(line.get("holders").is_none(), "{line}");
    }
}

#[tokio::test]
async fn a_time_limit_ends_it_with_1() {
    let server = RedisServer::start().await;
    let args = ["watch", "orders", "--until", "held", "--timeout", "4s"];
    let ended = lockdog(&server, &args).end().await.code(1);
    assert!(ended.stdout.starts_with("orders  free"), "{}", ended.stdout);
    // One round of queries is enough.
    let args = ["watch", "orders", "--until", "free", "--timeout", "0s"];
    eventually(SOON, "it queries once", async || {
        lockdog(&server, &args).end().await.status.success()
    })
    .await;
}

#[tokio::test]
async fn the_last_round_is_at_the_time_limit() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("orders");
    let args = ["watch", "orders", "--until", "free", "--timeout", "3s"];
    let args = [&args[..], &["--interval", "10m"]].concat();
    // On a busy machine the first round may end after the limit, and the last one may take too long.
    eventually(SOON, "it sees the release", async || {
        let guard = lock.lock().await.unwrap();
        redis.reset_stats().await;
        let running = lockdog(&server, &args).start();
        // Each round ends with this query.
        eventually(SOON, "it has queried once", async || {
            redis.commandstats().await.contains_key("pubsub|numsub")
        })
        .await;
        guard.unlock().await.unwrap();
        running.end().await.status.success()
    })
    .await;
}

#[tokio::test]
async fn a_time_limit_ends_it_although_the_server_is_silent() {
    let server = RedisServer::start().await;
    server.pause();
    let args = ["watch", "orders", "--timeout", "1s"];
    let args = [&args[..], &["--command-timeout", "10m"]].concat();
    let ended = lockdog(&server, &args).end().await.code(1);
    assert_eq!(ended.stdout, "");
    server.resume();
}

#[tokio::test]
async fn a_first_query_without_an_answer_is_repeated() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    // The connection stays silent for the rest of that query.
    let silence = proxy.on(named("HSCAN"), Action::DropReply);
    let args = ["watch", "orders", "--until", "free"];
    let args = [&args[..], &["--command-timeout", "4s"]].concat();
    let ended = lockdog_at(proxy.url(), &args).end().await.code(0);
    assert_eq!(silence.hits(), 1);
    let ended = ended.complains("the state of orders is not known");
    assert!(ended.stdout.starts_with("orders  free"), "{}", ended.stdout);
}

#[tokio::test]
async fn a_key_that_never_has_a_holder_is_not_free() {
    let server = RedisServer::start().await;
    server.redis().await.cmd(&["SET", "text", "x"]).await;
    let client = Client::connect(server.url()).await.unwrap();
    let seats = client.semaphore("seats");
    assert!(seats.try_set_permits(2).await.unwrap());
    let _permit = seats.acquire().await.unwrap();
    for (key, kind) in [("text", "no lock (string)"), ("seats", "semaphore")] {
        let args = ["watch", key, "--until", "free"];
        let ended = lockdog(&server, &args).end().await.code(125);
        let what = format!("{key} is {kind}, which has no holder to watch");
        assert_eq!(ended.complains(&what).stdout, "");
    }
}

#[tokio::test]
async fn an_unknown_state_does_not_end_a_watch() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = Client::connect(server.url()).await.unwrap();
    let busy = client.lock("busy").lock().await.unwrap();
    let looks_at = |key: &'static str| {
        move |words: &[String]| words[0].eq_ignore_ascii_case("hscan") && words[1] == key
    };
    let args = ["watch", "lost", "busy", "--until", "free", "--json"];
    let args = [
        &args[..],
        &["--interval", "20ms", "--command-timeout", "1500ms"],
    ]
    .concat();
    let running = lockdog_at(proxy.url(), &args).start();
    proxy.wait_for(looks_at("busy"), 2).await;
    // It was free, and from now on its state is not known.
    let silence = proxy.on(looks_at("lost"), Action::DropReply).always();
    let lost = client.lock("lost").lock().await.unwrap();
    silence.wait_hits(1).await;
    busy.unlock().await.unwrap();
    // The other lock was seen as free.
    silence.wait_hits(silence.hits() + 1).await;
    silence.remove();
    let looks = proxy.count(looks_at("lost"));
    proxy.wait_for(looks_at("lost"), looks + 2).await;
    lost.unlock().await.unwrap();
    let ended = running.end().await.code(0);
    let lines = ended.json_lines();
    let of_lost = lines.iter().filter(|line| line["key"] == "lost");
    let states: Vec<&str> = of_lost
        .filter_map(|line| line["event"].as_str())
        .filter(|event| ["free", "held"].contains(event))
        .collect();
    assert_eq!(states, ["free", "held", "free"]);
    // Once, however many queries were not answered.
    ended.complains("the state of lost is not known");
}
