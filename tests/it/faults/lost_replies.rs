//! The command ran and its reply was lost. The count on the server is still right at the end.

use lockdog::{Error, Owner, Unlocked};

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME, PATIENCE, take};
use crate::faults::scripts::{acquire, acquire_to, kill, settle, unlock_to};
use crate::support::{Action, Gate, eventually};

#[tokio::test]
async fn an_acquire_repeated_after_a_lost_reply_counts_once() {
    let fixture = Fixture::start().await;
    let rule = fixture.proxy.on(acquire(), Action::ExecuteThenCut);
    let guard = fixture.lock().lock().await.unwrap();
    assert_eq!((rule.hits(), fixture.proxy.count(acquire())), (1, 2));
    assert_eq!((guard.hold_count(), fixture.counts().await), (1, one("1")));
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(fixture.is_free().await);
    fixture.redis.assert_clean().await;
}

#[tokio::test]
async fn an_inner_acquire_repeated_after_a_lost_reply_counts_once() {
    let fixture = Fixture::start().await;
    let outer = fixture.lock().lock().await.unwrap();
    let rule = fixture.proxy.on(acquire_to(2), Action::ExecuteThenCut);
    let inner = fixture.lock().lock().await.unwrap();
    assert_eq!((rule.hits(), fixture.proxy.count(acquire_to(2))), (1, 2));
    assert_eq!((inner.hold_count(), fixture.counts().await), (2, one("2")));
    let kept = Unlocked::StillHeld { count: 1 };
    assert_eq!(inner.unlock().await.unwrap(), kept);
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    assert!(fixture.is_free().await);
}

#[tokio::test]
async fn an_inner_unlock_repeated_after_a_lost_reply_counts_once() {
    let fixture = Fixture::start().await;
    let outer = fixture.lock().lock().await.unwrap();
    let middle = fixture.lock().lock().await.unwrap();
    let inner = fixture.lock().lock().await.unwrap();
    let rule = fixture.proxy.on(unlock_to(2), Action::ExecuteThenCut);
    let kept = Unlocked::StillHeld { count: 2 };
    assert_eq!(inner.unlock().await.unwrap(), kept);
    assert_eq!((rule.hits(), fixture.proxy.count(unlock_to(2))), (1, 2));
    assert_eq!((outer.hold_count(), fixture.counts().await), (2, one("2")));
    middle.unlock().await.unwrap();
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    assert!(fixture.is_free().await);
}

#[tokio::test]
async fn a_final_unlock_repeated_after_a_lost_reply_succeeds() {
    let fixture = Fixture::start().await;
    let messages = fixture.redis.messages("*").await;
    let guard = fixture.lock().lock().await.unwrap();
    let rule = fixture.proxy.on(unlock_to(0), Action::ExecuteThenCut);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!((rule.hits(), fixture.proxy.count(unlock_to(0))), (1, 2));
    assert!(fixture.is_free().await);
    eventually(SOON, "the message came", async || {
        !messages.seen().is_empty()
    })
    .await;
    assert_eq!(
        messages.seen().len(),
        1,
        "the repetition notifies no client"
    );
}

