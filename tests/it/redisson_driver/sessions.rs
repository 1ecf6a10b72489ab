//! Clients of several tests in one JVM do not affect each other and leave no threads or connections.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use redis::cmd;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::runtime::Runtime;

use super::{SOON, Server, is_running, own_jvm};
use crate::support::child::{self, Copy, is_alone};
use crate::support::eventually;
use crate::support::prelude::LONG;
use crate::support::redisson::{PendingCall, Redisson};

#[tokio::test]
async fn clients_share_a_jvm_unless_they_request_their_own() {
    let server = Server::start();
    let (first, second, own) = tokio::join!(
        Redisson::start(&server.url),
        Redisson::start(&server.url),
        own_jvm(&server),
    );

    assert_eq!(first.pid(), second.pid());
    assert_ne!(first.pid(), own.pid());
    assert_ne!(first.uuid(), second.uuid());
    let (theirs, ours) = (first.thread("t1"), second.thread("t1"));
    assert_ne!(theirs.field().await, ours.field().await);
    theirs.lock("lock").await;
    assert!(!ours.try_lock("lock").await);
    assert!(ours.unlock("lock").await.unwrap_err().is_not_owner());
    theirs.unlock("lock").await.unwrap();
}

#[tokio::test]
async fn an_unsupported_call_is_answered_and_disturbs_no_other_call() {
    let server = Server::start();
    let (java, other) = tokio::join!(Redisson::start(&server.url), Redisson::start(&server.url));
    other.thread("t1").lock("lock").await;

    let nobodys = java.start_call(json!({ "call": "lock", "name": "lock" }));
    let error = outcome(nobodys).await.unwrap_err();

    assert!(error.contains("NullPointerException"), "{error}");
    assert!(java.thread("t1").is_locked("lock").await);
    other.thread("t1").unlock("lock").await.unwrap();
}

#[tokio::test]
async fn each_client_has_its_own_settings() {
    let server = Server::start();
    let prefixed = Redisson::builder(&server.url).name_prefix("app:");
    let short = Redisson::builder(&server.url).watchdog_timeout(Duration::from_secs(10));
    let (prefixed, short) = tokio::join!(prefixed.start(), short.start());

    assert!(prefixed.thread("t1").try_lock("lock").await);
    assert!(short.thread("t1").try_lock("lock").await, "another name");

    assert_eq!(server.hash("app:lock").len(), 1);
    assert_eq!(server.hash("lock").len(), 1);
    let ttl = short.thread("t1").remaining_ttl_ms("lock").await;
    assert!((1..=10_000).contains(&ttl), "{ttl}");
    let ttl = prefixed.thread("t1").remaining_ttl_ms("lock").await;
    assert!((10_001..=30_000).contains(&ttl), "{ttl}");
}

/// One lock is held by an idle thread, and one by a cell during its round.
#[tokio::test]
async fn a_drop_closes_the_connections_releases_nothing_and_disturbs_no_other_client() {
    let server = Server::start();
    let dropped = Redisson::start(&server.url).await;
    let kept = Redisson::start(&server.url).await;
    dropped.thread("t1").lock("lock").await;
    let pause = Duration::from_secs(600);
    let cell = dropped.thread("t2").start_cell("cell", "value", 1, pause);
    eventually(SOON, "the cell is locked", async || {
        !server.hash("cell").is_empty()
    })
    .await;
    let before = [server.hash("lock"), server.hash("cell")];
    let with_both = connections(&server);

    drop(dropped);

    eventually(SOON, "its connections are closed", async || {
        connections(&server) <= with_both / 2 + 1
    })
    .await;
    let error = outcome(cell).await.unwrap_err();
    assert!(error.contains("are shut down"), "{error}");
    assert_eq!([server.hash("lock"), server.hash("cell")], before);
    assert!(kept.thread("t1").is_locked("lock").await);
    assert!(kept.thread("t1").try_lock("other").await);
}

#[tokio::test]
async fn a_shutdown_returns_when_the_connections_are_closed_and_releases_nothing() {
    let server = Server::start();
    let java = Redisson::start(&server.url).await;
    let pid = java.pid();
    let t1 = java.thread("t1");
    t1.lock("lock").await;
    let field = t1.field().await;

    java.shutdown().await;

    assert!(is_running(pid), "other tests may use it");
    assert_eq!(server.hash("lock"), HashMap::from([(field, 1)]));
    // The server may not have read the end of the last ones yet.
    eventually(SOON, "no connection but ours", async || {
        connections(&server) == 1
    })
    .await;
    let error = outcome(t1.start_lock("lock")).await.unwrap_err();
    assert!(error.contains("is closed"), "{error}");
}

