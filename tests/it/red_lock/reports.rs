//! The report of each instance: by a guard, by an error, and in printed values.

use std::future::IntoFuture;
use std::time::Duration;

use lockdog::error::{Instance, InstanceState};
use lockdog::{Error, Owner, RedLock};

use super::{SOON, Servers, has, lock_of, ms};
use crate::support::{Action, Data, Gate, Proxy, eventually, named};

#[tokio::test]
async fn a_guard_reports_each_instance_in_the_given_order() {
    let servers = Servers::start(3).await;
    let (mine, others) = (servers.clients().await, servers.clients().await);
    let held = others[1].lock("l1").lock().lease(ms(60_000)).await.unwrap();
    // The clients' ids are random, so some of these orders are not theirs.
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let lock = RedLock::new(order.map(|n: usize| mine[n].lock(format!("l{n}"))));
        assert_eq!(lock.name(), order.map(|n| format!("l{n}")).join(", "));
        let names = lock.locks().iter().map(|lock| lock.name());
        assert_eq!(names.collect::<Vec<_>>().join(", "), lock.name());
        let guard = lock.lock().await.unwrap();
        has(&guard, 2).await;
        eventually(SOON, "all have answered", async || {
            let asked = |it: &Instance| !matches!(it.state, InstanceState::Unanswered);
            guard.instances().iter().all(asked)
        })
        .await;
        for (n, instance) in order.into_iter().zip(guard.instances()) {
            let port = servers.all[n].port();
            assert_eq!(instance.lock, format!("l{n}"));
            assert_eq!(instance.server, format!("127.0.0.1:{port}"));
            let text = instance.to_string();
            match instance.state {
                InstanceState::Acquired => {
                    assert_ne!(n, 1);
                    assert_eq!(text, format!("\"l{n}\" on 127.0.0.1:{port}: acquired"));
                }
                InstanceState::HeldByAnother { ttl, .. } => {
                    assert_eq!(n, 1);
                    let ttl = ttl.unwrap();
                    assert!(ms(20_000) < ttl && ttl <= ms(60_000), "{ttl:?}");
                    assert!(text.contains("held by another, ttl="), "{text}");
                }
                other => panic!("{other}"),
            }
        }
        guard.unlock().await.unwrap();
        for n in [0, 2] {
            servers.assert_counts(&format!("l{n}"), [0; 3]).await;
        }
    }
    drop(held);
}

#[tokio::test]
async fn an_error_reports_why_each_instance_was_not_acquired() {
    let servers = Servers::start(5).await;
    let clients = servers
        .clients_with(|builder| builder.command_timeout(ms(300)))
        .await;
    let other = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let held = other[0].lock("l").lock().await.unwrap();
    servers.redis[1].cmd(&["SET", "l", "no lock"]).await;
    servers.all[2].kill();
    servers.all[3].kill();
    // A round ends when it is lost, and may not wait for the other answers.
    eventually(SOON, "all five are reported", async || {
        let Err(error) = lock.try_lock().await else {
            // The answers so far did not rule out a quorum except for the busy instance.
            return false;
        };
        let text = error.to_string();
        let Error::NoQuorum(no_quorum) = error else {
            panic!("{text}")
        };
        assert_eq!(no_quorum.need(), 3);
        assert!(text.starts_with("no quorum: acquired="), "{text}");
        let states: Vec<_> = no_quorum.instances().iter().map(|it| &it.state).collect();
        let is_refused = matches!(
            states[1],
            InstanceState::Unreachable { cause: Error::Refused { code, .. }, .. } if code == "WRONGTYPE"
        );
        let is_gone = |state: &InstanceState| match state {
            InstanceState::Unreachable { cause, .. } => {
                matches!(cause, Error::Unavailable { .. } | Error::Timeout { .. })
            }
            InstanceState::Late => true,
            _ => false,
        };
        matches!(states[0], InstanceState::HeldByAnother { ttl: Some(_), .. })
            && is_refused
            && is_gone(states[2])
            && is_gone(states[3])
            && matches!(states[4], InstanceState::Acquired)
            && text.contains("acquired=1 need=3; \"l\" on 127.0.0.1:")
    })
    .await;
    eventually(SOON, "it is released", async || {
        !servers.redis[4].exists("l").await
    })
    .await;
    drop(held);
}

