//! `lockdog release`: only the holder that was shown loses the lock.

use lockdog::error::LostReason;
use lockdog::{Client, RedLock, Value};

use crate::program::{lockdog, lockdog_at, urls};
use crate::support::prelude::{SOON, ms};
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn only_the_named_holder_loses_the_lock_and_learns_it() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::builder()
        .url(server.url())
        .watchdog_lease(ms(9_000));
    let client = client.build().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let field = client.holds()[0].field.clone();
    let stale = format!("{field}0");
    for (args, text) in [
        (&["release", "orders"][..], "--force"),
        (&["release", "orders", "--force"], "--holder"),
        (&["release", "orders", "--force", "--yes"], "--holder"),
        (
            &["release", "orders", "--force", "--holder", &field],
            "--yes",
        ),
    ] {
        lockdog(&server, args).end().await.code(125).complains(text);
    }
    let args = ["release", "orders", "--force", "--yes", "--holder", &stale];
    let ended = lockdog(&server, &args).end().await.code(1);
    assert!(
        ended
            .stdout
            .contains(&format!("held by lockdog {field} now")),
        "{}",
        ended.stdout
    );
    assert!(redis.exists("orders").await && guard.is_valid());
    let args = [
        "release", "orders", "--force", "--yes", "--holder", &field, "--json",
    ];
    let ended = lockdog(&server, &args).end().await.code(0).json();
    assert_eq!(
        (&ended["released"], &ended["from"]),
        (&true.into(), &field.as_str().into())
    );
    assert!(!redis.exists("orders").await);
    let lost = tokio::time::timeout(SOON, guard.lost())
        .await
        .expect("a renewal shows the loss");
    assert_eq!(lost.reason(), LostReason::NotOurs);
    let ended = lockdog(&server, &args).end().await.code(1).json();
    assert_eq!(
        (&ended["released"], &ended["held_by"]),
        (&false.into(), &serde_json::Value::Null)
    );
}

#[tokio::test]
async fn a_red_lock_is_released_on_a_quorum_or_on_no_server() {
    let mut servers = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let server = RedisServer::start().await;
        clients.push(Client::connect(server.url()).await.unwrap());
        servers.push(server);
    }
    let urls = urls(&servers);
    let lock = RedLock::new(clients.iter().map(|client| client.lock("orders")));
    let guard = lock.lock().await.unwrap();
    let mut fields = Vec::new();
    eventually(SOON, "each server has granted it", async || {
        fields.clear();
        for server in &servers {
            let hash = server.redis().await.hash("orders").await;
            fields.extend(hash.into_keys());
        }
        fields.len() == 3
    })
    .await;

    let release = async |fields: &[&str]| {
        let mut args = vec![
            "--command-timeout",
            "4s",
            "release",
            "orders",
            "--force",
            "--yes",
            "--json",
        ];
        for field in fields {
            args.extend(["--holder", field]);
        }
        lockdog_at(&urls, &args).end().await
    };
    let [one, two, three] = [&*fields[0], &*fields[1], &*fields[2]];
    let stale = format!("{two}0");
    for (named, held_by) in [(&[one][..], two), (&[one, &stale, "x"], two)] {
        let ended = release(named).await.code(1).json();
        assert_eq!(ended["released_on"], 0, "{ended}");
        assert_eq!(ended["instances"][1]["held_by"], held_by, "{ended}");
    }
    for server in &servers {
        assert!(server.redis().await.exists("orders").await);
    }

    servers[2].kill();
    let ended = release(&[one, two, three]).await.code(0).json();
    let counts = (&ended["released"], &ended["released_on"], &ended["need"]);
    assert_eq!(counts, (&true.into(), &2.into(), &2.into()), "{ended}");
    assert_eq!(ended["instances"][0]["from"], one, "{ended}");
    assert!(ended["instances"][2]["error"].is_string(), "{ended}");
    for server in &servers[..2] {
        assert!(!server.redis().await.exists("orders").await);
    }
    let ended = release(&[one, two, three]).await.code(1);
    assert_eq!(ended.json()["free_on"], 2);
    drop(guard);

    let again = clients[0].lock("orders").lock().await.unwrap();
    let field = clients[0].holds()[0].field.clone();
    servers[1].kill();
    let ended = release(&[&field]).await.code(1).json();
    assert_eq!(ended["released_on"], 0, "{ended}");
    assert_eq!(ended["instances"][0]["held_by"], field, "{ended}");
    assert_eq!(ended["instances"][1]["place"], 2, "{ended}");
    assert!(servers[0].redis().await.exists("orders").await);
    drop(again);
}

