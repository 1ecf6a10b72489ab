//! The Java side of the interop tests performs the calls of a test. The results of interop tests depend
//! on that. These tests do not use lockdog.

mod sessions;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use redis::Commands;

use crate::support::prelude::SOON;
use crate::support::redisson::{JavaLock, Redisson};
use crate::support::{Binary, Cluster, eventually, free_port};

#[tokio::test]
async fn a_lock_is_held_under_the_predicted_field() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let t1 = java.thread("t1");

    t1.lock("lock").await;

    let field = t1.field().await;
    assert!(field.starts_with(java.uuid()), "{field}");
    assert_eq!(server.hash("lock"), HashMap::from([(field, 1)]));
    assert!(t1.is_locked("lock").await);
    assert!(t1.is_held("lock").await);
    assert!(!java.thread("t2").is_held("lock").await);

    t1.unlock("lock").await.unwrap();
    assert_eq!(server.hash("lock"), HashMap::new());
    assert!(!t1.is_locked("lock").await);
}

#[tokio::test]
async fn a_logical_thread_always_uses_the_same_java_thread() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;

    let first = java.thread("t1").field().await;
    let second = java.thread("t2").field().await;

    assert_ne!(first, second);
    assert_eq!(java.thread("t1").field().await, first);
}

#[tokio::test]
async fn reentry_is_counted() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let t1 = java.thread("t1");
    let field = t1.field().await;

    t1.lock("lock").await;
    assert!(t1.try_lock("lock").await);

    assert_eq!(t1.hold_count("lock").await, 2);
    assert_eq!(server.hash("lock"), HashMap::from([(field.clone(), 2)]));

    t1.unlock("lock").await.unwrap();
    assert_eq!(server.hash("lock"), HashMap::from([(field, 1)]));
    t1.unlock("lock").await.unwrap();
    assert_eq!(t1.hold_count("lock").await, 0);
}

#[tokio::test]
async fn locks_of_several_are_held_on_each_server_and_by_a_quorum_or_all() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let java = Redisson::builder(&servers[0].url)
        .server(&servers[1].url)
        .server(&servers[2].url)
        .start()
        .await;
    let (t1, t2) = (java.thread("t1"), java.thread("t2"));
    let red = JavaLock::red((0..3).map(|server| (server, "lock")));
    let multi = JavaLock::multi([(0, "lock"), (2, "lock"), (2, "other")]);

    t1.lock(&red).await;
    for (number, server) in servers.iter().enumerate() {
        let field = t1.field_on(number).await;
        assert_eq!(server.hash("lock"), HashMap::from([(field, 1)]));
    }
    assert!(!t2.try_lock(&red).await);
    t1.unlock(&red).await.unwrap();

    t1.lock(&multi).await;
    assert_eq!(servers[1].hash("lock"), HashMap::new());
    for name in ["lock", "other"] {
        let field = t1.field_on(2).await;
        assert_eq!(servers[2].hash(name), HashMap::from([(field, 1)]));
    }
    // One of three is held by another.
    assert!(
        !t2.try_lock(&JavaLock::multi((0..3).map(|server| (server, "other"))))
            .await
    );
    let quorum = JavaLock::red((0..3).map(|server| (server, "other")));
    assert!(t2.try_lock(&quorum).await);
    t2.unlock(&quorum).await.unwrap();
    t1.unlock(&multi).await.unwrap();
    for server in &servers {
        assert_eq!(server.hash("lock"), HashMap::new());
        assert_eq!(server.hash("other"), HashMap::new());
    }
}

#[tokio::test]
async fn unlock_by_another_thread_is_refused() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let t1 = java.thread("t1");
    t1.lock("lock").await;

    let error = java.thread("t2").unlock("lock").await.unwrap_err();

    assert!(error.is_not_owner(), "{error:?}");
    assert!(!error.message.is_empty());
    assert!(t1.is_held("lock").await);
}

#[tokio::test]
async fn a_second_thread_waits_until_the_first_unlocks() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let (t1, t2) = (java.thread("t1"), java.thread("t2"));
    t1.lock("lock").await;
    assert!(!t2.try_lock("lock").await);

    let waiting = t2.start_lock("lock");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    let before_unlock = SystemTime::now();
    let unlocked = t1.start_unlock("lock").answer().await;
    unlocked.result.unwrap();
    let locked = waiting.answer().await;

    locked.result.unwrap();
    assert!(locked.at >= before_unlock);
    assert_eq!(server.hash("lock"), HashMap::from([(t2.field().await, 1)]));
}