#[tokio::test]
async fn an_instance_that_does_not_answer_in_time_is_late() {
    let servers = Servers::start(3).await;
    // None of these clients knows yet which servers are silent.
    let mut locks = Vec::new();
    for _ in 0..4 {
        locks.push(servers.lock("l").await);
    }
    servers.all[0].pause();
    servers.all[1].pause();
    let is_late = |instance: &Instance| match &instance.state {
        InstanceState::Late => true,
        // The command's own timeout ended before the round's.
        InstanceState::Unreachable { cause, .. } => cause.is_timeout(),
        _ => false,
    };
    let mut seen_states = Vec::new();
    for lock in locks {
        let error = lock.try_lock().lease(ms(60_000)).await.unwrap_err();
        let Error::NoQuorum(no_quorum) = &error else {
            panic!("{error}")
        };
        let [first, second, third] = no_quorum.instances() else {
            panic!("{error}")
        };
        assert!(is_late(first) && is_late(second), "{error}");
        seen_states.push(third.state.clone());
        // On a busy machine the third one may be late, too.
        if matches!(third.state, InstanceState::Acquired) {
            break;
        }
    }
    assert!(
        matches!(seen_states.last(), Some(InstanceState::Acquired)),
        "{seen_states:?}"
    );
    servers.all[0].resume();
    servers.all[1].resume();
    servers.assert_counts("l", [0; 3]).await;
}

/// A waiter behind another one gets the same report.
#[tokio::test]
async fn an_outage_is_reported_to_all_waiters_of_a_queue() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.command_timeout(ms(6_000)).poll_cap(ms(100)))
        .await;
    let lock = lock_of(&clients, "l");
    servers.all[0].kill();
    servers.all[2].kill();
    let began = std::time::Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let lock = lock.clone();
        tasks.spawn(async move {
            tokio::time::sleep(ms(n * 20)).await;
            match n {
                0..5 => lock.lock().await.map(Some),
                _ => lock.try_lock().wait(ms(1_000)).await,
            }
        });
    }
    for outcome in tasks.join_all().await {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    }
    // Five outages in a row would take thirty seconds.
    assert!(began.elapsed() < ms(29_000), "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_unbounded_wait_reports_an_outage_after_the_command_timeout() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.command_timeout(ms(500)).poll_cap(ms(100)))
        .await;
    let lock = lock_of(&clients, "l");
    for server in &servers.all[1..] {
        server.kill();
    }
    let error = lock.lock().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    assert!(error.is_retriable() && error.may_be_held());
}

#[tokio::test]
async fn an_unbounded_wait_survives_a_short_outage() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.command_timeout(ms(8_000)).poll_cap(ms(100)))
        .await;
    let lock = lock_of(&clients, "l");
    servers.all[0].pause();
    servers.all[1].pause();
    let waiting = tokio::spawn(async move { lock.lock().await });
    tokio::time::sleep(ms(1_000)).await;
    assert!(!waiting.is_finished());
    servers.all[0].resume();
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(guard.unwrap().is_valid());
    servers.all[1].resume();
}

