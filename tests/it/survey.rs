//! The locks and connections of all clients, as one client finds them.

use std::collections::BTreeMap;
use std::time::Instant;

use lockdog::report::{LockInfo, LockKind, Ttl};
use lockdog::request::Locks;
use lockdog::{Client, Error, Owner, Value};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::prelude::{LONG, SOON, ms};
use crate::support::security::documented;
use crate::support::{Action, Cluster, Gate, Proxy, RedisServer, eventually, named};

async fn all(mut locks: Locks) -> BTreeMap<String, LockInfo> {
    let mut found = BTreeMap::new();
    while let Some(lock) = locks.next().await.unwrap() {
        let key = lock.key.clone();
        assert!(found.insert(key, lock).is_none(), "a key comes once");
    }
    found
}

#[tokio::test]
async fn locks_of_each_kind_are_found_with_their_holders() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let holder = Client::connect(server.url()).await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let plain = holder.lock("plain").lock().await.unwrap();
    let again = holder.lock("plain").lock().await.unwrap();
    let fenced = holder.fenced_lock("fenced").lock().await.unwrap();
    let fair = holder.fair_lock("fair").lock().await.unwrap();
    let waiting = client.fair_lock("fair");
    let waiter = tokio::spawn(async move { waiting.lock().await });
    let lead = holder.election("election").campaign("me").await.unwrap();
    let rw = holder.read_write_lock("rw");
    let write = rw.write().lock().await.unwrap();
    let read = rw.read().lock().await.unwrap();
    let values = [Value::utf8("a"), Value::utf8("b")];
    let group = holder.group_lock("group", values).lock().await.unwrap();
    let seats = holder.permit_semaphore("seats");
    seats.try_set_permits(3).await.unwrap();
    let seat = seats.acquire().await.unwrap();
    let counted = holder.semaphore("counted");
    counted.try_set_permits(5).await.unwrap();
    let permit = counted.acquire_many(2).await.unwrap();
    // Keys of other programs.
    redis.cmd(&["HSET", "user:1", "name", "Ada"]).await;
    redis.cmd(&["SET", "number", "5"]).await;
    redis.cmd(&["RPUSH", "list", "x"]).await;
    eventually(SOON, "the waiter is in the queue", async || {
        client.inspect("fair").await.unwrap().queued == 1
    })
    .await;

    let found = all(client.locks("*").with_semaphores()).await;
    let kinds = |kind: &LockKind| kind.as_str();
    let shown: Vec<(&str, &str, usize)> = found
        .iter()
        .map(|(key, it)| (key.as_str(), kinds(&it.kind), it.holders.len()))
        .collect();
    assert_eq!(
        shown,
        [
            ("counted", "semaphore", 0),
            ("election", "election", 1),
            ("fair", "fair", 1),
            ("fenced", "fenced", 1),
            ("group", "group", 1),
            ("plain", "reentrant", 1),
            ("rw", "read_write", 2),
            ("seats", "permit_semaphore", 0),
        ]
    );
    for (key, lock) in &found {
        let of_holder = lock
            .holders
            .iter()
            .all(|it| it.client_id() == Some(holder.id()));
        assert!(
            of_holder && lock.holders.iter().all(|it| !it.ours),
            "{key}: {lock:?}"
        );
    }
    assert_eq!(found["plain"].holders[0].count, 2);
    assert_eq!(found["fenced"].token, fenced.token());
    assert_eq!(
        (found["seats"].permits, found["counted"].permits),
        (Some(2), Some(3))
    );
    let [writer, reader] = &found["rw"].holders[..] else {
        unreachable!("it has two")
    };
    assert!(writer.is_write() && !reader.is_write());
    assert!(matches!(found["plain"].ttl, Some(Ttl::Expires(ttl)) if ttl <= ms(30_000)));
    assert!(found["plain"].slot.is_none());
    assert_eq!(all(client.locks("f*")).await.len(), 2, "the pattern counts");

    for (key, kind) in [("number", "string"), ("list", "list"), ("user:1", "hash")] {
        let seen = client.inspect(key).await.unwrap();
        assert_eq!(seen.kind, LockKind::Foreign(kind.to_owned()));
        assert!(!seen.is_held() && seen.listeners.is_none());
    }
    let free = client.inspect("free").await.unwrap();
    assert_eq!(
        (free.kind, free.ttl, free.listeners),
        (LockKind::Free, None, Some(0))
    );
    assert!(holder.inspect("plain").await.unwrap().holders[0].ours);

    // The counter of a fenced lock that is held is a part of the lock.
    assert!(all(client.locks("*").with_counters()).await.len() == 6);
    let token = fenced.token();
    fenced.unlock().await.unwrap();
    for pattern in ["*", "fen*"] {
        let found = all(client.locks(pattern).with_counters()).await;
        let counter = &found["redisson_lock_token:{fenced}"];
        assert_eq!(counter.kind, LockKind::UnusedCounter);
        assert_eq!(counter.token, token);
    }

    drop((again, plain, fair, read, write, group, seat, permit));
    lead.resign().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
    holder.shutdown().await;
    client.shutdown().await;
}