#[tokio::test]
async fn each_reader_and_the_waiters_of_a_fair_lock_are_shown() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let rw = client.read_write_lock("rw");
    let first = rw.read().lock().await.unwrap();
    let second = rw
        .read()
        .lock()
        .owner(&lockdog::Owner::new())
        .await
        .unwrap();
    let several = ["release", "rw", "--force", "--yes", "--holder"];
    let fields: Vec<String> = client.holds().into_iter().map(|hold| hold.field).collect();
    assert_eq!(fields.len(), 2);
    lockdog(&server, &[&several[..], &[&fields[0]]].concat())
        .end()
        .await
        .code(0);
    let left = rw.holders().await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].field(), fields[1]);
    drop((first, second));

    let fair = client.fair_lock("fair").lock().await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let waiting = other.fair_lock("fair");
    let waiter = tokio::spawn(async move { waiting.lock().await.map(drop) });
    eventually(SOON, "it waits in the queue", async || {
        client.inspect("fair").await.unwrap().queued == 1
    })
    .await;
    let held = client
        .holds()
        .into_iter()
        .find(|hold| hold.lock == "fair")
        .unwrap();
    let args = [
        "release",
        "fair",
        "--force",
        "--yes",
        "--holder",
        &held.field,
    ];
    lockdog(&server, &args).end().await.code(0);
    tokio::time::timeout(SOON, waiter)
        .await
        .expect("it is first in the queue")
        .unwrap()
        .unwrap();
    drop(fair);
}

#[tokio::test]
async fn the_next_candidate_leads_after_the_release_of_an_election() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let lead = client.election("leader").campaign("a").await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let candidate = other.election("leader");
    let candidate = tokio::spawn(async move { candidate.campaign("b").await });
    eventually(SOON, "it waits in the queue", async || {
        client.inspect("leader").await.unwrap().queued == 1
    })
    .await;
    let field = client.holds().remove(0).field;
    let args = ["release", "leader", "--force", "--yes", "--holder", &field];
    lockdog(&server, &args).end().await.code(0);
    let next = tokio::time::timeout(SOON, candidate).await;
    let next = next.expect("it is first in the queue").unwrap().unwrap();
    assert!(next.term() > lead.term());
}

#[tokio::test]
async fn locks_of_values_of_a_group_are_refused_with_what_to_do() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let values = [Value::utf8("a")];
    let guard = client.group_lock("group", values).lock().await.unwrap();
    let field = client.holds().remove(0).field;
    let args = ["release", "group", "--force", "--yes", "--holder", &field];
    let ended = lockdog(&server, &args).end().await;
    ended.code(125).complains("stop its client");
    guard.unlock().await.expect("it is still held");
}

#[tokio::test]
async fn a_semaphore_is_refused_with_what_releases_its_permits() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let refused = async |name: &str, advice: &str| {
        let args = ["release", name, "--force", "--yes", "--holder", "any"];
        let ended = lockdog(&server, &args).end().await;
        ended.code(125).complains(advice);
    };
    let seats = client.semaphore("seats");
    seats.try_set_permits(1).await.unwrap();
    let permit = seats.acquire().await.unwrap();
    refused("seats", "`reclaim`").await;
    permit.release().await.expect("it is still in use");
    let desks = client.permit_semaphore("desks");
    desks.try_set_permits(1).await.unwrap();
    let permit = desks.acquire().await.unwrap();
    refused("desks", "ends with its lease").await;
    permit.release().await.expect("it is still in use");
}

#[tokio::test]
async fn what_is_no_lock_is_not_touched() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis.cmd(&["HSET", "user", "name", "Ada"]).await;
    let args = ["release", "user", "--force", "--yes", "--holder", "name"];
    lockdog(&server, &args)
        .end()
        .await
        .code(125)
        .complains("no lock (hash)");
    assert_eq!(redis.hash("user").await["name"], "Ada");
}
