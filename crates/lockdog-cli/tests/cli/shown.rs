//! `lockdog ls`, `inspect` and `top --once`: what they show of locks of lockdog and Redisson.

use lockdog::Client;

use crate::program::{Files, end_of_wait, lockdog, lockdog_at, three_servers, urls};
use crate::support::prelude::{LONG, SOON};
use crate::support::redisson::Redisson;
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn a_lock_of_a_redisson_thread_is_shown_and_waited_for() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let t1 = java.thread("t1");
    t1.lock("orders").await;
    t1.lock("orders").await;
    let field = t1.field().await;
    let ended = lockdog(&server, &["inspect", "orders", "--json"])
        .end()
        .await
        .code(0);
    let seen = ended.json();
    assert_eq!(
        (&seen["schema"], &seen["kind"]),
        (&1.into(), &"reentrant".into())
    );
    assert_eq!(
        (&seen["held"], &seen["key"]),
        (&true.into(), &"orders".into())
    );
    let holder = &seen["holders"][0];
    assert_eq!(
        (&holder["by"], &holder["count"]),
        (&"redisson".into(), &2.into())
    );
    assert_eq!(holder["field"], field);
    let (client, thread) = field.split_once(':').unwrap();
    assert_eq!(
        (&holder["client"], &holder["owner"]),
        (&client.into(), &thread.into())
    );
    assert!(holder["hold"].is_null());
    let ttl = seen["ttl_ms"].as_u64().unwrap();
    assert!((1..=30_000).contains(&ttl), "{ttl}");
    let ended = lockdog(&server, &["inspect", "orders"]).end().await.code(0);
    let line = format!("Redisson, thread {thread} of a JVM");
    assert!(ended.stdout.contains(&line), "{}", ended.stdout);

    end_of_wait(|| lockdog(&server, &["run", "-w", "4s", "orders", "true"]))
        .await
        .code(75);
    let files = Files::new();
    let ran = files.path("ran").display().to_string();
    let running = lockdog(
        &server,
        &["run", "orders", "sh", "-c", "date +%s%N > \"$0\"", &ran],
    );
    let running = running.start();
    eventually(SOON, "it waits", async || {
        !redis.channels().await.is_empty()
    })
    .await;
    t1.unlock("orders").await.unwrap();
    assert!(files.text("ran").is_empty(), "Java still holds it once");
    t1.unlock("orders").await.unwrap();
    // Without Java's message the waiter would wait for a poll cap, and without polling for the TTL.
    running.end().await.code(0);
    assert!(!files.text("ran").is_empty());
    // The lock is free again.
    lockdog(&server, &["inspect", "orders"]).end().await.code(1);
}

#[tokio::test]
async fn a_lock_of_a_lockdog_run_is_shown_with_the_address_of_its_client() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let ready = files.path("ready").display().to_string();
    let (reader, writer) = std::io::pipe().unwrap();
    let args = [
        "run",
        "orders",
        "sh",
        "-c",
        "echo $LOCKDOG_FIELD > \"$0\"; read line",
        &ready,
    ];
    let running = lockdog(&server, &args).stdin(reader).start();
    let field = files.lines("ready").await[0].clone();
    let ended = lockdog(&server, &["inspect", "orders", "-o", "json"])
        .end()
        .await
        .code(0);
    let seen = ended.json();
    let holder = &seen["holders"][0];
    assert_eq!(
        (&holder["field"], &holder["by"]),
        (&field.as_str().into(), &"lockdog".into())
    );
    assert!(holder["hold"].as_u64().is_some());
    let connection = &holder["connections"][0];
    let address = connection["address"].as_str().unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{seen}");
    let id = holder["client"].as_str().unwrap();
    assert_eq!(connection["name"], format!("lockdog-cli/{id}"));
    let ended = lockdog(&server, &["inspect", "orders", "free"])
        .end()
        .await
        .code(1);
    let of_command = ended.stdout.contains("the command lockdog");
    assert!(of_command, "{}", ended.stdout);
    assert!(ended.stdout.contains("free: not held"), "{}", ended.stdout);
    drop(writer);
    running.end().await.code(1);
}

