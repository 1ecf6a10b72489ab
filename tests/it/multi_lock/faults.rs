//! A multi lock on a faulty network and on failing servers: all or none.

use std::time::Duration;

use futures_util::future::join_all;
use lockdog::{Client, ClientBuilder, Error, MultiLock, Owner, Unlocked};

use super::{Fixture, SOON, ms, multi};
use crate::fixture::connected;
use crate::support::{Action, Gate, Proxy, RedisServer, eventually, timed, until_ok};

/// Two servers behind a proxy each, and clients that connect to the proxies.
struct Proxied {
    test: Fixture,
    proxies: Vec<Proxy>,
    clients: Vec<Client>,
    lock: MultiLock,
}

impl Proxied {
    async fn start(patience: Duration) -> Self {
        let test = Fixture::start(2).await;
        let proxies = join_all(test.servers.all.iter().map(Proxy::start)).await;
        for redis in &test.servers.redis {
            redis.cmd(&["SCRIPT", "LOAD", ACQUIRE]).await;
        }
        let mut clients = Vec::new();
        for proxy in &proxies {
            let client = Client::builder().url(proxy.url()).command_timeout(patience);
            clients.push(connected(client).await);
        }
        let lock = multi(&clients, &MEMBERS);
        Self {
            test,
            proxies,
            clients,
            lock,
        }
    }

    async fn all_counts(&self) -> Vec<String> {
        let mut counts = Vec::new();
        for (server, name) in MEMBERS {
            counts.extend(self.test.counts(server, name).await);
        }
        counts
    }

    /// Checks that other owners acquire it before any lease ends, and that nothing is left.
    async fn assert_recovered(&self) {
        let others = multi(&self.test.others().await, &MEMBERS);
        let taken = others
            .try_lock()
            .wait(SOON)
            .await
            .expect("nothing is wrong any more");
        taken
            .expect("it was released")
            .unlock()
            .await
            .expect("it is held");
        self.test.assert_clean().await;
        assert!(self.clients.iter().all(|client| client.holds().is_empty()));
    }
}