#[tokio::test]
async fn listeners_are_counted_for_each_client_that_waits() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let others = [
        Client::connect(server.url()).await.unwrap(),
        Client::connect(server.url()).await.unwrap(),
    ];
    let waiting: Vec<_> = others
        .iter()
        .flat_map(|other| [other.lock("orders"), other.lock("orders")])
        .map(|lock| tokio::spawn(async move { lock.lock().owner(&Owner::new()).await.map(drop) }))
        .collect();
    eventually(SOON, "both clients listen", async || {
        client.inspect("orders").await.unwrap().listeners == Some(2)
    })
    .await;
    guard.unlock().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_lock_that_is_acquired_during_a_query_has_no_ttl_without_a_holder() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let proxy = Proxy::start(&server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(LONG);
    let client = client.build().await.unwrap();
    // From now on it has a connection, so HSCAN is sent first.
    client.inspect("orders").await.unwrap();
    redis.reset_stats().await;
    let gate = Gate::new();
    proxy.on(named("PTTL"), Action::HoldRequest(gate.clone()));
    let query = tokio::spawn(async move { client.inspect("orders").await });
    gate.wait_reached().await;
    eventually(SOON, "the server was asked for the fields", async || {
        redis.commandstats().await.contains_key("hscan")
    })
    .await;
    let holder = Client::connect(server.url()).await.unwrap();
    let guard = holder.lock("orders").lock().await.unwrap();
    gate.open();
    let seen = query.await.unwrap().unwrap();
    assert_eq!((seen.kind, seen.ttl), (LockKind::Free, None));
    assert!(seen.holders.is_empty());
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_scan_reads_every_key_once_and_never_uses_keys() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let load = "for i = 1, 3000 do redis.call('SET', 's' .. i, i) redis.call('HSET', 'h' .. i, 'name', i) end \
                for i = 1, 20000 do redis.call('HSET', 'large', 'f' .. i, i) end";
    redis.cmd(&["EVAL", load, "0"]).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(client.lock(format!("lock:{number}")).lock().await.unwrap());
    }
    redis.reset_stats().await;
    let mut locks = client.locks("*").pause(ms(1));
    assert!(!locks.is_done());
    let mut found = Vec::new();
    while let Some(lock) = locks.next().await.unwrap() {
        found.push(lock.key);
    }
    assert!(locks.is_done() && locks.scanned() >= 6_000);
    assert!(locks.next().await.unwrap().is_none(), "it stays so");
    found.sort_unstable();
    let mut wanted: Vec<String> = (0..20).map(|number| format!("lock:{number}")).collect();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    let stats = redis.commandstats().await;
    assert!(
        !stats.contains_key("keys") && !stats.contains_key("hgetall"),
        "{stats:?}"
    );
    // The client stops reading the large hash after its first page.
    assert!(stats["hscan"] <= 3_100, "{stats:?}");
}