/// An idle thread waits for a call, and a busy one for an answer of the server.
#[tokio::test]
async fn a_thread_waits_for_a_message_while_another_one_has_the_lock() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let (t1, t2) = (java.thread("t1"), java.thread("t2"));
    t1.lock("lock").await;
    assert!(!t1.is_waiting_for_a_message().await);
    let waiting = t2.start_lock("lock");
    t2.waits_for_message().await;
    assert!(!waiting.is_finished() && !t1.is_waiting_for_a_message().await);
    t1.unlock("lock").await.unwrap();
    waiting.value().await;
    assert!(!t2.is_waiting_for_a_message().await);
}

#[tokio::test]
async fn a_lease_ends_without_an_unlock() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let (t1, t2) = (java.thread("t1"), java.thread("t2"));

    let lease = Duration::from_secs(4);
    let before = SystemTime::now();
    t1.lock_for("lock", lease).await;
    let ttl = t1.remaining_ttl_ms("lock").await;
    assert!((1..=4_000).contains(&ttl), "{ttl}");
    let taken_over = t2.start_lock_for("lock", Duration::from_secs(60));
    let taken_over = taken_over.answer().await;

    taken_over.result.unwrap();
    assert!(taken_over.at >= before + lease);
    assert!(t1.unlock("lock").await.unwrap_err().is_not_owner());
    t2.unlock("lock").await.unwrap();
    assert_eq!(t1.remaining_ttl_ms("lock").await, -2);
}

#[tokio::test]
async fn try_lock_gives_up_after_its_wait() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let (t1, t2) = (java.thread("t1"), java.thread("t2"));
    t1.lock("lock").await;

    let gave_up = t2
        .start_try_lock_for("lock", Duration::from_millis(300), None)
        .answer()
        .await;

    assert!(!gave_up.result.unwrap());
    assert!(
        gave_up.took >= Duration::from_millis(290),
        "{:?}",
        gave_up.took
    );

    t1.unlock("lock").await.unwrap();
    let lease = Some(Duration::from_secs(60));
    assert!(
        t2.try_lock_for("lock", Duration::from_secs(30), lease)
            .await
    );
    let ttl = t2.remaining_ttl_ms("lock").await;
    assert!((1..=60_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn force_unlock_frees_a_lock_of_another_thread() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let (t1, t2) = (java.thread("t1"), java.thread("t2"));
    t1.lock("lock").await;

    assert!(t2.force_unlock("lock").await);
    assert!(!t2.force_unlock("lock").await);
    assert!(!t1.is_held("lock").await);
}

#[tokio::test]
async fn interrupt_ends_the_wait_and_affects_no_later_call() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let (t1, t2) = (java.thread("t1"), java.thread("t2"));
    t1.lock("lock").await;

    // The interrupt follows at once: it must not miss a call that is about to run.
    let waiting = t2.start_try_lock_for("lock", Duration::from_secs(30), None);
    assert!(t2.interrupt().await);
    let error = waiting.answer().await.result.unwrap_err();
    assert!(error.is_interrupted(), "{error:?}");

    let waiting = t2.start_try_lock_for("lock", Duration::from_secs(30), None);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(t2.interrupt().await);
    let error = waiting.answer().await.result.unwrap_err();
    assert!(error.is_interrupted(), "{error:?}");

    assert!(!t2.is_held("lock").await);
    assert!(!t2.interrupt().await);
    t1.unlock("lock").await.unwrap();
    assert!(t2.try_lock_for("lock", Duration::from_secs(30), None).await);
}

#[tokio::test]
async fn a_killed_client_leaves_its_key() {
    let server = Server::start();
    let java = own_jvm(&server).await;
    let t1 = java.thread("t1");
    t1.lock("lock").await;
    let field = t1.field().await;
    let pid = java.pid();

    java.kill();

    assert!(!is_running(pid));
    assert_eq!(server.hash("lock"), HashMap::from([(field, 1)]));
}

#[tokio::test]
async fn dropping_a_client_kills_it_and_no_other_client() {
    let server = Server::start();
    let (dropped, kept) = tokio::join!(own_jvm(&server), own_jvm(&server));
    let pid = dropped.pid();
    dropped.thread("t1").lock("lock").await;

    drop(dropped);

    assert!(!is_running(pid));
    assert!(is_running(kept.pid()));
    assert!(kept.thread("t1").is_locked("lock").await);
}

#[tokio::test]
#[should_panic(expected = "the driver is gone")]
async fn a_call_to_a_killed_client_panics() {
    let server = Server::start();
    let java = own_jvm(&server).await;
    let t1 = java.thread("t1");
    java.kill();

    t1.lock("lock").await;
}

