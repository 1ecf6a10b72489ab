//! Servers that answer, and refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockdog::error::{Instance, InstanceState};
use lockdog::{Error, Guard};

use super::crowd::Crowd;
use super::fixture::{Fixture, assert_busy, await_states, give_back, states_as_letters, take};
use super::story::Watched;
use super::{LEASE, NAME};
use crate::red_lock::{SOON, ms};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frequent_script_flushes_do_not_disturb_the_lock() {
    let test = Fixture::start(3).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let over = Arc::new(AtomicBool::new(false));
    let mut flushing = tokio::task::JoinSet::new();
    for server in &test.servers {
        let (redis, over) = (server.redis().await, over.clone());
        flushing.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                redis.cmd(&["SCRIPT", "FLUSH"]).await;
                tokio::time::sleep(ms(1)).await;
            }
        });
    }
    let crowd = Crowd::start(&[mine.clone(), yours.clone()]);
    crowd.await_visits(50).await;
    crowd.end().await;
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 1).await;
    for server in &test.servers {
        let counts: Vec<String> = server
            .redis()
            .await
            .hash(NAME)
            .await
            .into_values()
            .collect();
        assert_eq!(counts, ["1"]);
    }
    let mut watched = Watched::new(guard);
    watched.stays_valid(LEASE * 3 / 2).await;
    assert_busy(&yours).await;
    give_back(watched.into_guard()).await;
    over.store(true, Ordering::Relaxed);
    while let Some(flushed) = flushing.join_next().await {
        flushed.unwrap();
    }
    for server in &test.servers {
        let missed = server.redis().await.errorstats().await;
        assert!(missed["NOSCRIPT"] > 10, "{missed:?}");
    }
    test.assert_nothing_stays().await;
}

/// Existing holds on the instance can be renewed and released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_out_of_memory_keeps_its_hold_and_grants_nothing_new() {
    let test = Fixture::start(5).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let redis = test.servers[0].redis().await;
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 2).await;
    let field = redis.hash(NAME).await;
    redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let mut watched = Watched::new(guard);
    watched.stays_valid(LEASE * 3 / 2).await;
    await_states(watched.guard(), &test, "AAAAA").await;
    assert_eq!(redis.hash(NAME).await, field, "it was not taken again");
    give_back(watched.into_guard()).await;
    let crowd = Crowd::start(&[yours]);
    crowd.await_visits(10).await;
    crowd.end().await;
    let guard = refused_by_the_first(&test, &mine, "OOM").await;
    redis.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    heals(&test, guard).await;
}

/// A key of another type under the lock's name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_with_a_key_of_another_type_does_not_count_and_keeps_its_key() {
    let test = Fixture::start(5).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let redis = test.servers[0].redis().await;
    redis.cmd(&["SET", NAME, "foreign"]).await;
    let crowd = Crowd::start(&[mine.clone(), yours]);
    crowd.await_visits(20).await;
    crowd.end().await;
    let guard = refused_by_the_first(&test, &mine, "WRONGTYPE").await;
    let found: String = redis.ask(&["GET", NAME]).await;
    assert_eq!(found, "foreign");
    redis.cmd(&["DEL", NAME]).await;
    heals(&test, guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_revokes_its_permission_is_lost_and_reacquired() {
    let test = Fixture::start(5).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let redis = test.servers[0].redis().await;
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 2).await;
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    let acl = |rights: &'static [&'static str]| {
        let redis = redis.clone();
        async move {
            redis
                .cmd(&[&["ACL", "SETUSER", "default"], rights].concat())
                .await
        }
    };
    acl(&["-evalsha", "-eval"]).await;
    let mut watched = Watched::new(guard);
    watched.stays_valid(LEASE * 3 / 2).await;
    await_states(watched.guard(), &test, "UAAAA").await;
    assert_refused(&watched.guard().instances(), &test, "NOPERM");
    assert!(!test.is_taken(0).await, "it ended there");
    assert_eq!(
        crowd.visits(),
        0,
        "another owner acquired the lock while it was held"
    );
    assert!(redis.errorstats().await["NOPERM"] > 0);
    acl(&["+@all"]).await;
    crowd.end().await;
    heals(&test, watched.into_guard()).await;
    give_back(take(&yours).await).await;
    test.assert_nothing_stays().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_requires_a_password_is_lost_and_reacquired() {
    let test = Fixture::start(5).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let redis = test.servers[0].redis().await;
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 2).await;
    redis.cmd(&["CONFIG", "SET", "requirepass", "s3cret"]).await;
    let killed: u64 = redis
        .ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await;
    assert!(killed > 0);
    let mut watched = Watched::new(guard);
    watched.stays_valid(LEASE * 3 / 2).await;
    await_states(watched.guard(), &test, "UAAAA").await;
    assert_refused(&watched.guard().instances(), &test, "NOAUTH");
    assert_busy(&yours).await;
    redis.cmd(&["CONFIG", "SET", "requirepass", ""]).await;
    heals(&test, watched.into_guard()).await;
    give_back(take(&yours).await).await;
    test.assert_nothing_stays().await;
}

/// Acquires the lock on the four other servers. The report gives the reason for the first.
async fn refused_by_the_first(test: &Fixture, lock: &lockdog::RedLock, code: &str) -> Guard {
    let guard = take(lock).await;
    await_states(&guard, test, "UAAAA").await;
    assert_refused(&guard.instances(), test, code);
    guard
}

/// The first server refused, with this code.
fn assert_refused(instances: &[Instance], test: &Fixture, code: &str) {
    let first = instances.iter().find(|instance| test.member(instance) == 0);
    let first = first.expect("it is there");
    let InstanceState::Unreachable { cause, .. } = &first.state else {
        panic!("{first}");
    };
    let refused = matches!(cause, Error::Refused { code: found, .. } if found == code);
    assert!(refused, "{cause}");
}

/// The first server counts again, and the lock is released everywhere.
async fn heals(test: &Fixture, guard: Guard) {
    eventually(SOON, "it has all again", async || {
        assert!(guard.is_valid());
        guard.margin() == 2
    })
    .await;
    assert_eq!(states_as_letters(&guard.instances(), test), "AAAAA");
    give_back(guard).await;
    test.assert_nothing_stays().await;
}
