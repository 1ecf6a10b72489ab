//! Findings about the permissions of the client's user. The command that a finding gives fixes it.

use std::time::Duration;

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::report::{Finding, FindingKind};
use lockdog::{AnyLock, Client, ClientBuilder, RedLock, Value};

use super::{SERVERS, findings, well_set_up};
use crate::support::{Binary, Redis, RedisServer, security};

/// The documented permissions are enough. For permissions that depend on the names of locks the finding
/// says that they are unknown.
#[tokio::test]
async fn a_user_with_the_documented_permissions_misses_none() {
    for binary in SERVERS {
        let (server, redis) = with_user(binary, &documented()).await;
        let client = client(&server).build().await.unwrap();
        let found = findings(&client).await;
        assert!(found.iter().all(|it| !it.is_known), "{found:?}");
        let limited = "may use some keys or channels only";
        assert_eq!(about(&found, limited), 1, "{binary:?}: {found:?}");
        // The check leaves no entry in the ACL log.
        redis.cmd(&["ACL", "LOG", "RESET"]).await;
        self::client(&server).build().await.unwrap();
        let log: Vec<redis::Value> = redis.ask(&["ACL", "LOG"]).await;
        let log: Vec<_> = log.iter().filter(|it| !of_library(it)).collect();
        assert!(log.is_empty(), "{binary:?}: {log:?}");
        redis.assert_clean().await;
    }
}

#[tokio::test]
async fn each_missing_permission_is_named_in_an_acl_line_that_grants_it() {
    for binary in SERVERS {
        for keys in ["~orders:*", "~*"] {
            let (server, redis) = with_user(binary, &["on"]).await;
            for rule in documented().iter().filter(|rule| rule.starts_with('+')) {
                let rules = documented();
                let others = rules.iter().map(String::as_str);
                let others = others.filter(|it| it != rule && !it.starts_with('~'));
                let rules: Vec<&str> = others.chain([keys, "resetkeys", keys]).collect();
                reset(&redis, &rules).await;
                let client = client(&server)
                    .client_name("billing")
                    .build()
                    .await
                    .unwrap();
                let missing = missing(&findings(&client).await);
                let line = format!("ACL SETUSER lockdog {rule}");
                assert_eq!(missing, [line], "{binary:?} {keys}");
                redis.cmd(&missing[0].split(' ').collect::<Vec<_>>()).await;
                let found = findings(&client).await;
                assert!(self::missing(&found).is_empty(), "{binary:?}: {found:?}");
                client.shutdown().await;
            }
        }
    }
}

#[tokio::test]
async fn waiting_for_replicas_requires_the_permission_for_wait() {
    for binary in SERVERS {
        let (server, redis) = with_user(binary, &documented()).await;
        let timeout = Duration::from_millis(100);
        let client = client(&server).replica_ack(ReplicaAck::best_effort().timeout(timeout));
        let client = client.build().await.unwrap();
        let line = ["ACL SETUSER lockdog +wait"];
        assert_eq!(missing(&findings(&client).await), line, "{binary:?}");
        redis.cmd(&line[0].split(' ').collect::<Vec<_>>()).await;
        assert!(missing(&findings(&client).await).is_empty(), "{binary:?}");
    }
}

#[tokio::test]
async fn fencing_permissions_are_required_once_a_lock_is_fenced() {
    for binary in SERVERS {
        let (server, redis) = with_user(binary, &["on"]).await;
        for rule in ["+time", "+get", "+set"] {
            let mut rules = documented();
            rules.retain(|it| !it.starts_with('~'));
            rules.push("~*".to_owned());
            let others = ["+time", "+get", "+set"]
                .into_iter()
                .filter(|it| *it != rule);
            rules.extend(others.map(str::to_owned));
            reset(
                &redis,
                &rules.iter().map(String::as_str).collect::<Vec<_>>(),
            )
            .await;
            let take = format!("-{}", &rule[1..]);
            for (fenced, by_clock) in FENCED {
                redis.cmd(&["ACL", "SETUSER", "lockdog", &take]).await;
                let client = client(&server).build().await.unwrap();
                let found = findings(&client).await;
                assert!(missing(&found).is_empty(), "{binary:?}: {found:?}");
                let lock = fenced(&client);
                let missing = missing(&findings(&client).await);
                if by_clock || rule != "+time" {
                    let line = format!("ACL SETUSER lockdog {rule}");
                    assert_eq!(missing, [line], "{binary:?}");
                    assert!(
                        lock.try_lock().await.is_err(),
                        "{binary:?}: {rule} is not needed"
                    );
                    redis.cmd(&missing[0].split(' ').collect::<Vec<_>>()).await;
                }
                let found = findings(&client).await;
                assert!(self::missing(&found).is_empty(), "{binary:?}: {found:?}");
                let guard = lock.lock().await.unwrap();
                assert!(guard.token().is_some());
                guard.unlock().await.unwrap();
                client.shutdown().await;
            }
        }
    }
}