#[tokio::test]
async fn what_is_no_lock_and_what_never_ends_is_named() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis.cmd(&["SET", "text", "x"]).await;
    redis
        .cmd(&[
            "HSET",
            "stuck",
            "5f6b8a3e-26a7-4f6b-9c1e-0d2f3a4b5c6d:57",
            "1",
        ])
        .await;
    let ended = lockdog(&server, &["inspect", "text"]).end().await.code(1);
    assert!(
        ended.stdout.contains("no lock (string)"),
        "{}",
        ended.stdout
    );
    let ended = lockdog(&server, &["inspect", "stuck"]).end().await.code(0);
    assert!(ended.stdout.contains("never ends"), "{}", ended.stdout);
    let seen = lockdog(&server, &["inspect", "stuck", "--json"])
        .end()
        .await
        .json();
    assert_eq!(
        (&seen["persistent"], &seen["ttl_ms"]),
        (&true.into(), &serde_json::Value::Null)
    );
    // A lock name from another program must not control the terminal.
    let name = "a\u{1b}[31mb\u{9b}31m\u{202e}c\u{7f}";
    let field = "5f6b8a3e-26a7-4f6b-9c1e-0d2f3a4b5c6d:57";
    redis.cmd(&["HSET", name, field, "1"]).await;
    let ended = lockdog(&server, &["ls", "--color", "never"])
        .end()
        .await
        .code(0);
    let controls = |c: char| c.is_control() && c != '\n';
    let turns = |c: char| c == '\u{202e}';
    assert!(!ended.stdout.contains(controls), "{:?}", ended.stdout);
    assert!(!ended.stdout.contains(turns), "{:?}", ended.stdout);
    let ended = lockdog(&server, &["ls", "--json"]).end().await.code(0);
    assert!(!ended.stdout.contains(controls), "{:?}", ended.stdout);
    assert!(!ended.stdout.contains(turns), "{:?}", ended.stdout);
    let found = ended.json_lines();
    assert!(found.iter().any(|lock| lock["key"] == name), "{found:?}");
}

#[tokio::test]
async fn ls_finds_exactly_the_locks_among_many_keys_and_blocks_no_other_client() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let load = "for i = 1, 98000 do redis.call('SET', 's' .. i, i) end \
                for i = 1, 2000 do redis.call('HSET', 'h' .. i, 'name', i) end";
    redis.cmd(&["EVAL", load, "0"]).await;
    let client = Client::connect(server.url()).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..50 {
        let lock = client.lock(format!("lock:{number:02}"));
        guards.push(lock.lock().lease(LONG).await.unwrap());
    }
    redis
        .cmd(&["CONFIG", "SET", "slowlog-log-slower-than", "0"])
        .await;
    redis
        .cmd(&["CONFIG", "SET", "slowlog-max-len", "100000"])
        .await;
    redis.reset_stats().await;
    let ended = lockdog(&server, &["ls", "--json", "--pause", "0s"])
        .end()
        .await
        .code(0);
    let found: Vec<String> = ended
        .json_lines()
        .iter()
        .map(|lock| lock["key"].as_str().unwrap().to_owned())
        .collect();
    let wanted: Vec<String> = (0..50).map(|number| format!("lock:{number:02}")).collect();
    assert_eq!(found, wanted);
    let stats = redis.commandstats().await;
    assert!(
        !stats.contains_key("keys") && stats["scan"] > 100,
        "{stats:?}"
    );
    // The median of the server's own time for each command, without the load of the machine.
    let log: Vec<Vec<redis::Value>> = redis.ask(&["SLOWLOG", "GET", "-1"]).await;
    let mut times: Vec<i64> = log
        .iter()
        .map(|entry| match entry[2] {
            redis::Value::Int(micros) => micros,
            _ => panic!("{entry:?}"),
        })
        .collect();
    times.sort_unstable();
    let middle = times[times.len() / 2];
    assert!(times.len() > 1_000 && middle < 5_000, "{middle} us");
    let ended = lockdog(&server, &["ls", "lock:1*"]).end().await.code(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 11, "{}", ended.stdout);
    assert!(
        lines[0].starts_with("KEY") && lines[0].ends_with("LISTENERS"),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].starts_with("lock:10  reentrant  lockdog"),
        "{}",
        lines[1]
    );
    let stopped = lockdog(&server, &["ls", "--max-keys", "5000", "none:*"])
        .end()
        .await;
    stopped.code(125).complains("--max-keys");
    lockdog(&server, &["ls", "none:*"]).end().await.code(1);
    let limited = lockdog(&server, &["ls", "--limit", "3", "--json"])
        .end()
        .await
        .code(0);
    assert_eq!(limited.json_lines().len(), 3);
    assert!(limited.stderr.contains("--limit"), "{}", limited.stderr);
}

#[tokio::test]
async fn top_prints_its_table_once_without_a_terminal() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let ended = lockdog(&server, &["top", "--once"]).end().await.code(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.stdout);
    assert!(
        lines[0].starts_with("KEY") && lines[0].contains("SINCE"),
        "{}",
        lines[0]
    );
    assert!(lines[1].starts_with("orders  lockdog"), "{}", lines[1]);
    assert!(lines[1].contains('≥'), "{}", lines[1]);
    lockdog(&server, &["top"])
        .end()
        .await
        .code(125)
        .complains("--once");
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_quorum_is_shown_server_by_server() {
    let servers = three_servers().await;
    let urls = urls(&servers);
    let mut guards = Vec::new();
    for server in &servers[..2] {
        let client = Client::connect(server.url()).await.unwrap();
        guards.push(client.lock("orders").lock().lease(LONG).await.unwrap());
    }
    servers[2].kill();
    let args = ["--command-timeout", "4s", "inspect", "orders", "--json"];
    let seen = lockdog_at(&urls, &args).end().await.code(0).json();
    assert_eq!((&seen["held_on"], &seen["need"]), (&2.into(), &2.into()));
    assert!(seen["instances"][2]["error"].is_string(), "{seen}");
    servers[1].kill();
    lockdog_at(&urls, &args).end().await.code(1);
}