/// Design: invariant 3. The command arrives twice in a row, for a first acquire and a nested one.
#[tokio::test]
async fn an_acquire_that_arrives_twice_counts_once() {
    let test = Proxied::start(PATIENT).await;
    for count in ["1", "2"] {
        let rules = [0, 1].map(|server| test.proxies[server].on(is_acquire, Action::Twice));
        test.lock.lock().await.unwrap().forget();
        for rule in &rules {
            rule.wait_hits(1).await;
        }
        assert_eq!(test.all_counts().await, [count; 3]);
    }
    assert_eq!(
        test.lock.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    assert_eq!(test.lock.unlock().await.unwrap(), Unlocked::Released);
    test.assert_recovered().await;
}

/// Design: invariant 6. The answer is lost with its connection: it is sent again.
#[tokio::test]
async fn an_acquire_repeated_after_a_lost_reply_counts_once() {
    let test = Proxied::start(PATIENT).await;
    for server in [0, 1] {
        let outer = test.lock.lock().await.unwrap();
        let rule = test.proxies[server].on(is_acquire, Action::ExecuteThenCut);
        let inner = test.lock.lock().await.unwrap();
        assert_eq!(rule.hits(), 1);
        assert_eq!(test.all_counts().await, ["2"; 3]);
        assert_eq!(inner.hold_count(), 2);
        drop(inner);
        outer.unlock().await.unwrap();
        let rule = test.proxies[server].on(is_acquire, Action::ExecuteThenCut);
        let guard = test.lock.lock().await.unwrap();
        assert_eq!(
            (rule.hits(), test.all_counts().await),
            (1, vec!["1".to_owned(); 3])
        );
        guard.unlock().await.unwrap();
        test.assert_recovered().await;
    }
}

/// Design: invariant 3. A nested acquire that comes late takes no lock that is free by then.
#[tokio::test]
async fn a_late_nested_acquire_takes_nothing() {
    let test = Proxied::start(PATIENT).await;
    let gate = Gate::new();
    let outer = test.lock.lock().await.unwrap();
    test.proxies[0].on(is_acquire, Action::TwiceLate(gate.clone()));
    test.lock.lock().await.unwrap().unlock().await.unwrap();
    outer.unlock().await.unwrap();
    gate.wait_reached().await;
    gate.open();
    gate.wait_passed().await;
    test.assert_recovered().await;
}

/// Design: invariant 6. No answer in time: an error that names the members, and all is undone.
#[tokio::test]
async fn an_acquire_without_an_answer_is_an_error_and_is_undone() {
    for silent in [0, 1] {
        let test = Proxied::start(ms(1_000)).await;
        let rule = test.proxies[silent].on(is_acquire, Action::DropReply);
        let error = test.lock.lock().await.unwrap_err();
        assert_eq!(rule.hits(), 1);
        assert!(
            error.is_timeout() && error.is_retriable() && error.may_be_held(),
            "{error}"
        );
        let names = ["lock=\"a\",\"b\"", "lock=\"c\""][silent];
        let port = test.proxies[silent].port();
        let text = error.to_string();
        assert!(
            text.contains(names) && text.contains(&port.to_string()),
            "{text}"
        );
        test.assert_recovered().await;
    }
}

/// A server that is down: an error in time, and nothing is left on the others.
#[tokio::test]
async fn an_unreachable_server_is_an_error_and_nothing_is_left_on_the_others() {
    let test = Fixture::start(2).await;
    let clients = test
        .servers
        .clients_with(|client| client.command_timeout(ms(2_000)))
        .await;
    let lock = multi(&clients, &MEMBERS);
    test.servers.all[1].kill();
    for wait in [None, Some(ms(700)), Some(ms(0))] {
        // On a busy machine the server that is up may be late, too.
        until_ok(SOON, async || {
            let request = lock.try_lock();
            let request = match wait {
                Some(wait) => request.wait(wait),
                None => request,
            };
            let error = request.await.unwrap_err();
            // The second call finds that the command of the first one has no answer yet.
            let is_expected = matches!(error, Error::Unavailable { .. }) || error.is_timeout();
            assert!(is_expected && error.is_retriable(), "{error}");
            match error.to_string().contains("lock=\"c\"") {
                true => Ok(()),
                false => Err(error),
            }
        })
        .await;
        eventually(SOON, "nothing is left", async || {
            test.servers.redis[0].keys().await.is_empty()
        })
        .await;
    }
    let ended = tokio::time::timeout(SOON, lock.lock().into_future()).await;
    let error = ended.expect("it ends").unwrap_err();
    let is_expected = matches!(error, Error::Unavailable { .. }) || error.is_timeout();
    assert!(is_expected, "{error}");
    test.servers.redis[0].assert_clean().await;
}

/// Its members elsewhere are free for others while it waits for the server.
#[tokio::test]
async fn a_wait_for_an_unreachable_server_continues_and_blocks_no_other_owner() {
    let test = Fixture::start(2).await;
    let clients = test
        .servers
        .clients_with(|client| client.command_timeout(ms(300)))
        .await;
    let lock = multi(&clients, &MEMBERS);
    let others = test.others().await[0].lock("a");
    test.servers.all[1].kill();
    let request = lock.try_lock().wait(SOON).owner(&Owner::new());
    let waiting = tokio::spawn(request.into_future());
    // Its first attempt may have held it for a command timeout.
    tokio::time::sleep(ms(600)).await;
    eventually(SOON, "it is free", async || test.is_free(0, "a").await).await;
    for _ in 0..20 {
        let guard = others.try_lock().await.unwrap().expect("no owner has it");
        guard.unlock().await.unwrap();
        tokio::time::sleep(ms(10)).await;
    }
    test.servers.all[1]
        .restart(crate::support::Data::Lost)
        .await;
    drop(waiting.await.unwrap().unwrap().expect("the server is back"));
    eventually(SOON, "nothing is left", async || {
        test.servers.redis[0].keys().await.is_empty()
    })
    .await;
    test.servers.redis[0].assert_clean().await;
}

/// A frozen server is an error when the wait is over, never "another owner has it".
#[tokio::test]
async fn a_wait_on_a_frozen_server_ends_in_time_with_an_error() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&MEMBERS);
    test.servers.all[1].pause();
    let (outcome, took) = timed(lock.try_lock().wait(ms(500)).into_future()).await;
    let error = outcome.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!((ms(500)..SOON).contains(&took), "{took:?}");
    eventually(SOON, "nothing is left", async || {
        test.servers.redis[0].keys().await.is_empty()
    })
    .await;
    test.servers.all[1].resume();
    test.assert_clean().await;
}

