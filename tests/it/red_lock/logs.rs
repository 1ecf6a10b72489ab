//! What is logged of a lock of many instances.

use lockdog::error::{InstanceState, LostReason};
use lockdog::{Client, Error, Owner};
use tracing::Level;

use super::{SOON, Servers, decided, has, lock_of, ms, states};
use crate::support::{Data, Logs, RedisServer, eventually, logs, until_ok};

#[test]
fn normal_operation_logs_only_the_start_of_clients() {
    logs::alone(
        "red_lock::logs::normal_operation_logs_only_the_start_of_clients",
        async {
            let logs = Logs::of_this_process();
            let mut loud = Vec::new();
            // A busy machine may answer late, which is logged.
            for _ in 0..4 {
                let before = logs.loud().len();
                operate_normally().await;
                loud = logs.loud().split_off(before);
                if loud.is_empty() {
                    break;
                }
            }
            assert!(loud.is_empty(), "{loud:?}");
            let spans = logs.at_least(Level::DEBUG);
            let has = |part: &str| spans.iter().any(|line| line.text.contains(part));
            assert!(has("acquire lock=\"l\" owner="), "{spans:?}");
            assert!(
                has("acquire lockdog.outcome=\"acquired\"")
                    && has("acquire lockdog.outcome=\"busy\"")
            );
            assert!(has("acquire lockdog.waited_ms="));
            // The report of each instance of a won round and of a lost one.
            let won = spans.iter().find(|line| line.text.contains("round won"));
            let won = &won.expect("the round is logged").text;
            for part in [
                "lock.hash=",
                "owner=",
                "127.0.0.1:",
                ": acquired",
                "margin=",
            ] {
                assert!(won.contains(part), "{won}");
            }
            assert!(has("held by another, ttl="), "{spans:?}");
            assert!(has("quorum lost"), "{spans:?}");
        },
    );
}

async fn operate_normally() {
    let servers = Servers::start(3).await;
    // It is extended while this lasts.
    let lease = |builder: lockdog::ClientBuilder| builder.watchdog_lease(ms(4_800));
    let clients = servers.clients_with(lease).await;
    let (mine, yours) = (lock_of(&clients, "l"), servers.lock("l").await);
    let (over, is_over) = tokio::sync::oneshot::channel();
    // The work runs in tasks, so that a guard that ends in another task would be logged.
    let work = tokio::spawn(async move {
        let guard = mine.lock().await.unwrap();
        assert!(decided(|| yours.try_lock()).await.is_none());
        let waiting = tokio::spawn(async move {
            assert!(decided(|| yours.try_lock().wait(ms(700))).await.is_none());
            over.send(()).unwrap();
            let guard = yours.lock().await.unwrap();
            let nested = yours.lock().await.unwrap();
            drop(nested);
            guard.unlock().await.unwrap();
        });
        let nested = mine.lock().lease(ms(1_000)).await.unwrap();
        drop(nested);
        is_over.await.unwrap();
        // At least one extension.
        tokio::time::sleep(ms(2_000)).await;
        // Another owner acquires one instance and releases it.
        assert!(clients[0].lock("m").lock().await.unwrap().is_valid());
        guard.unlock().await.unwrap();
        tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
        mine.with(async |_| {}).await.unwrap();
        let dropped = mine.lock().await.unwrap();
        drop(dropped);
        clients
    });
    let clients = work.await.unwrap();
    contended(&servers, &clients).await;
    servers.assert_clean().await;
    // Held when their clients end.
    let plain = clients[0].lock("p").lock().await.unwrap();
    let whole = lock_of(&clients, "h").lock().await.unwrap();
    for client in &clients {
        client.shutdown().await;
    }
    for lost in [plain.lost().await, whole.lost().await] {
        assert_eq!(lost.reason(), LostReason::ShutDown);
    }
}