/// The permissions of a kind are required after the client has created an object of that kind, and not
/// before.
#[tokio::test]
async fn permissions_of_a_kind_are_required_once_it_is_used() {
    for binary in SERVERS {
        let (server, redis) = with_user(binary, &["on"]).await;
        for kind in KINDS {
            let mut granted = documented();
            granted.retain(|it| !it.starts_with('~'));
            granted.extend(["~*", "&*"].map(str::to_owned));
            let further: Vec<String> = (kind.further)()
                .into_iter()
                .filter(|rule| rule.starts_with('+'))
                .collect();
            // These two permissions cannot be tested without a side effect, so no finding names them.
            let is_unreported = |rule: &&String| ["+lpush", "+rpush"].contains(&rule.as_str());
            granted.extend(further.iter().filter(is_unreported).cloned());
            let granted: Vec<&str> = granted.iter().map(String::as_str).collect();
            reset(&redis, &granted).await;
            let client = client(&server).build().await.unwrap();
            let before = findings(&client).await;
            assert!(missing(&before).is_empty(), "{binary:?}: {before:?}");
            (kind.make)(&client);
            let mut lacked: Vec<String> = further
                .iter()
                .filter(|it| !is_unreported(it))
                .cloned()
                .collect();
            lacked.sort();
            while let Some(rule) = lacked.last() {
                let found = findings(&client).await;
                let line = missing(&found).join(" ");
                let mut named: Vec<&str> = line.split(' ').skip(3).collect();
                named.sort_unstable();
                assert_eq!(named, lacked, "{binary:?}: {}", kind.loss);
                assert!(about(&found, kind.loss) > 0, "{}: {found:?}", kind.loss);
                redis.cmd(&["ACL", "SETUSER", "lockdog", rule]).await;
                lacked.pop();
            }
            let after = findings(&client).await;
            assert!(missing(&after).is_empty(), "{binary:?}: {after:?}");
            let keys = redis.all_keys().await;
            assert!(keys.is_empty(), "{}: {keys:?}", kind.loss);
            client.shutdown().await;
        }
    }
}

/// The objects of one kind, and their paragraph in `docs/security.md`.
struct OfKind {
    make: fn(&Client),
    further: fn() -> Vec<String>,
    /// The findings that name a missing permission.
    loss: &'static str,
}

const KINDS: [OfKind; 8] = [
    OfKind {
        make: |client| drop(client.fenced_lock("o")),
        further: security::of_a_fenced_lock,
        loss: "no fenced lock",
    },
    OfKind {
        make: |client| drop(client.fair_lock("o")),
        further: security::of_a_fair_lock,
        loss: "no fair lock",
    },
    OfKind {
        make: |client| drop(client.group_lock("o", [Value::utf8("a")])),
        further: security::of_a_group_lock,
        loss: "no group lock",
    },
    OfKind {
        make: |client| drop(client.election("o")),
        further: || [security::of_a_fair_lock(), security::of_an_election()].concat(),
        loss: "no election",
    },
    OfKind {
        make: |client| drop(client.count_down_latch("o")),
        further: security::of_a_latch,
        loss: "no latch",
    },
    OfKind {
        make: |client| drop(client.semaphore("o")),
        further: security::of_a_counted_semaphore,
        loss: "no semaphore",
    },
    OfKind {
        make: |client| drop(client.permit_semaphore("o")),
        further: security::of_a_semaphore,
        loss: "no permit",
    },
    OfKind {
        make: |client| drop(client.read_write_lock("o").write()),
        further: security::of_a_read_write_lock,
        loss: "no write lock",
    },
];

type MakeLock = fn(&Client) -> Box<dyn AnyLock>;

/// Each creates a lock with fencing tokens, and says whether the tokens come from the server's clock.
const FENCED: [(MakeLock, bool); 3] = [
    (
        |client| Box::new(RedLock::new(["a", "b", "c"].map(|name| client.lock(name))).fenced()),
        true,
    ),
    (|client| Box::new(client.fenced_lock("d")), true),
    (|client| Box::new(client.fenced_lock_from_one("d")), false),
];

#[tokio::test]
async fn waiting_for_disks_requires_a_server_with_waitaof_and_its_permission() {
    let ack = |local: bool| {
        ReplicaAck::require_aof(Replicas::Count(u32::from(!local)))
            .local(local)
            .timeout(Duration::from_secs(1))
    };
    for binary in SERVERS {
        let (server, redis) = with_user(binary, &documented()).await;
        let client = client(&server)
            .replica_ack(ack(true))
            .build()
            .await
            .unwrap();
        let found = findings(&client).await;
        let is_old = |it: &Finding| it.kind == FindingKind::OldVersion && it.is_known;
        if binary != Binary::Valkey9 {
            let old = found
                .iter()
                .find(|it| is_old(it))
                .expect("it has no WAITAOF");
            assert!(old.meaning.contains("WAITAOF"), "{old}");
            assert_eq!(about(&found, "does not support: waitaof"), 1, "{found:?}");
            continue;
        }
        let line = ["ACL SETUSER lockdog +waitaof"];
        assert_eq!(missing(&found), line);
        assert!(!found.iter().any(is_old), "{found:?}");
        redis.cmd(&line[0].split(' ').collect::<Vec<_>>()).await;
        let found = findings(&client).await;
        assert!(found.iter().all(|it| !it.is_known), "{found:?}");
        client
            .lock("orders:1")
            .lock()
            .await
            .unwrap()
            .unlock()
            .await
            .unwrap();
        // The check asks for the server's own disk, and the server has no file.
        redis.cmd(&["CONFIG", "SET", "appendonly", "no"]).await;
        let of_disk = "asks for the master's own disk";
        assert_eq!(about(&findings(&client).await, of_disk), 1);
        assert!(client.lock("orders:1").try_lock().await.is_err());
        let elsewhere = self::client(&server).replica_ack(ack(false)).build().await;
        assert_eq!(about(&findings(&elsewhere.unwrap()).await, of_disk), 0);
    }
}