/// The waiter that saw the outage has the lock now, and the other one gets "busy".
#[tokio::test]
async fn a_past_outage_is_not_reported() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.command_timeout(ms(20_000)).poll_cap(ms(100)))
        .await;
    let lock = lock_of(&clients, "l");
    servers.all[0].pause();
    servers.all[1].pause();
    let waiter = |wait| {
        let request = lock.try_lock().owner(&Owner::new()).wait(wait);
        tokio::spawn(request.into_future())
    };
    let first = waiter(SOON);
    tokio::time::sleep(ms(100)).await;
    let second = waiter(ms(8_000));
    tokio::time::sleep(ms(900)).await;
    servers.all[0].resume();
    servers.all[1].resume();
    let guard = first.await.unwrap().unwrap().expect("it is free");
    assert!(!second.is_finished());
    assert!(second.await.unwrap().expect("it is busy").is_none());
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn an_instance_that_returned_without_its_data_counts_after_its_quarantine() {
    let servers = Servers::start(3).await;
    let clients = servers.clients_without_polling().await;
    // A quarantine lasts for the longest lease, 1 % of it and 2 s.
    let lock = lock_of(&clients, "l").max_lease(ms(6_000));
    let lease = ms(6_000);
    drop(lock.lock().lease(lease).await.unwrap());
    servers.assert_counts("l", [0; 3]).await;
    servers.all[0].restart(Data::Lost).await;
    servers.all[1].restart(Data::Lost).await;
    eventually(SOON, "both are in quarantine", async || {
        let outcome = lock.try_lock().lease(lease).await;
        let Err(Error::NoQuorum(no_quorum)) = outcome else {
            return false;
        };
        let mut left = Vec::new();
        for instance in no_quorum.instances() {
            if let InstanceState::Quarantined { left: ms, .. } = instance.state {
                left.push(ms);
            }
        }
        left.len() == 2 && left.iter().all(|left| *left <= ms(8_060))
    })
    .await;
    // A waiter does not wait longer than the quarantine, although no message wakes it.
    let request = lock.try_lock().wait(SOON).lease(lease);
    let guard = tokio::time::timeout(SOON * 2, request).await.unwrap();
    let guard = guard.unwrap().expect("no other owner has it");
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_late_instance_is_reported_once_it_answers() {
    let servers = Servers::start(3).await;
    let proxy = Proxy::start(&servers.all[2]).await;
    let mut clients = servers.clients().await;
    clients[2] = lockdog::Client::connect(proxy.url()).await.unwrap();
    let gate = Gate::new();
    proxy.on(named("EVALSHA"), Action::HoldReply(gate.clone()));
    let guard = lock_of(&clients, "l").lock().await.unwrap();
    // Two of three are enough, and the third is not waited for.
    assert_eq!(guard.margin(), 0);
    // It is late if a busy machine made the client ask again.
    assert!(!matches!(
        guard.instances()[2].state,
        InstanceState::Acquired
    ));
    gate.open();
    has(&guard, 3).await;
    assert_eq!(guard.margin(), 1);
    guard.unlock().await.unwrap();
    servers.assert_counts("l", [0; 3]).await;
}

#[tokio::test]
async fn displayed_values_name_the_lock_and_no_secret() {
    let server = crate::support::RedisServer::builder();
    let server = server.password(SECRET).start().await;
    let client = lockdog::Client::connect(server.url()).await.unwrap();
    let lock = RedLock::new(["a", "b", "c"].map(|name| client.lock(name))).masking(1);
    let text = format!("{lock:?}");
    assert_eq!(
        text,
        "RedLock { name: \"a, b, c\", locks: 3, masking: 1, fenced: false, .. }"
    );
    let owner = Owner::from_id(7);
    let mut texts = vec![
        text,
        format!("{:?}", lock.clone().fenced()),
        format!("{:?}", lock.lock().lease(ms(1_500)).owner(&owner)),
        format!("{:?}", lock.try_lock().wait(Duration::from_secs(2))),
        format!("{:?}", lock.unlock().owner(&owner)),
    ];
    assert!(texts[1].contains("fenced: true"));
    for part in ["LockRequest", "\"a, b, c\"", "1.5s", "7"] {
        assert!(texts[2].contains(part), "{}", texts[2]);
    }
    assert!(texts[3].contains("wait: Some(2s)"), "{}", texts[3]);
    assert!(
        texts[4].starts_with("UnlockRequest { lock: \"a, b, c\""),
        "{}",
        texts[4]
    );
    let guard = lock.lock().owner(&owner).await.unwrap();
    let text = format!("{guard:?}");
    assert!(
        text.starts_with("Guard { lock: \"a, b, c\", owner: "),
        "{text}"
    );
    texts.push(text);
    for instance in guard.instances() {
        texts.push(format!("{instance} {instance:?}"));
    }
    server.kill();
    let error = lock.try_lock().await.unwrap_err();
    texts.push(format!("{error} {error:?}"));
    assert!(texts.len() > 9);
    for text in texts {
        assert!(!text.contains(SECRET), "{text}");
    }
}

const SECRET: &str = "hunter2";