/// An interrupted `lock()` continues to wait.
#[tokio::test]
async fn the_threads_of_dropped_clients_end() {
    let server = Server::start();
    let (java, other) = tokio::join!(Redisson::start(&server.url), Redisson::start(&server.url));
    let pid = java.pid();
    other.thread("t1").lock("lock").await;
    let name = format!("waiter {}", &java.uuid()[..8]);
    let waiting = java.thread(&name).start_lock("lock");
    eventually(SOON, "it waits", async || {
        has_thread(pid, &name) && is_listened_to(&server, "lock")
    })
    .await;

    drop(java);

    eventually(SOON, "its thread is gone", async || !has_thread(pid, &name)).await;
    outcome(waiting).await.unwrap_err();
    assert!(other.thread("t1").is_held("lock").await);
}

#[tokio::test]
#[should_panic(expected = "only one of `own_jvm` can be killed")]
async fn a_shared_jvm_cannot_be_killed() {
    let server = Server::start();
    Redisson::start(&server.url).await.kill();
}

/// In a process of its own, because it kills what other tests use.
#[test]
fn all_users_of_a_jvm_see_its_crash_and_the_next_user_gets_a_new_jvm() {
    let test = "redisson_driver::sessions::\
        all_users_of_a_jvm_see_its_crash_and_the_next_user_gets_a_new_jvm";
    if !is_alone(test) {
        return;
    }
    let runtime = Runtime::new().expect("threads can be started");
    runtime.block_on(async {
        let server = Server::start();
        let first = Redisson::start(&server.url).await;
        let second = Redisson::start(&server.url).await;
        let pid = first.pid();
        first.thread("t1").lock_for("lock", LONG).await;
        let waiting = second.thread("t1").start_lock("lock");

        let process = Pid::from_raw(pid.try_into().unwrap()).unwrap();
        kill_process(process, Signal::KILL).unwrap();
        eventually(SOON, "the process has ended", async || is_dead(pid)).await;

        // The threads that read its output may not have seen the end of it yet.
        let next = Redisson::start(&server.url).await;
        assert_ne!(next.pid(), pid);
        assert!(next.thread("t1").is_locked("lock").await);
        let of_second = outcome(waiting).await.unwrap_err();
        assert!(of_second.contains("the driver is gone"), "{of_second}");
        let of_first = outcome(first.thread("t1").start_lock("lock")).await;
        assert!(of_first.unwrap_err().contains("the driver is gone"));
    });
}

/// Whether the process exits or is killed.
#[test]
fn a_shared_jvm_ends_with_the_process_of_its_tests() {
    const TEST: &str = "redisson_driver::sessions::a_shared_jvm_ends_with_the_process_of_its_tests";
    let runtime = Runtime::new().expect("threads can be started");
    if let Some(url) = child::argument() {
        let java = runtime.block_on(Redisson::start(&url));
        child::send(&java.pid().to_string());
        child::await_go_ahead();
        return;
    }
    let server = Server::start();
    for is_killed in [false, true] {
        let mut copy = Copy::run(TEST, &server.url);
        let pid = copy.receive().parse().expect("a process id");
        assert!(is_running(pid));
        if is_killed {
            copy.kill();
        } else {
            copy.go_ahead();
        }
        let is_gone = async || !is_running(pid);
        runtime.block_on(eventually(SOON, "the JVM is gone", is_gone));
    }
}

/// The result of the call, or the message of the panic that the test would have.
async fn outcome(call: PendingCall<()>) -> Result<(), String> {
    let panicked = match tokio::spawn(call.value()).await {
        Ok(()) => return Ok(()),
        Err(failed) => failed.into_panic(),
    };
    Err(*panicked.downcast::<String>().expect("the panic has a text"))
}

/// A zombie without a living thread, because it is our child and not waited for yet, or gone.
fn is_dead(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or(true, |status| {
        status.contains("State:\tZ") && status.contains("Threads:\t1\n")
    })
}

/// The number of connections, with the test's own.
fn connections(server: &Server) -> usize {
    let list: String = cmd("CLIENT")
        .arg("LIST")
        .query(&mut server.connection())
        .expect("our server answers");
    list.lines().count()
}

fn is_listened_to(server: &Server, lock: &str) -> bool {
    let channels: Vec<String> = cmd("PUBSUB")
        .arg("CHANNELS")
        .query(&mut server.connection())
        .expect("our server answers");
    channels.contains(&format!("redisson_lock__channel:{{{lock}}}"))
}

/// The kernel keeps the first fifteen bytes of a thread's name.
fn has_thread(pid: u32, name: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the JVM runs");
    threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok())
        .any(|comm| comm.trim_end() == &name[..name.len().min(15)])
}
