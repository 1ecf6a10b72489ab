//! Hand-overs whose answer is lost, and hand-overs that arrive twice or late.

use std::time::Duration;

use lockdog::{ClientBuilder, Error, Owner, Unlocked};

use super::{finish, got, held_with_next, in_line, patient, transfers};
use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME, PATIENCE, take};
use crate::faults::scripts::{TRANSFER, transfer};
use crate::support::{Action, Gate};

/// The client sends the same arguments again.
#[tokio::test]
async fn a_hand_over_repeated_after_a_lost_reply_counts_once() {
    let fixture = patient().await;
    let (held, next) = held_with_next(&fixture).await;
    let rule = fixture.proxy.on(transfer(), Action::ExecuteThenCut);
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    let next = got(next).await;
    assert_eq!((rule.hits(), transfers(&fixture)), (1, 2));
    let sent = fixture.proxy.commands();
    let sent: Vec<_> = sent
        .iter()
        .filter(|seen| transfer()(&seen.args))
        .map(|seen| seen.args[2..].to_vec())
        .collect();
    assert_eq!(sent[0], sent[1]);
    finish(&fixture, next).await;
}

/// The connection breaks before the server has read the command.
#[tokio::test]
async fn a_hand_over_that_arrives_late_changes_nothing() {
    let fixture = patient().await;
    let (held, next) = held_with_next(&fixture).await;
    let gate = Gate::new();
    let late = fixture
        .proxy
        .on(transfer(), Action::HoldRequest(gate.clone()));
    let cut = async {
        gate.wait_reached().await;
        assert!(fixture.proxy.cut_all() >= 1);
    };
    let (unlocked, ()) = tokio::join!(held.unlock(), cut);
    assert_eq!(unlocked.unwrap(), Unlocked::Released);
    let next = got(next).await;
    let (holder, third) = (fixture.holder().await, in_line(&fixture.lock()).await);
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    let third = got(third).await;
    let third_holder = fixture.holder().await;
    assert_ne!(holder, third_holder);
    assert_eq!(late.hits(), 0);
    gate.open();
    gate.wait_passed().await;
    assert_eq!((late.hits(), fixture.holder().await), (1, third_holder));
    finish(&fixture, third).await;
}

/// There is no answer before the command timeout.
#[tokio::test]
async fn the_next_waiter_contends_after_a_hand_over_without_an_answer() {
    for action in [Action::DropReply, Action::HoldRequest(Gate::new())] {
        let set = |client: ClientBuilder| client.command_timeout(PATIENCE).poll_cap(PATIENCE * 2);
        let fixture = Fixture::with(set).await;
        let lock = fixture.lock();
        let held = Owner::new().scope(take(&lock)).await;
        // A waiter without a deadline may get the error of the silent server instead of the lock.
        let next = lock.try_lock().wait(SOON * 3).owner(&Owner::new());
        let next = tokio::spawn(next.into_future());
        tokio::task::yield_now().await;
        let rule = fixture.proxy.on(transfer(), action.clone());
        let error = held.unlock().await.unwrap_err();
        assert!(matches!(error, Error::UnlockUnconfirmed(_)), "{error}");
        let next = next.await.unwrap().unwrap();
        let next = next.expect("it has time for more than the silence");
        match action {
            Action::DropReply => rule.wait_hits(1).await,
            _ => assert_eq!(rule.hits(), 0),
        }
        finish(&fixture, next).await;
    }
}

#[tokio::test]
async fn a_hand_over_delivered_twice_counts_once() {
    let fixture = patient().await;
    let (held, next) = held_with_next(&fixture).await;
    let rule = fixture.proxy.on(transfer(), Action::Twice);
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    let next = got(next).await;
    rule.wait_hits(1).await;
    finish(&fixture, next).await;
}

/// After the receiver's re-entry, and after its unlock.
#[tokio::test]
async fn a_duplicate_hand_over_that_arrives_late_changes_nothing() {
    let fixture = patient().await;
    let gates = [Gate::new(), Gate::new()];
    for gate in &gates {
        fixture
            .proxy
            .on(transfer(), Action::TwiceLate(gate.clone()));
    }
    let (held, next) = held_with_next(&fixture).await;
    held.unlock().await.unwrap();
    let next = got(next).await;
    let inner = fixture.lock().lock().owner(&next.owner()).await.unwrap();
    let ttl = fixture.redis.pttl(NAME).await;
    pass(&gates[0]).await;
    assert_eq!((inner.hold_count(), fixture.counts().await), (2, two()));
    assert!(fixture.redis.pttl(NAME).await <= ttl);
    inner.unlock().await.unwrap();
    finish(&fixture, next).await;

    let (held, next) = held_with_next(&fixture).await;
    held.unlock().await.unwrap();
    got(next).await.unlock().await.unwrap();
    pass(&gates[1]).await;
    assert!(fixture.is_free().await);
    fixture.assert_recovered().await;
}

fn two() -> Vec<String> {
    vec!["2".to_owned()]
}

/// The example in the script's header, and other states of the key.
#[tokio::test]
async fn the_hand_over_script_is_idempotent() {
    let fixture = Fixture::start().await;
    let hand_over = async |from: &str, lease: &str| -> Option<i64> {
        let call = ["EVAL", TRANSFER, "1", "h", from, "b", lease, "channel"];
        fixture.redis.ask(&call).await
    };
    let holders = async || fixture.redis.hash("h").await;
    let messages = fixture.redis.messages("*").await;
    let hash = |field: &str, count: &str| [(field.to_owned(), count.to_owned())].into();
    // It is free.
    assert_eq!(hand_over("a", "5000").await, None);
    assert!(holders().await.is_empty());
    fixture.redis.cmd(&["HSET", "h", "a", "2"]).await;
    fixture.redis.cmd(&["PEXPIRE", "h", "90000"]).await;
    assert_eq!(hand_over("a", "5000").await, Some(0));
    assert_eq!(holders().await, hash("b", "1"));
    assert!(fixture.redis.pttl("h").await <= 5000);
    // The second time it changes neither the count nor the lease.
    fixture.redis.cmd(&["HSET", "h", "b", "3"]).await;
    fixture.redis.cmd(&["PEXPIRE", "h", "90000"]).await;
    assert_eq!(hand_over("a", "5000").await, Some(0));
    assert_eq!(holders().await, hash("b", "3"));
    assert!(fixture.redis.pttl("h").await > 5000);
    // Another owner has it.
    fixture.redis.cmd(&["DEL", "h"]).await;
    fixture.redis.cmd(&["HSET", "h", "c", "1"]).await;
    assert_eq!(hand_over("a", "5000").await, None);
    assert_eq!(holders().await, hash("c", "1"));
    assert!(messages.seen().is_empty());
    fixture.redis.cmd(&["DEL", "h"]).await;
    drop(messages);
    fixture.assert_recovered().await;
}

async fn pass(gate: &Gate) {
    let reached = tokio::time::timeout(SOON, gate.wait_reached()).await;
    reached.expect("the command was sent");
    gate.open();
    tokio::time::timeout(Duration::from_secs(10), gate.wait_passed())
        .await
        .expect("it is delivered");
}
