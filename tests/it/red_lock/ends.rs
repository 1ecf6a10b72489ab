//! The report of each instance when a lock is lost or its unlock fails.

use lockdog::Error;
use lockdog::error::{Instance, InstanceState, LostReason};
use lockdog::report::Verdict;

use super::{SOON, Servers, has, lock_of, ms};
use crate::support::eventually;

#[tokio::test]
async fn a_lost_lock_reports_which_servers_failed() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(4_800)))
        .await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().await.unwrap();
    has(&guard, 3).await;
    servers.all[0].kill();
    servers.all[2].kill();
    let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    for states in [lost.instances().to_vec(), guard.instances()] {
        for (n, instance) in states.iter().enumerate() {
            let as_was = match n {
                1 => matches!(instance.state, InstanceState::GivenBack),
                _ => is_away(instance),
            };
            assert!(as_was, "{instance}");
            let address = format!("127.0.0.1:{}", servers.all[n].port());
            assert_eq!(instance.server, address);
            assert!(lost.to_string().contains(&address), "{lost}");
        }
    }
    // Unlock and acquire report the same instances.
    for error in [
        lock.lock().await.unwrap_err(),
        guard.unlock().await.unwrap_err(),
    ] {
        let Error::Lost(lost) = &error else {
            panic!("{error}")
        };
        assert!(is_away(&lost.instances()[0]), "{error}");
    }
}

#[tokio::test]
async fn a_deleted_lock_reports_the_instances() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(6_000)))
        .await;
    let guard = lock_of(&clients, "l").lock().await.unwrap();
    has(&guard, 3).await;
    // The deletion is repeated, because an extension between the two acquires the first instance again.
    eventually(SOON, "the loss is noticed", async || {
        for n in [1, 2] {
            servers.redis[n].cmd(&["DEL", "l"]).await;
        }
        !guard.is_valid()
    })
    .await;
    let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::NotOurs);
    let states: Vec<String> = lost
        .instances()
        .iter()
        .map(|instance| instance.state.to_string())
        .collect();
    assert_eq!(states, ["given back", "lost", "lost"]);
}

/// The client does not watch a fixed lease, so the unlock detects it.
#[tokio::test]
async fn an_unlock_of_a_deleted_lock_reports_the_instances() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let guard = lock.lock().lease(ms(60_000)).await.unwrap();
    has(&guard, 3).await;
    for n in [0, 1] {
        servers.redis[n].cmd(&["DEL", "l"]).await;
    }
    let error = guard.unlock().await.unwrap_err();
    let Error::Lost(lost) = error else {
        panic!("{error}")
    };
    assert_eq!(lost.reason(), LostReason::NotOurs);
    let states: Vec<String> = lost
        .instances()
        .iter()
        .map(|instance| instance.state.to_string())
        .collect();
    assert_eq!(states, ["lost", "lost", "given back"]);
}

#[tokio::test]
async fn an_unconfirmed_unlock_reports_the_instances() {
    let servers = Servers::start(3).await;
    let guard = servers.lock("l").await.lock().await.unwrap();
    has(&guard, 3).await;
    servers.all[0].kill();
    servers.all[1].pause();
    let error = guard.unlock().await.unwrap_err();
    assert!(!error.is_retriable() && error.may_be_held());
    let Error::UnlockUnconfirmed(unlock) = &error else {
        panic!("{error}")
    };
    let [first, second, third] = unlock.instances() else {
        panic!("{error}")
    };
    assert!(is_away(first) && is_away(second), "{error}");
    assert!(matches!(third.state, InstanceState::GivenBack), "{error}");
    let text = error.to_string();
    assert_eq!(
        text.matches("did not confirm the unlock").count(),
        1,
        "{text}"
    );
    for server in &servers.all {
        assert!(text.contains(&format!("127.0.0.1:{}: ", server.port())));
    }
    // The cause of the first missing answer, without its own text.
    let cause = unlock.cause().expect("there is one");
    assert!(
        matches!(cause, Error::Unavailable { .. } | Error::Timeout { .. }),
        "{cause}"
    );
    let server = format!("; lock=\"l\" server=127.0.0.1:{}", servers.all[0].port());
    assert!(cause.to_string().ends_with(&server), "{cause}");
    assert!(std::error::Error::source(unlock).is_none());
    servers.all[1].resume();
}