/// A server is often down when a RedLock is in the log.
#[tokio::test]
async fn a_hash_is_found_although_a_server_of_the_quorum_is_down() {
    let servers = three_servers().await;
    let urls = urls(&servers);
    let client = Client::connect(servers[2].url()).await.unwrap();
    let lock = client.lock("orders");
    let guard = lock.lock().lease(LONG).await.unwrap();
    servers[0].kill();
    let hash = lock.hash();
    let args = ["inspect", "--hash", &hash, "--json"];
    let args = [&args[..], &["--command-timeout", "4s"]].concat();
    let seen = lockdog_at(&urls, &args).end().await.code(1).json();
    assert_eq!(
        (&seen["key"], &seen["held_on"]),
        (&"orders".into(), &1.into())
    );
    assert!(seen["instances"][0]["error"].is_string(), "{seen}");
    guard.unlock().await.unwrap();
    // The server that is down may have such a lock.
    lockdog_at(&urls, &args).end().await.code(125);
}

#[tokio::test]
async fn ls_lists_the_locks_of_the_servers_that_answer() {
    let (mut servers, mut guards) = (Vec::new(), Vec::new());
    for name in ["one", "two", "three"] {
        let server = RedisServer::builder().password("hunter2").start().await;
        let client = Client::connect(server.url()).await.unwrap();
        guards.push(client.lock(name).lock().lease(LONG).await.unwrap());
        servers.push(server);
    }
    let urls = urls(&servers);
    servers[1].kill();
    let args = ["ls", "--json", "--command-timeout", "4s"];
    let ended = lockdog_at(&urls, &args).end().await.code(125);
    let keys: Vec<_> = ended
        .json_lines()
        .iter()
        .map(|lock| lock["key"].clone())
        .collect();
    assert_eq!(keys, ["one", "three"]);
    let ended = ended.complains(&format!("redis://127.0.0.1:{}/: ", servers[1].port()));
    assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_missing_permission_is_named_with_its_fix() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis
        .cmd(&[
            "ACL",
            "SETUSER",
            "narrow",
            "on",
            ">pw",
            "~*",
            "&*",
            "+@all",
            "-scan",
            "-client|list",
        ])
        .await;
    let client = Client::connect(server.url()).await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let url = format!("redis://narrow:pw@127.0.0.1:{}", server.port());
    for args in [&["ls"][..], &["top", "--once"]] {
        let ended = lockdog_at(&url, args).end().await.code(125);
        ended.complains("ACL SETUSER <user> +scan");
    }
    let ended = lockdog_at(&url, &["inspect", "orders"]).end().await.code(0);
    assert!(
        ended.stdout.contains("not permitted (client|list)"),
        "{}",
        ended.stdout
    );
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn the_hash_in_a_log_leads_to_the_lock_and_its_holder() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let (orders, other) = (client.lock("orders:42"), client.lock("orders:43"));
    let guard = orders.lock().await.unwrap();
    let other = other.lock().await.unwrap();
    let hash = orders.hash();
    let found = lockdog(&server, &["ls", "--hash", &hash, "--json"])
        .end()
        .await
        .code(0)
        .json();
    assert_eq!(
        (&found["key"], &found["hash"]),
        (&"orders:42".into(), &(*hash).into())
    );
    let table = lockdog(&server, &["ls"]).end().await.code(0).stdout;
    let row = table
        .lines()
        .find(|line| line.contains("orders:42"))
        .unwrap();
    assert!(row.contains(&hash), "{table}");
    // A user may copy the hash with spaces and in upper case.
    let copied = format!(" {} ", hash.to_uppercase());
    let seen = lockdog(&server, &["inspect", "--hash", &copied])
        .end()
        .await
        .code(0)
        .stdout;
    assert!(seen.starts_with("orders:42: held"), "{seen}");
    assert!(
        seen.contains(&hash) && seen.contains(&client.id().to_string()),
        "{seen}"
    );
    guard.unlock().await.unwrap();
    let gone = lockdog(&server, &["inspect", "--hash", &hash])
        .end()
        .await
        .code(1);
    gone.complains("hash");
    lockdog(&server, &["inspect"]).end().await.code(2);
    other.unlock().await.unwrap();
}