/// The timeout of a short wait says that this wait is over, not that the server does not answer.
#[tokio::test]
async fn a_short_wait_that_ends_during_a_server_pause_does_not_end_a_longer_wait() {
    let test = Fixture::start(2).await;
    let held = test.others().await[1].lock("c").lock().await.unwrap();
    // They poll often, so that a command is pending when the wait ends.
    let patient = |client: ClientBuilder| client.poll_cap(ms(50)).command_timeout(PATIENT);
    let clients = test.servers.clients_with(patient).await;
    let lock = multi(&clients, &MEMBERS);
    let plain = clients[1].lock("c");
    // The waiter enters the queue of the held member and is the first in it.
    let short = lock.try_lock().wait(ms(2_000)).owner(&Owner::new());
    let short = tokio::spawn(short.into_future());
    eventually(SOON, "the short wait listens", async || {
        !test.servers.redis[1].channels().await.is_empty()
    })
    .await;
    let mut patient = tokio::task::JoinSet::new();
    for request in [lock.lock(), plain.lock()] {
        let request = request.owner(&Owner::new());
        patient.spawn(async move { request.await?.unlock().await });
    }
    test.servers.all[1].pause();
    let answer = short.await.unwrap();
    tokio::time::sleep(ms(400)).await;
    test.servers.all[1].resume();
    assert!(!matches!(answer, Ok(Some(_))), "the server was stopped");
    held.unlock().await.unwrap();
    while let Some(ended) = patient.join_next().await {
        ended.unwrap().expect("it had time left");
    }
    test.assert_clean().await;
}

/// A key of another type under one member: an error that names it, and the others stay free.
#[tokio::test]
async fn a_key_of_another_type_is_an_error_that_names_the_member() {
    let test = Fixture::start(2).await;
    for (server, name) in MEMBERS {
        let redis = &test.servers.redis[server];
        redis.cmd(&["SET", name, "foreign"]).await;
        let lock = test.multi(&MEMBERS);
        let error = lock.try_lock().wait(SOON).await.unwrap_err();
        let Error::Refused { code, message, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(code, "WRONGTYPE");
        assert!(
            message.contains(&format!("; lock=\"{name}\" server=")),
            "{message}"
        );
        assert!(!message.contains("KEYS["), "{message}");
        assert!(!error.is_retriable() && !error.may_be_held());
        eventually(SOON, "nothing is left", async || {
            let keys = [
                test.servers.redis[0].keys().await,
                test.servers.redis[1].keys().await,
            ]
            .concat();
            keys == [name]
        })
        .await;
        assert_eq!(redis.ask::<String>(&["GET", name]).await, "foreign");
        redis.cmd(&["DEL", name]).await;
    }
    test.assert_clean().await;
}

/// A server out of memory refuses, first and nested; what is held can be unlocked.
#[tokio::test]
async fn a_server_out_of_memory_prevents_the_acquire_on_all_servers() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&MEMBERS);
    let full = &test.servers.redis[1];
    let outer = lock.lock().await.unwrap();
    full.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for owner in [Owner::current(), Owner::new()] {
        let request = multi(&test.clients, &[(0, "x"), (1, "c"), (1, "y")]).try_lock();
        let error = request.owner(&owner).await;
        match error {
            // The other owner finds c busy before anything is written.
            Ok(None) => assert_ne!(owner, Owner::current()),
            Ok(Some(_)) => panic!("it has no memory for that"),
            Err(error) => {
                assert!(
                    matches!(&error, Error::Refused { code, .. } if code == "OOM"),
                    "{error}"
                );
            }
        }
        eventually(SOON, "nothing is left", async || test.is_free(0, "x").await).await;
        assert!(test.is_free(1, "y").await);
        assert_eq!(test.counts(1, "c").await, ["1"]);
    }
    let error = lock.lock().await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "OOM"),
        "{error}"
    );
    eventually(SOON, "the counts are as before", async || {
        test.counts(0, "a").await == ["1"] && test.counts(1, "c").await == ["1"]
    })
    .await;
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    full.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    lock.lock().await.unwrap().unlock().await.unwrap();
    test.assert_clean().await;
}