/// A view that outlived its guard reports the release.
#[tokio::test]
async fn an_unlocked_lock_reports_its_instances_as_given_back() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let (send, receive) = tokio::sync::oneshot::channel();
    let work = lock.with(async |held| drop(send.send(held)));
    work.await.unwrap();
    let held = receive.await.unwrap();
    assert_eq!(held.lost().await.reason(), LostReason::Released);
    let states = held.instances();
    let given_back = |it: &&Instance| matches!(it.state, InstanceState::GivenBack);
    // One instance may not have answered before the release.
    assert!(states.iter().filter(given_back).count() >= 2, "{states:?}");
    assert!(
        !states
            .iter()
            .any(|it| matches!(it.state, InstanceState::Lost))
    );
}

/// The verdict is held, then in jeopardy while extensions fail, then held again, and at last lost.
#[tokio::test]
async fn the_verdict_follows_the_extensions() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| {
            builder
                .watchdog_lease(ms(15_000))
                .command_timeout(ms(1_000))
        })
        .await;
    let lock = lock_of(&clients, "l");
    let guard = lock
        .try_lock()
        .wait(SOON)
        .await
        .unwrap()
        .expect("it is free");
    has(&guard, 3).await;
    assert_eq!(guard.verdict(), Verdict::Held);
    for server in &servers.all[..2] {
        server.pause();
    }
    let becomes = async |verdict| {
        eventually(SOON, "the verdict is another", async || {
            guard.verdict() == verdict
        })
        .await;
    };
    becomes(Verdict::Jeopardy).await;
    assert!(guard.is_valid());
    servers.all[0].resume();
    becomes(Verdict::Held).await;
    servers.all[0].pause();
    becomes(Verdict::Jeopardy).await;
    becomes(Verdict::Lost(LostReason::Deadline)).await;
    assert!(!guard.is_valid());
    servers.all[0].resume();
    servers.all[1].resume();
    // The verdict does not change any more.
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(guard.verdict(), Verdict::Lost(LostReason::Deadline));
}

/// Whether the instance was not reached, by either report.
fn is_away(instance: &Instance) -> bool {
    let state = &instance.state;
    matches!(
        state,
        InstanceState::Unreachable { .. } | InstanceState::Late
    )
}

#[tokio::test]
async fn a_known_loss_is_reported_by_every_query_at_once() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    servers.all[2].pause();
    // The lease is so long that neither its end nor an extension reports the loss.
    let guard = lock.lock().lease(ms(60_000)).await.unwrap();
    let work = lock.with(async |held| {
        let forced = clients[0].lock("l").force_unlock().await;
        assert!(forced.unwrap(), "it was held there");
        assert!(!held.is_valid(), "one of two servers is no quorum");
        assert_eq!(held.verdict(), Verdict::Lost(LostReason::Forced));
        std::future::pending::<()>().await;
    });
    let ended = tokio::time::timeout(SOON, work).await;
    let ended = ended.expect("the work is cancelled").unwrap_err();
    assert!(matches!(ended, Error::Lost(_)), "{ended}");
    assert!(!guard.is_valid());
    assert_eq!(guard.verdict(), Verdict::Lost(LostReason::Forced));
    assert!(guard.lost_token().is_cancelled());
    let lost = tokio::time::timeout(SOON, guard.lost()).await;
    assert_eq!(
        lost.expect("it is notified of the loss").reason(),
        LostReason::Forced
    );
    for nested in [lock.try_lock().await, lock.lock().await.map(Some)] {
        let error = nested.expect_err("a nested call grants nothing");
        assert!(matches!(error, Error::Lost(_)), "{error}");
    }
    assert!(!lock.is_held());
    // A server that answers again does not restore the hold.
    servers.all[2].resume();
    tokio::time::sleep(ms(300)).await;
    assert!(!guard.is_valid());
    drop(guard);
    servers.assert_counts("l", [0; 3]).await;
    let next = lock.try_lock().wait(SOON).await.unwrap();
    next.expect("it is free").unlock().await.unwrap();
}