/// The client does not read the whole hash. The order of its fields is random, so the one with the mode may be in the
/// part that is read.
#[tokio::test]
async fn a_read_lock_of_very_many_readers_is_known() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let load = "redis.call('HSET', 'crowd', 'mode', 'read') \
                for i = 1, 60000 do redis.call('HSET', 'crowd', ARGV[1] .. ':t' .. i .. '.1', 1) end";
    redis
        .cmd(&["EVAL", load, "0", &client.id().to_string()])
        .await;
    let seen = client.inspect("crowd").await.unwrap();
    assert_eq!(seen.kind, LockKind::ReadWrite);
    assert!(seen.holders.is_empty(), "their leases are over");
}

#[tokio::test]
async fn connections_have_the_id_of_their_client_in_their_names() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let other = Client::builder()
        .url(server.url())
        .client_name("billing/{id}/7");
    let other = other.build().await.unwrap();
    let connections = client.connections().await.unwrap();
    for name in [
        format!("lockdog/{}", client.id()),
        format!("billing/{}/7", other.id()),
    ] {
        let named = connections.iter().filter(|it| it.name == name);
        let named: Vec<_> = named.collect();
        assert_eq!(named.len(), 1, "{name}: {connections:?}");
        assert!(named[0].address.starts_with("127.0.0.1:"));
        assert_eq!(named[0].server, format!("127.0.0.1:{}", server.port()));
    }
}

#[tokio::test]
async fn a_forced_unlock_of_a_field_frees_only_that_holder() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let admin = Client::connect(server.url()).await.unwrap();
    let guard = client.lock("orders").lock().lease(LONG).await.unwrap();
    let field = admin.inspect("orders").await.unwrap().holders[0]
        .field()
        .to_owned();
    let force = |field: &str| admin.lock("orders").force_unlock().expecting_field(field);
    assert!(!force(&format!("{field}0")).await.unwrap());
    assert!(guard.is_valid() && client.lock("orders").is_locked().await.unwrap());
    assert!(force(&field).await.unwrap());
    assert!(!client.lock("orders").is_locked().await.unwrap());
    drop(guard);
}

#[tokio::test]
async fn a_user_with_the_documented_permissions_can_inspect_its_locks() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let rules = documented();
    let mut command = vec!["ACL", "SETUSER", "lockdog", "on", ">secret"];
    command.extend(rules.iter().map(String::as_str));
    redis.cmd(&command).await;
    let url = format!("redis://lockdog:secret@127.0.0.1:{}", server.port());
    let client = Client::connect(url).await.unwrap();
    let guard = client.lock("orders:1").lock().await.unwrap();
    let seen = client.inspect("orders:1").await.unwrap();
    assert_eq!((seen.kind, seen.holders.len()), (LockKind::Reentrant, 1));
    assert_eq!(seen.listeners, Some(0));
    let refused = client.locks("*").next().await.unwrap_err();
    assert!(
        matches!(&refused, Error::Refused { code, .. } if code == "NOPERM"),
        "{refused}"
    );
    let refused = client.connections().await.unwrap_err();
    assert!(matches!(&refused, Error::Refused { .. }), "{refused}");
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_cluster_shows_the_locks_of_all_its_masters_with_their_slots() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..12 {
        guards.push(
            client
                .lock(format!("survey:{number}"))
                .lock()
                .await
                .unwrap(),
        );
    }
    let found = all(client.locks("survey:*")).await;
    assert_eq!(found.len(), 12);
    let servers: std::collections::BTreeSet<_> = found.values().map(|it| &it.server).collect();
    assert_eq!(servers.len(), 3);
    for (key, lock) in &found {
        assert_eq!(lock.slot, Some(crate::support::cluster::slot(key)));
        assert!(lock.is_held() && lock.listeners == Some(0), "{lock:?}");
    }
    let names = client.connections().await.unwrap();
    let own = format!("lockdog/{}", client.id());
    assert!(names.iter().filter(|it| it.name == own).count() >= 3);
    for guard in guards {
        guard.unlock().await.unwrap();
    }
}

