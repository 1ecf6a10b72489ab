//! Holders that fail: a process that is frozen, a watchdog that panics, clients that are shut down.

use std::time::Instant;

use futures_util::future::join_all;
use lockdog::error::LostReason;
use lockdog::{Client, Error, Owner};

use super::crowd::Crowd;
use super::fencing::Resource;
use super::fixture::{Fixture, assert_busy, await_states, client, give_back, red_lock, take};
use super::story::Watched;
use super::{LEASE, NAME};
use crate::red_lock::{SOON, ms};
use crate::support::child::{Copy, argument, await_go_ahead, send};
use crate::support::{eventually, logs, until_ok};

#[tokio::test]
async fn a_process_frozen_beyond_the_lease_sees_the_loss_at_its_first_check() {
    let Some(urls) = argument() else {
        return frozen_with_the_lock().await;
    };
    let mut clients = Vec::new();
    for url in urls.split(' ') {
        clients.push(client(url, |builder| builder).await);
    }
    let guard = take(&red_lock(&clients).fenced()).await;
    let token = guard.token().expect("it is fenced");
    assert!(guard.is_valid());
    send(&token.to_string());
    // No task of this runtime runs after this line.
    await_go_ahead();
    let is_valid = guard.is_valid();
    send(if is_valid { "still valid" } else { "lost" });
    let lost = guard.lost().await;
    send(&format!("{:?}", lost.reason()));
    await_go_ahead();
}

async fn frozen_with_the_lock() {
    let test = Fixture::start(3).await;
    let name = "red_lock::faults::holders::\
                a_process_frozen_beyond_the_lease_sees_the_loss_at_its_first_check";
    let urls: Vec<String> = test.servers.iter().map(|server| server.url()).collect();
    let mut holder = Copy::run(name, &urls.join(" "));
    let stale: u64 = holder.receive().parse().unwrap();
    let lock = test.lock().await.fenced();
    assert_busy(&lock).await;
    let mut resource = Resource::default();
    assert!(resource.write(stale));
    holder.pause();
    let next = take(&lock).await;
    let token = next.token().unwrap();
    assert!(token > stale, "{token} after {stale}");
    assert!(resource.write(token));
    holder.go_ahead();
    holder.resume();
    assert_eq!(holder.receive(), "lost");
    assert_eq!(holder.receive(), "Deadline");
    // Without this check the resource would refuse the write.
    assert!(!resource.write(stale), "a late write got through");
    assert!(next.is_valid());
    holder.kill();
    give_back(next).await;
    test.assert_nothing_stays().await;
}

/// Design: invariant 11. The watchdog of each client in turn panics: its instance is released, and the
/// lock continues on the others.
#[test]
fn a_watchdog_panic_loses_one_instance_for_a_moment() {
    logs::alone(
        "red_lock::faults::holders::a_watchdog_panic_loses_one_instance_for_a_moment",
        async {
            tracing::subscriber::set_global_default(logs::Panicking).expect("it is the only one");
            let test = Fixture::start(3).await;
            // The lease allows a second attempt, because a failed round would be logged, too.
            let lease = |builder: lockdog::ClientBuilder| builder.watchdog_lease(LEASE * 2);
            let clients = test.clients_with(lease).await;
            let yours = test.lock().await;
            let guard = take(&red_lock(&clients).max_lease(LEASE * 2)).await;
            eventually(SOON, "it has all", async || guard.margin() == 1).await;
            let mut watched = Watched::new(guard);
            for (member, client) in clients.iter().enumerate() {
                let redis = test.servers[member].redis().await;
                let field = redis.hash(NAME).await;
                make_panic(client, &redis).await;
                eventually(SOON, "it was taken there again", async || {
                    assert!(watched.look(), "{:?}", watched.guard().instances());
                    let found = redis.hash(NAME).await;
                    !found.is_empty() && found != field
                })
                .await;
                eventually(SOON, "it has all again", async || {
                    watched.guard().margin() == 1
                })
                .await;
                assert_busy(&yours).await;
            }
            watched.stays_valid(LEASE).await;
            give_back(watched.into_guard()).await;
            give_back(take(&yours).await).await;
            test.assert_nothing_stays_of(LEASE * 2).await;
        },
    );
}