/// Design: invariant 12. A PEXPIRE that is refused for one key undoes the whole.
#[tokio::test]
async fn a_lease_refused_for_one_member_undoes_the_others() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    // The user may not set the TTL of these two members. It may set that of the first two.
    let user = [
        "ACL",
        "SETUSER",
        "limited",
        "on",
        ">secret",
        "+@all",
        "allchannels",
        "~*",
    ];
    redis.cmd(&user).await;
    let url = format!("redis://limited:secret@127.0.0.1:{}/", server.port());
    let client = Client::connect(url).await.unwrap();
    let names = ["a", "b", "c"];
    let lock = MultiLock::new(names.map(|name| client.lock(name)));
    let held = client.lock("b").lock().lease(ms(20_000)).await.unwrap();
    redis.cmd(&["ACL", "SETUSER", "limited", "-pexpire"]).await;
    for request in [lock.try_lock(), lock.try_lock().owner(&Owner::new())] {
        match request.lease(ms(60_000)).await {
            Err(error) => assert!(matches!(error, Error::Refused { .. }), "{error}"),
            Ok(guard) => assert!(guard.is_none(), "b is taken"),
        }
        assert_eq!(redis.keys().await, ["b"]);
        assert_eq!(
            redis.hash("b").await.into_values().collect::<Vec<_>>(),
            ["1"]
        );
    }
    redis.cmd(&["ACL", "SETUSER", "limited", "+pexpire"]).await;
    held.unlock().await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    redis.assert_clean().await;
}

/// Design: invariant 12. Writes before the refusal of a later member are undone.
#[tokio::test]
async fn a_refusal_of_the_last_member_undoes_the_first_ones() {
    let test = Fixture::start(1).await;
    let redis = &test.servers.redis[0];
    let held = test.multi(&[(0, "b"), (0, "c")]).lock().await.unwrap();
    let fields: Vec<String> = redis.hash("c").await.into_keys().collect();
    // This count cannot be incremented.
    redis.cmd(&["HSET", "c", &fields[0], "1.5"]).await;
    let lock = test.multi(&[(0, "a"), (0, "b"), (0, "c")]);
    let error = lock.lock().await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "ERR"),
        "{error}"
    );
    assert!(
        error.to_string().contains("; lock=\"c\" server="),
        "{error}"
    );
    assert_eq!(redis.keys().await, ["b", "c"]);
    assert_eq!(test.counts(0, "b").await, ["1"]);
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    test.assert_clean().await;
}

/// Flushed scripts are sent again in full.
#[tokio::test]
async fn members_are_acquired_after_a_script_flush() {
    let test = Fixture::start(2).await;
    let lock = test.multi(&MEMBERS);
    for _ in 0..5 {
        for redis in &test.servers.redis {
            redis.cmd(&["SCRIPT", "FLUSH"]).await;
        }
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    test.assert_clean().await;
}

fn is_acquire(args: &[String]) -> bool {
    let digest = redis::Script::new(ACQUIRE).get_hash().to_owned();
    args.get(1)
        .is_some_and(|script| *script == digest || script == ACQUIRE)
}

const ACQUIRE: &str = include_str!("../../../lua/multi_lock/acquire.lua");
const MEMBERS: [(usize, &str); 3] = [(0, "a"), (0, "b"), (1, "c")];
const PATIENT: Duration = Duration::from_secs(30);