/// The fields of a reader whose client died stay for as long as others read, and those of an owner of a value for as
/// long as others use the group.
#[tokio::test]
async fn holders_whose_leases_are_over_are_not_shown() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let lock = client.read_write_lock("rw");
    let living = lock.read().lock().lease(LONG).await.unwrap();
    // Redisson's, and its second acquire lives on.
    let redisson = format!("{}:57", other.id());
    let dead = format!("{}:58", other.id());
    redis.cmd(&["HSET", "rw", &redisson, "2", &dead, "1"]).await;
    let second = format!("{{rw}}:{redisson}:rwlock_timeout:2");
    redis.cmd(&["SET", &second, "1"]).await;
    let group = client.group_lock("group", [Value::utf8("a")]);
    let value = group.lock().lease(LONG).await.unwrap();
    let free = Value::utf8("b");
    let over = other
        .group_lock("group", [free])
        .lock()
        .lease(LONG)
        .await
        .unwrap();
    let fields = redis.hash("group").await;
    let is_its = |field: &&String| {
        field.contains(&other.id().to_string()) && field.ends_with(":expire_time")
    };
    let ends = fields.keys().find(is_its).expect("it has a time");
    assert_eq!(holders(&client, "group").await.len(), 2);
    redis.cmd(&["HSET", "group", ends, "1700000000000"]).await;

    let of_client = format!("{}:", client.id());
    assert!(holders(&client, "group").await[0].starts_with(&of_client));
    assert_eq!(holders(&client, "group").await.len(), 1);
    let readers = holders(&client, "rw").await;
    assert_eq!(readers.len(), 2, "{readers:?}");
    assert!(readers.contains(&redisson) && readers.iter().any(|it| it.starts_with(&of_client)));
    let found = all(client.locks("*")).await;
    assert_eq!(
        (found["rw"].holders.len(), found["group"].holders.len()),
        (2, 1)
    );
    value.unlock().await.unwrap();
    let seen = client.inspect("group").await.unwrap();
    assert_eq!((seen.kind.as_str(), seen.is_held()), ("group", false));

    // Who may not check that sees all of them.
    let mut command = vec![
        "ACL",
        "SETUSER",
        "reader",
        "on",
        ">secret",
        "~rw",
        "~group",
        "~lockdog*",
    ];
    command.extend(["+hscan", "+pttl", "+client|setname", "+info", "+evalsha"]);
    redis.cmd(&command).await;
    let url = format!("redis://reader:secret@127.0.0.1:{}", server.port());
    let reader = Client::connect(url).await.unwrap();
    assert_eq!(holders(&reader, "group").await.len(), 1);
    assert_eq!(holders(&reader, "rw").await.len(), 3);
    drop((living, over));
}

/// The numbers of a client are read without a pause while 64 tasks contend for its lock. Half of the reads
/// may be slower, and two rounds of three, because other programs may use the processors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_numbers_of_a_busy_client_are_read_within_a_millisecond() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        let (lock, stop) = (client.lock("l"), stop.clone());
        tasks.spawn(async move {
            while !stop.is_cancelled() {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        });
    }
    eventually(SOON, "most tasks wait", async || {
        client.stats().waiters > 32
    })
    .await;
    let turns = client.stats().hand_overs_total;
    let reader = client.clone();
    let reads = tokio::task::spawn_blocking(move || {
        let read = || {
            let began = Instant::now();
            reader.stats();
            began.elapsed()
        };
        let median = |_| {
            let mut reads: Vec<_> = (0..2_000).map(|_| read()).collect();
            reads.sort_unstable();
            reads[reads.len() / 2]
        };
        (0..3).map(median).min().expect("three rounds")
    });
    let median = reads.await.unwrap();
    eventually(
        SOON,
        "the lock has been handed over meanwhile",
        async || client.stats().hand_overs_total > turns,
    )
    .await;
    stop.cancel();
    tasks.join_all().await;
    assert!(median < ms(1), "{median:?}");
}

async fn holders(client: &Client, name: &str) -> Vec<String> {
    let seen = client.inspect(name).await.unwrap();
    let fields = seen.holders.iter().map(|it| it.field().to_owned());
    fields.collect()
}