/// The user's subscriber panics when the watchdog logs a loss, and every plain lock of the client
/// reports the panic.
async fn make_panic(client: &Client, redis: &crate::support::Redis) {
    let kept = until_ok(SOON, async || client.lock("kept").lock().await).await;
    let deleted = until_ok(SOON, async || client.lock("deleted").lock().await).await;
    redis.cmd(&["DEL", "deleted"]).await;
    let lost = tokio::time::timeout(SOON, kept.lost()).await;
    assert_eq!(
        lost.expect("it is notified of the loss").reason(),
        LostReason::Watchdog
    );
    drop((kept, deleted));
}

/// In the order of their ids, because waiters use the queue of the first client, and its thread extends
/// the holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_shut_down_leaves_the_lock_to_the_others() {
    let test = Fixture::start(3).await;
    let yours = test.lock().await;
    for place in 0..3 {
        let mine = test.clients().await;
        let lock = red_lock(&mine);
        let guard = take(&lock).await;
        eventually(SOON, "it has all", async || guard.margin() == 1).await;
        let waiter = tokio::spawn(
            lock.try_lock()
                .owner(&Owner::new())
                .wait(SOON)
                .into_future(),
        );
        let mut ids: Vec<_> = mine.iter().map(Client::id).collect();
        ids.sort();
        let ended = mine.iter().position(|client| client.id() == ids[place]);
        let ended = ended.unwrap();
        let crowd = Crowd::start(std::slice::from_ref(&yours));
        mine[ended].shutdown().await;
        let redis = test.servers[ended].redis().await;
        let its = mine[ended].id().to_string();
        let left = redis
            .hash(NAME)
            .await
            .into_keys()
            .find(|field| field.starts_with(&its));
        assert_eq!(left, None, "it is released there");
        let mut watched = Watched::new(guard);
        watched.stays_valid(LEASE * 5 / 4).await;
        assert_eq!(watched.guard().margin(), 0);
        assert_eq!(
            crowd.visits(),
            0,
            "another owner acquired the lock while it was held"
        );
        assert!(!waiter.is_finished(), "it waits for the others");
        give_back(watched.into_guard()).await;
        let next = waiter.await.unwrap().unwrap();
        give_back(next.expect("it is free")).await;
        let again = take(&lock).await;
        await_states(&again, &test, ["UAA", "AUA", "AAU"][ended]).await;
        drop(again);
        crowd.await_visits(5).await;
        crowd.end().await;
    }
    test.assert_nothing_stays().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutting_down_all_clients_notifies_the_holder_and_frees_the_lock() {
    let test = Fixture::start(3).await;
    // Far longer than the test.
    let lease = |builder: lockdog::ClientBuilder| builder.watchdog_lease(SOON * 3);
    let mine = test.clients_with(lease).await;
    let lock = red_lock(&mine).max_lease(SOON * 3);
    let guard = take(&lock).await;
    eventually(SOON, "it has all", async || guard.margin() == 1).await;
    let waiter = tokio::spawn(lock.lock().owner(&Owner::new()).into_future());
    tokio::time::sleep(ms(50)).await;
    let watched = Watched::new(guard);
    join_all(mine.iter().map(Client::shutdown)).await;
    let loss = watched.followed_to_the_end().await;
    let ended = Instant::now();
    assert_eq!(loss.reason, LostReason::ShutDown);
    assert!(loss.last_valid < ended);
    test.await_taken(0).await;
    let refused = tokio::time::timeout(SOON, waiter).await;
    let refused = refused.expect("each wait ends").unwrap().unwrap_err();
    assert!(matches!(refused, Error::Closed), "{refused}");
    for refused in [
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
    ] {
        assert!(
            matches!(refused, Error::Closed | Error::NoQuorum(_)),
            "{refused}"
        );
    }
    give_back(take(&test.lock().await).await).await;
    test.assert_nothing_stays().await;
}
