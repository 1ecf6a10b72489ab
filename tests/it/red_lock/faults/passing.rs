//! Servers in a temporary state that refuse commands.

use lockdog::{Error, Owner};

use super::LEASE;
use super::crowd::Crowd;
use super::fixture::{Fixture, assert_busy, await_states, give_back, take};
use super::story::Watched;
use crate::red_lock::{SOON, ms};
use crate::support::{Action, eventually};

/// The server answers LOADING, BUSY, MASTERDOWN, MISCONF, NOREPLICAS or READONLY. It does not count for
/// a hold or for an acquire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_refuses_temporarily_does_not_count_until_it_recovers() {
    for line in [
        "-LOADING Redis is loading the dataset in memory",
        "-BUSY Redis is busy running a script",
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "-MISCONF Redis is configured to save RDB snapshots, but it is unable to persist to disk",
        "-NOREPLICAS Not enough good replicas to write.",
        "-READONLY You can't write against a read only replica.",
    ] {
        println!("{line}");
        let test = Fixture::proxied(3).await;
        let (mine, yours) = (test.lock().await, test.direct_lock().await);
        let guard = take(&mine).await;
        eventually(SOON, "it has all", async || guard.margin() == 1).await;
        let crowd = Crowd::start(std::slice::from_ref(&yours));
        let refuse = |member: usize| {
            let refuses = |args: &[String]| args[0] == "EVALSHA" || args[0] == "EVAL";
            let rule = test.proxies[member].on(refuses, Action::ReplyWith(line.to_owned()));
            rule.always()
        };
        let first = refuse(0);
        let mut watched = Watched::new(guard).working(crowd.beside());
        watched.stays_valid(LEASE * 3 / 2).await;
        await_states(watched.guard(), &test, "UAA").await;
        assert_eq!(
            crowd.visits(),
            0,
            "another owner acquired the lock while it was held"
        );
        assert!(first.hits() > 0);
        give_back(watched.into_guard()).await;
        crowd.await_visits(5).await;
        crowd.end().await;
        test.await_taken(0).await;

        // With two refusing servers of three there is no quorum. That is an error and not "busy".
        let second = refuse(1);
        let none = mine.try_lock().owner(&Owner::new()).await;
        assert!(matches!(none, Err(Error::NoQuorum(_))), "{none:?}");
        assert!(second.hits() > 0);
        second.remove();
        first.remove();
        let guard = take(&mine).await;
        await_states(&guard, &test, "AAA").await;
        give_back(guard).await;
        test.assert_nothing_stays().await;
    }
}

/// By CLIENT PAUSE.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_paused_by_client_pause_do_not_count_while_paused() {
    let test = Fixture::start(5).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 2).await;
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    let time = (LEASE * 3).as_millis().to_string();
    for server in &test.servers[..2] {
        let redis = server.redis().await;
        redis.cmd(&["CLIENT", "PAUSE", &time, "ALL"]).await;
    }
    let mut watched = Watched::new(guard).working(crowd.beside());
    watched.stays_valid(LEASE * 3 / 2).await;
    await_states(watched.guard(), &test, "UUAAA").await;
    watched.stays_valid(LEASE).await;
    assert_eq!(
        crowd.visits(),
        0,
        "another owner acquired the lock while it was held"
    );
    eventually(SOON, "it has all again", async || {
        watched.look() && watched.guard().margin() == 2
    })
    .await;
    give_back(watched.into_guard()).await;
    crowd.await_visits(5).await;
    crowd.end().await;
    test.assert_nothing_stays().await;
}

/// On all servers at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_subscriptions_are_cut_resubscribes_and_gets_the_lock() {
    let test = Fixture::start(3).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let guard = take(&mine).await;
    let waiting = tokio::spawn(async move { take(&yours).await });
    let mut killed = 0;
    for _ in 0..2 {
        for server in &test.servers {
            let redis = server.redis().await;
            eventually(SOON, "the waiter listens", async || {
                !redis.channels().await.is_empty()
            })
            .await;
            killed += redis
                .ask::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"])
                .await;
        }
    }
    assert!(killed >= 6, "{killed}");
    tokio::time::sleep(ms(50)).await;
    assert!(!waiting.is_finished() && guard.is_valid());
    assert_busy(&mine).await;
    give_back(guard).await;
    let next = tokio::time::timeout(SOON, waiting).await;
    let next = next.expect("it gets the lock").unwrap();
    assert!(next.is_valid());
    give_back(next).await;
    test.assert_nothing_stays().await;
}