#[tokio::test]
async fn all_missing_permissions_are_granted_by_one_acl_line() {
    for binary in SERVERS {
        let (server, redis) = with_user(binary, &["~*", "&*", "+eval", "+ping", "+info"]).await;
        let client = client(&server).quarantine_on_server(true).build().await;
        let client = client.unwrap();
        let missing = missing(&findings(&client).await);
        assert_eq!(missing.len(), 1, "{binary:?}: {missing:?}");
        assert!(missing[0].contains("+evalsha") && missing[0].contains("+hmget"));
        redis.cmd(&missing[0].split(' ').collect::<Vec<_>>()).await;
        let found = findings(&client).await;
        assert!(
            found.iter().all(|it| it.kind != FindingKind::Permissions),
            "{found:?}"
        );
        // With these permissions the client can do its work.
        client.provision().await.unwrap();
        let guard = client.lock("l").lock().await.unwrap();
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_epoch_that_is_not_writable_is_a_finding() {
    for binary in SERVERS {
        let mut rules = documented();
        rules.extend(["+time", "+hset", "+hmget"].map(str::to_owned));
        let (server, redis) = with_user(binary, &rules).await;
        let client = client(&server).quarantine_on_server(true).build().await;
        let client = client.unwrap();
        let missing = missing(&findings(&client).await);
        assert_eq!(
            missing,
            ["ACL SETUSER lockdog ~lockdog:epoch"],
            "{binary:?}"
        );
        redis.cmd(&missing[0].split(' ').collect::<Vec<_>>()).await;
        let found = findings(&client).await;
        assert!(self::missing(&found).is_empty(), "{found:?}");
    }
}

#[tokio::test]
async fn facts_that_info_may_not_report_are_unknown() {
    for binary in SERVERS {
        let (server, _redis) = with_user(binary, &["~*", "&*", "+@all", "-info"]).await;
        let found = findings(&client(&server).build().await.unwrap()).await;
        for kind in [
            FindingKind::Eviction,
            FindingKind::NoPersistence,
            FindingKind::Replica,
            FindingKind::NoMinReplicas,
            FindingKind::ClusterMode,
            FindingKind::OldVersion,
            FindingKind::ClockDifference,
        ] {
            let of_kind: Vec<_> = found.iter().filter(|it| it.kind == kind).collect();
            assert!(
                of_kind.len() == 1 && !of_kind[0].is_known,
                "{binary:?}: {found:?}"
            );
            assert!(of_kind[0].meaning.contains("NOPERM"), "{}", of_kind[0]);
        }
        assert_eq!(missing(&found), ["ACL SETUSER lockdog +info"]);
    }
}

/// The commands that grant the missing permissions.
fn missing(found: &[Finding]) -> Vec<String> {
    let known = found.iter().filter(|it| it.is_known);
    let known = known.filter(|it| it.kind == FindingKind::Permissions);
    known.map(|it| it.fix.clone()).collect()
}

fn about(found: &[Finding], words: &str) -> usize {
    found.iter().filter(|it| it.meaning.contains(words)).count()
}

/// redis-rs sends its name to the server, which needs no permission.
fn of_library(entry: &redis::Value) -> bool {
    let text = format!("{entry:?}");
    // Redis 6.2 does not name subcommands.
    text.contains("client|setinfo") || text.contains("'\"client\"'")
}

/// The permissions in the documentation, without the user's name and password.
fn documented() -> Vec<String> {
    let page = include_str!("../../../docs/security.md");
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with("ACL SETUSER lockdog "));
    let rules = line.expect("the page has the line").split(' ').skip(5);
    rules.map(str::to_owned).collect()
}

async fn with_user<S: AsRef<str>>(binary: Binary, rules: &[S]) -> (RedisServer, Redis) {
    let server = well_set_up(binary).start().await;
    let redis = server.redis().await;
    reset(&redis, &rules.iter().map(AsRef::as_ref).collect::<Vec<_>>()).await;
    (server, redis)
}

async fn reset(redis: &Redis, rules: &[&str]) {
    let user = ["ACL", "SETUSER", "lockdog", "reset", "on", ">secret"];
    redis.cmd(&[&user[..], rules].concat()).await;
}

fn client(server: &RedisServer) -> ClientBuilder {
    let url = format!("redis://lockdog:secret@127.0.0.1:{}", server.port());
    Client::builder().url(url)
}