/// Contenders whose rounds fail because of each other.
async fn contended(servers: &Servers, clients: &[Client]) {
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..4 {
        let lock = if n < 2 {
            lock_of(clients, "c")
        } else {
            servers.lock("c").await
        };
        tasks.spawn(async move {
            for _ in 0..5 {
                let guard = lock.lock().await.unwrap();
                tokio::time::sleep(ms(2)).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

#[test]
fn a_quorum_in_jeopardy_and_a_lost_quorum_are_logged_with_each_instance() {
    logs::alone(
        "red_lock::logs::a_quorum_in_jeopardy_and_a_lost_quorum_are_logged_with_each_instance",
        async {
            let logs = Logs::of_this_process();
            let servers = Servers::start(3).await;
            let clients = servers
                .clients_with(|builder| {
                    builder
                        .watchdog_lease(ms(15_000))
                        .command_timeout(ms(1_000))
                })
                .await;
            let lock = lock_of(&clients, PERSONAL);
            let guard = lock.try_lock().wait(SOON).await.unwrap();
            let guard = guard.expect("it is free");
            has(&guard, 3).await;
            servers.all[0].pause();
            servers.all[1].pause();
            let warns = |part: &str| {
                let loud = logs.at_least(Level::WARN);
                loud.into_iter().find(|line| line.text.contains(part))
            };
            eventually(SOON, "the warning is logged", async || {
                warns("quorum in jeopardy").is_some()
            })
            .await;
            let danger = warns("quorum in jeopardy").unwrap().text;
            for part in ["lock.hash=", "owner=", "instances=", "127.0.0.1:"] {
                assert!(danger.contains(part), "{danger}");
            }
            // Once, however often it is tried again.
            servers.all[0].resume();
            eventually(SOON, "it is over", async || {
                let lines = logs.at_least(Level::DEBUG);
                lines
                    .iter()
                    .any(|line| line.text.contains("quorum extended again"))
            })
            .await;
            assert!(guard.is_valid());
            servers.all[0].pause();
            tokio::time::timeout(SOON, guard.lost()).await.unwrap();
            eventually(SOON, "the loss is logged", async || {
                warns("quorum lost").is_some()
            })
            .await;
            let lost = warns("quorum lost").unwrap().text;
            for part in [
                "lock.hash=",
                "owner=",
                "reason=\"deadline\"",
                "held_ms=",
                "127.0.0.1:",
            ] {
                assert!(lost.contains(part), "{lost}");
            }
            for server in &servers.all[..2] {
                server.resume();
            }
            drop(guard);
            // Names may be personal data: at debug only.
            for line in logs.at_least(Level::INFO) {
                assert!(!line.text.contains(PERSONAL), "{}", line.text);
            }
            // On a busy machine the lock may be in jeopardy and recover again.
            let lines = logs.at_least(Level::DEBUG);
            let count = |part: &str| lines.iter().filter(|it| it.text.contains(part)).count();
            let (dangers, over) = (count("in jeopardy"), count("quorum extended again"));
            assert!(dangers >= 2 && dangers == over + 1, "{dangers}, {over}");
        },
    );
}

#[test]
fn no_line_at_info_or_above_names_the_lock_that_an_instance_lost() {
    logs::alone(
        "red_lock::logs::no_line_at_info_or_above_names_the_lock_that_an_instance_lost",
        async {
            let logs = Logs::of_this_process();
            let servers = Servers::start(3).await;
            let settings = |it: lockdog::ClientBuilder| {
                it.watchdog_lease(ms(6_000)).command_timeout(ms(1_000))
            };
            let clients = servers.clients_with(settings).await;
            let lock = lock_of(&clients, PERSONAL);
            let owner = Owner::new();
            let guard = lock.try_lock().wait(SOON).owner(&owner).await.unwrap();
            let guard = guard.expect("it is free");
            has(&guard, 3).await;
            // The same owner's own lock there, whose guard outlives it.
            let own = clients[0].lock(PERSONAL).try_lock().wait(SOON);
            let own = own.owner(&owner).await.unwrap().expect("it re-enters");
            servers.redis[0].cmd(&["DEL", PERSONAL]).await;
            let is_refused = |state: &InstanceState| {
                matches!(
                    state,
                    InstanceState::Unreachable {
                        cause: Error::Lost(_),
                        ..
                    }
                )
            };
            eventually(SOON, "the instance refuses", async || {
                states(&guard).iter().any(is_refused)
            })
            .await;
            servers.all[1].pause();
            servers.all[2].pause();
            let is_logged = |part: &str| {
                let loud = logs.at_least(Level::INFO);
                let mut lines = loud.into_iter().filter(|line| line.text.contains(part));
                lines.any(|line| line.text.contains("unreachable, the lock was lost"))
            };
            eventually(SOON, "the warning is logged", async || {
                is_logged("quorum in jeopardy")
            })
            .await;
            eventually(SOON, "the loss is logged", async || {
                is_logged("quorum lost")
            })
            .await;
            servers.all[1].resume();
            servers.all[2].resume();
            drop((guard, own));
            for line in logs.at_least(Level::INFO) {
                assert!(!line.text.contains(PERSONAL), "{}", line.text);
            }
        },
    );
}

#[test]
fn a_guard_that_ends_in_another_task_is_logged_once() {
    logs::alone(
        "red_lock::logs::a_guard_that_ends_in_another_task_is_logged_once",
        async {
            let logs = Logs::of_this_process();
            let servers = Servers::start(3).await;
            let lock = servers.lock("l").await;
            for end in ["unlock", "drop", "forget"] {
                let lock = lock.clone();
                let guard = tokio::spawn(async move { lock.lock().lease(ms(4_000)).await });
                let guard = guard.await.unwrap().unwrap();
                let ends = tokio::spawn(async move {
                    match end {
                        "unlock" => drop(guard.unlock().await.unwrap()),
                        "drop" => drop(guard),
                        _ => guard.forget(),
                    }
                });
                ends.await.unwrap();
                servers.assert_counts("l", [0; 3]).await;
            }
            // A guard with an explicit owner may end in any task.
            let guard = lock.lock().owner(&Owner::new()).await.unwrap();
            tokio::spawn(guard.unlock()).await.unwrap().unwrap();
            let warned = logs.at_least(Level::WARN);
            let warned: Vec<_> = warned
                .iter()
                .filter(|line| line.text.contains("released by a different task"))
                .collect();
            assert_eq!(warned.len(), 3, "{warned:?}");
        },
    );
}

#[test]
fn no_password_is_in_any_log_line_error_or_debug_output() {
    logs::alone(
        "red_lock::logs::no_password_is_in_any_log_line_error_or_debug_output",
        async {
            let logs = Logs::of_this_process();
            let mut servers = Vec::new();
            let mut clients = Vec::new();
            for _ in 0..3 {
                let server = RedisServer::builder().password(SECRET).start().await;
                let client = Client::builder()
                    .url(server.url())
                    .command_timeout(ms(1_000))
                    .watchdog_lease(ms(1_500));
                clients.push(until_ok(SOON, async || client.clone().build().await).await);
                servers.push(server);
            }
            let lock = lock_of(&clients, "l");
            let guard = lock.try_lock().wait(SOON).await.unwrap();
            let guard = guard.expect("it is free");
            let mut texts = vec![format!("{lock:?} {guard:?} {:?}", lock.lock())];
            servers[0].restart(Data::Lost).await;
            servers[1].kill();
            servers[2].pause();
            let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
            texts.push(format!("{lost} {lost:?} {:?}", guard.instances()));
            drop(guard);
            for _ in 0..2 {
                let error = lock.try_lock().await.unwrap_err();
                texts.push(format!("{error} {error:?}"));
            }
            let error = lock.lock().await.unwrap_err();
            texts.push(format!("{error} {error:?}"));
            servers[2].resume();
            for client in &clients {
                texts.push(format!("{:?}", client.shutdown().await));
            }
            let lines = logs.lines();
            assert!(lines.iter().any(|line| line.text.contains("quorum lost")));
            texts.extend(lines.into_iter().map(|line| line.text));
            assert!(texts.len() > 20, "{texts:?}");
            for text in texts {
                assert!(!text.contains(SECRET), "{text}");
            }
        },
    );
}

const SECRET: &str = "hunter2";
const PERSONAL: &str = "jane.doe@example.com";