#[tokio::test]
async fn shutdown_ends_the_process_and_leaves_the_key() {
    let server = Server::start();
    let java = own_jvm(&server).await;
    java.thread("t1").lock("lock").await;
    let pid = java.pid();

    java.shutdown().await;

    assert!(!is_running(pid));
    assert_eq!(server.hash("lock").len(), 1);
}

#[tokio::test]
async fn two_threads_never_enter_the_cell_together() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let pause = Duration::from_millis(5);

    let first = java.thread("t1").start_cell("lock", "cell", 20, pause);
    java.thread("t2").cell("lock", "cell", 20, pause).await;
    first.value().await;

    let cell: u64 = server.connection().get("cell").unwrap();
    assert_eq!(cell, 40);
}

#[tokio::test]
async fn settings_reach_redisson() {
    let server = Server::start();
    let java = Redisson::builder(&server.url)
        .watchdog_timeout(Duration::from_secs(6))
        .name_prefix("app:")
        .timeout(Duration::from_secs(5))
        .connect_timeout(Duration::from_secs(5))
        .retry_attempts(1)
        .start()
        .await;
    let t1 = java.thread("t1");

    t1.lock("lock").await;

    assert_eq!(
        server.hash("app:lock"),
        HashMap::from([(t1.field().await, 1)])
    );
    // Past the first lease, so that the watchdog must have renewed.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(7_000) {
        let ttl = t1.remaining_ttl_ms("lock").await;
        assert!((1..=6_000).contains(&ttl), "{ttl}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    t1.unlock("lock").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_cluster_are_at_the_masters_of_their_slots_and_use_sharded_channels() {
    let cluster = Cluster::start(3, 1).await;
    let java = Redisson::start(&cluster.url()).await;
    let (t1, t2) = (java.thread("t1"), java.thread("t2"));
    for master in &cluster.nodes[..3] {
        let name = &cluster.names_at(master, "lock", 1).await[0];
        let monitor = master.redis().await.monitor().await;
        t1.lock(name).await;
        let hash = master.redis().await.hash(name).await;
        assert_eq!(hash, BTreeMap::from([(t1.field().await, "1".to_owned())]));
        let waiting = t2.start_lock(name);
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let redis = master.redis().await;
        eventually(SOON, "it waits", async || {
            redis.channels().await == [channel.clone()]
        })
        .await;
        t1.unlock(name).await.unwrap();
        waiting.value().await;
        t2.unlock(name).await.unwrap();
        // Redis 6.2 has no sharded channels.
        let [subscribe, publish] = match Binary::under_test() {
            Binary::Redis62 => ["SUBSCRIBE", "publish"],
            _ => ["SSUBSCRIBE", "spublish"],
        };
        for seen in [
            format!(r#"] "{subscribe}" "{channel}""#),
            format!(r#" lua] "{publish}" "{channel}" "0""#),
        ] {
            eventually(SOON, "it was sent", async || {
                let lines = monitor.seen().join("\n").to_lowercase();
                lines.contains(&seen.to_lowercase())
            })
            .await;
        }
    }
    java.shutdown().await;
}

#[tokio::test]
#[should_panic(expected = "Unable to connect to Redis server")]
async fn start_without_a_server_panics_with_the_reason() {
    let server = Server::start();
    let url = server.url.clone();
    drop(server);

    Redisson::builder(&url).retry_attempts(0).start().await;
}

/// For tests that end a JVM.
async fn own_jvm(server: &Server) -> Redisson {
    Redisson::builder(&server.url).own_jvm().start().await
}

/// A private server on a free port.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start() -> Self {
        // Another process may take the port before the server binds it. Then this server ends, and the
        // loop tries the next port.
        for _ in 0..20 {
            let port = free_port();
            let process = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--appendonly", "no"])
                .stdout(Stdio::null())
                .spawn()
                .expect("redis-server is installed");
            let mut server = Self {
                process,
                url: format!("redis://127.0.0.1:{port}"),
            };
            while matches!(server.process.try_wait(), Ok(None)) {
                if server.answers() {
                    return server;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("redis-server does not start");
    }

    /// Whether this server answers at its port, and not that of another process.
    fn answers(&self) -> bool {
        let client = redis::Client::open(self.url.as_str()).expect("the URL is valid");
        let info: redis::RedisResult<String> = client
            .get_connection()
            .and_then(|mut connection| redis::cmd("INFO").query(&mut connection));
        let own = format!("process_id:{}\r", self.process.id());
        info.is_ok_and(|info| info.contains(&own))
    }

    fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url.as_str())
            .and_then(|client| client.get_connection())
            .expect("our server answers")
    }

    fn hash(&self, key: &str) -> HashMap<String, u64> {
        self.connection().hgetall(key).expect("a hash or nothing")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
