//! Hand-overs of a lock that is gone, and servers that refuse them.

use lockdog::{Error, Owner, Unlocked};

use super::{finish, got, held_with_next, in_line, patient, transfers};
use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME, take};
use crate::faults::scripts::transfer;
use crate::support::{Action, Gate, RedisServer, eventually};

/// The script answers "not held": the sender gets `Lost`, and the receiver contends.
#[tokio::test]
async fn a_lost_lock_is_not_handed_over() {
    let fixture = patient().await;
    let (held, next) = held_with_next(&fixture).await;
    fixture.redis.cmd(&["DEL", NAME]).await;
    let error = held.unlock().await.unwrap_err();
    assert!(error.is_lost() && !error.may_be_held(), "{error}");
    assert_eq!(transfers(&fixture), 1);
    finish(&fixture, got(next).await).await;
    // The same if another client holds it.
    let (held, next) = held_with_next(&fixture).await;
    fixture.redis.cmd(&["DEL", NAME]).await;
    let others = take(&fixture.others_lock().await).await;
    assert!(held.unlock().await.unwrap_err().is_lost());
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!next.is_finished() && others.is_valid());
    others.unlock().await.unwrap();
    finish(&fixture, got(next).await).await;
}

/// The force unlock comes before the server has read the hand-over.
#[tokio::test]
async fn a_force_unlock_before_the_hand_over_loses_the_lock_and_the_receiver_contends() {
    let fixture = patient().await;
    let (held, next) = held_with_next(&fixture).await;
    let gate = Gate::new();
    let action = Action::HoldRequest(gate.clone());
    fixture.proxy.on(transfer(), action);
    let others = fixture.others_lock().await;
    let force = async {
        gate.wait_reached().await;
        assert!(others.force_unlock().await.unwrap());
        gate.open();
    };
    let (unlocked, ()) = tokio::join!(held.unlock(), force);
    let error = unlocked.unwrap_err();
    assert!(error.is_lost(), "{error}");
    finish(&fixture, got(next).await).await;
}

#[tokio::test]
async fn a_force_unlock_before_the_answer_of_a_hand_over_ends_the_grant() {
    let fixture = patient().await;
    let (held, next) = held_with_next(&fixture).await;
    let gate = Gate::new();
    fixture
        .proxy
        .on(transfer(), Action::HoldReply(gate.clone()));
    let before = fixture.holder().await;
    let others = fixture.others_lock().await;
    let force = async {
        gate.wait_reached().await;
        eventually(SOON, "it is handed on", async || {
            fixture.holder().await != before
        })
        .await;
        assert!(others.force_unlock().await.unwrap());
        let third = take(&others).await;
        gate.open();
        third
    };
    let (unlocked, third) = tokio::join!(held.unlock(), force);
    assert_eq!(unlocked.unwrap(), Unlocked::Released);
    // The receiver read its grant first. It learns of the loss like every holder.
    let next = got(next).await;
    assert!(next.unlock().await.unwrap_err().is_lost());
    assert_eq!(third.unlock().await.unwrap(), Unlocked::Released);
    fixture.assert_recovered().await;
}

/// The client knows that it freed the lock before it read the answer with the grant.
#[tokio::test]
async fn a_grant_freed_by_its_own_client_before_the_answer_does_not_count() {
    let fixture = patient().await;
    let lock = fixture.lock();
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    let mut first = lock.lock().owner(&Owner::new()).into_future();
    assert!(super::poll_once(&mut first).await.is_none());
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!(transfers(&fixture), 1);
    let granted = fixture.holder().await;
    assert!(lock.force_unlock().await.unwrap());
    assert!(fixture.is_free().await);
    let first = tokio::time::timeout(SOON, first).await.unwrap().unwrap();
    assert_ne!(fixture.holder().await, granted);
    finish(&fixture, first).await;
}

/// After the hand-over the receiver holds it like any other lock.
#[tokio::test]
async fn a_force_unlock_after_the_hand_over_ends_the_receivers_hold() {
    let fixture = Fixture::start().await;
    let (held, next) = held_with_next(&fixture).await;
    held.unlock().await.unwrap();
    let next = got(next).await;
    let third = in_line(&fixture.lock()).await;
    assert!(fixture.lock().force_unlock().await.unwrap());
    assert!(!next.is_valid() && next.unlock().await.unwrap_err().is_lost());
    finish(&fixture, got(third).await).await;
}

/// Invariant 12: the transfer (HDEL first) passes under OOM.
#[tokio::test]
async fn a_server_out_of_memory_allows_hand_overs() {
    let fixture = patient().await;
    let (held, next) = held_with_next(&fixture).await;
    let set = async |to: &str| fixture.redis.cmd(&["CONFIG", "SET", "maxmemory", to]).await;
    set("1").await;
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    let next = got(next).await;
    assert_eq!(
        (transfers(&fixture), fixture.counts().await),
        (1, vec!["1".to_owned()])
    );
    assert!(fixture.redis.pttl(NAME).await > 0);
    let free = fixture.client.lock("other").lock().await.unwrap_err();
    assert!(
        matches!(&free, Error::Refused { code, .. } if code == "OOM"),
        "{free}"
    );
    set("0").await;
    finish(&fixture, next).await;
}

/// Invariant 12: a PEXPIRE that fails undoes the transfer; the lock is free and waiters are notified.
#[tokio::test]
async fn a_hand_over_whose_lease_is_refused_frees_the_lock_and_publishes() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"];
    redis.cmd(&user).await;
    let url = server.url().replace("redis://", "redis://app:pw@");
    let client = lockdog::Client::connect(url).await.unwrap();
    let lock = client.lock(NAME);
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    let next = in_line(&lock).await;
    let messages = redis.messages("*").await;
    redis.cmd(&["ACL", "SETUSER", "app", "-pexpire"]).await;
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    eventually(SOON, "it is notified", async || !messages.seen().is_empty()).await;
    assert!(!redis.exists(NAME).await);
    // The receiver sends its own acquire, and is refused.
    let refused = tokio::time::timeout(SOON, next).await.unwrap().unwrap();
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    redis.cmd(&["ACL", "SETUSER", "app", "+pexpire"]).await;
    lock.lock().await.unwrap().unlock().await.unwrap();
    drop(messages);
    assert!(client.holds().is_empty() && redis.keys().await.is_empty());
    redis.assert_clean().await;
}

/// Invariant 3: after NOSCRIPT the client sends the same call as EVAL.
#[tokio::test]
async fn a_hand_over_works_after_a_script_flush() {
    let fixture = patient().await;
    let (held, next) = held_with_next(&fixture).await;
    fixture.redis.cmd(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    let next = got(next).await;
    assert_eq!(transfers(&fixture), 2);
    finish(&fixture, next).await;
}