#[tokio::test]
async fn an_acquire_without_an_answer_is_an_error_and_is_undone() {
    let fixture = Fixture::with(|client| client.command_timeout(PATIENCE)).await;
    let rule = fixture.proxy.on(acquire(), Action::DropReply);
    let error = fixture.lock().lock().await.unwrap_err();
    assert!(error.is_timeout() && error.is_retriable(), "{error}");
    assert!(error.may_be_held() && !error.is_lost(), "{error}");
    rule.wait_hits(1).await;
    fixture.await_free().await;
    // The settlement is sent on the connection of the acquire, and on another one if there is no answer.
    let asked_on = connections_of(&fixture, acquire());
    let settled_on = connections_of(&fixture, settle());
    assert_eq!(asked_on[..1], settled_on[..1]);
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn an_inner_acquire_without_an_answer_leaves_the_outer_hold_unchanged() {
    let fixture = Fixture::with(|client| client.command_timeout(PATIENCE)).await;
    let outer = take(&fixture.lock()).await;
    let rule = fixture.proxy.on(acquire_to(2), Action::DropReply);
    let error = fixture.lock().lock().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    rule.wait_hits(1).await;
    eventually(SOON, "the count is lowered again", async || {
        fixture.counts().await == one("1")
    })
    .await;
    assert!(outer.is_valid());
    assert_eq!(outer.hold_count(), 1);
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    assert!(fixture.is_free().await);
}

#[tokio::test]
async fn an_unlock_without_an_answer_is_unconfirmed_and_is_settled_later() {
    let fixture = Fixture::with(|client| client.command_timeout(PATIENCE)).await;
    let outer = take(&fixture.lock()).await;
    let inner = take(&fixture.lock()).await;
    let rule = fixture.proxy.on(unlock_to(1), Action::DropReply);
    let error = inner.unlock().await.unwrap_err();
    assert!(matches!(error, Error::UnlockUnconfirmed(_)), "{error}");
    assert!(error.is_timeout() && error.may_be_held(), "{error}");
    rule.wait_hits(1).await;
    assert_eq!(outer.hold_count(), 1);
    eventually(SOON, "the count is lowered", async || {
        fixture.counts().await == one("1")
    })
    .await;
    assert!(outer.is_valid());

    // By now the client has closed the silent connection.
    fixture.proxy.wait_for(kill(), 1).await;
    let rule = fixture.proxy.on(unlock_to(0), Action::DropReply);
    let error = outer.unlock().await.unwrap_err();
    assert!(matches!(error, Error::UnlockUnconfirmed(_)), "{error}");
    rule.wait_hits(1).await;
    fixture.assert_recovered().await;
}

/// Design: invariant 6.
#[tokio::test]
async fn a_timeout_settles_on_the_same_connection_and_keeps_it() {
    // The settlement has a command timeout, also if the machine is frozen before the gate opens.
    let fixture = Fixture::start().await;
    let gate = Gate::new();
    fixture
        .proxy
        .on(acquire(), Action::HoldRequest(gate.clone()));
    let error = fixture.lock().try_lock().wait(PATIENCE).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    gate.wait_reached().await;
    gate.open();
    gate.wait_passed().await;
    // The settlement was behind the gate. On another connection it would have come before the acquire, and
    // the lock would be held for a lease.
    fixture.await_free().await;
    assert_eq!(
        connections_of(&fixture, acquire()),
        connections_of(&fixture, settle())[..1]
    );
    let guard = take(&fixture.lock()).await;
    assert_eq!(fixture.proxy.count(kill()), 0, "nothing was given up");
    guard.unlock().await.unwrap();
    assert_eq!(connections_of(&fixture, acquire()).len(), 2);
    fixture.assert_recovered().await;
}

/// Design: invariant 6.
#[tokio::test]
async fn an_abandoned_connection_is_killed_before_its_commands_can_run() {
    let fixture = Fixture::with(|client| client.command_timeout(PATIENCE)).await;
    let lost = fixture.proxy.on(acquire(), Action::DropReply);
    let ids = callers(&fixture).await;
    assert!(fixture.lock().lock().await.is_err());
    lost.wait_hits(1).await;
    fixture.proxy.wait_for(kill(), 1).await;
    let commands = fixture.proxy.commands();
    let killed = commands.iter().find(|seen| kill()(&seen.args)).unwrap();
    assert!(
        ids.contains(&killed.args[3]),
        "{killed:?} is none of {ids:?}"
    );
    // The settlement that counts comes after the connection was killed.
    let settled_after = commands
        .iter()
        .skip_while(|seen| !kill()(&seen.args))
        .any(|seen| settle()(&seen.args));
    if !settled_after {
        fixture.proxy.wait_for(settle(), 2).await;
    }
    eventually(SOON, "the connection is closed", async || {
        let there = callers(&fixture).await;
        !there.contains(&killed.args[3])
    })
    .await;
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_request_cut_in_the_middle_is_sent_again() {
    let fixture = Fixture::start().await;
    let owner = Owner::new();
    fixture
        .proxy
        .cut_after_bytes(crate::support::Direction::ToServer, 40);
    let guard = fixture.lock().lock().owner(&owner).await.unwrap();
    assert_eq!(fixture.proxy.counts().cut_after_bytes, 1);
    assert_eq!(fixture.counts().await, one("1"));
    fixture
        .proxy
        .cut_after_bytes(crate::support::Direction::ToClient, 1);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!(fixture.proxy.counts().cut_after_bytes, 2);
    assert!(!fixture.redis.exists(NAME).await);
}

fn one(count: &str) -> Vec<String> {
    vec![count.to_owned()]
}

/// The connections on which such a command was sent, in the order of sending.
fn connections_of(fixture: &Fixture, matches: impl Fn(&[String]) -> bool) -> Vec<u64> {
    let commands = fixture.proxy.commands();
    let matching = commands.iter().filter(|seen| matches(&seen.args));
    matching.map(|seen| seen.connection).collect()
}

/// The server's ids of these connections.
async fn callers(fixture: &Fixture) -> Vec<String> {
    let clients = fixture.redis.clients().await;
    clients.iter().map(|client| client.id.to_string()).collect()
}
