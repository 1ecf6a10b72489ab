//! Lost, late and repeated commands.

use std::time::Duration;

use lockdog::{Client, Error, Semaphore};

use super::{Fixture, LONG, NAME, SOON, ms};
use crate::support::prelude::poll_once;
use crate::support::{Action, Direction, Gate, Proxy, eventually, until_ok};

/// A client behind a proxy. All scripts are loaded, so that a rule meets the first sending.
async fn behind_a_proxy(test: &Fixture) -> (Proxy, Semaphore) {
    behind_a_proxy_for(test, ms(1_500)).await
}

/// A client with this command timeout.
async fn behind_a_proxy_for(test: &Fixture, patience: Duration) -> (Proxy, Semaphore) {
    for script in [ACQUIRE, RELEASE, ADD, TRY_SET, RECLAIM] {
        test.redis.cmd(&["SCRIPT", "LOAD", script]).await;
    }
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(patience);
    let client = until_ok(SOON, async || client.clone().build().await).await;
    (proxy, client.semaphore(NAME))
}

/// SE1 and SE3: a command whose reply is lost, or that runs twice, counts once.
#[tokio::test]
async fn a_repeated_command_counts_once() {
    let test = Fixture::with_permits(5).await;
    let (proxy, seats) = behind_a_proxy_for(&test, SOON).await;
    for action in [Action::ExecuteThenCut, Action::Twice] {
        let rule = proxy.on(is(ACQUIRE), action.clone());
        let mut three = seats.acquire_many(3).await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!((test.free().await, test.shares().await), (2, vec![3]));
        let rule = proxy.on(is(RELEASE), action.clone());
        three.split(1).unwrap().release().await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!((test.free().await, test.shares().await), (3, vec![2]));
        let rule = proxy.on(is(RELEASE), action.clone());
        three.release().await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!((test.free().await, test.shares().await), (5, vec![]));
        let rule = proxy.on(is(ACQUIRE), action.clone());
        let all = seats.drain().await.unwrap().expect("five are free");
        rule.wait_hits(1).await;
        assert_eq!((all.count(), test.free().await), (5, 0));
        drop(all);
        test.eventually_free().await;
        let rule = proxy.on(is(ADD), action.clone());
        seats.add_permits(3).await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!(test.free().await, 8);
        let rule = proxy.on(is(ADD), action.clone());
        seats.release(2).await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!(test.free().await, 10);
        test.redis.cmd(&["DEL", NAME]).await;
        let rule = proxy.on(is(TRY_SET), action);
        assert!(seats.try_set_permits(5).await.unwrap());
        rule.wait_hits(1).await;
        test.assert_total().await;
    }
}

/// The server refuses for a while, or its answer is lost. The client retries, so the caller must not.
#[tokio::test]
async fn a_caller_that_repeats_what_is_retriable_adds_once() {
    let test = Fixture::with_permits(5).await;
    let (proxy, seats) = behind_a_proxy(&test).await;
    let mut free = 5;
    for (action, is_added) in [
        (Action::ReplyWith("-TRYAGAIN wait".to_owned()), false),
        (Action::ReplyWith("-NOREPLICAS wait".to_owned()), true),
        (Action::DropReply, false),
        (Action::DropReply, true),
    ] {
        let rule = proxy.on(is(ADD), action.clone());
        // The client repeats a command that is refused for a while.
        let rule = match action {
            Action::ReplyWith(_) => rule.always(),
            _ => rule,
        };
        let mut calls = 0;
        let error = loop {
            calls += 1;
            let called = match is_added {
                true => seats.add_permits(2).await,
                false => seats.release(2).await,
            };
            let error = called.unwrap_err();
            if !error.is_retriable() {
                break error;
            }
        };
        let is_unconfirmed = matches!(&error, Error::Unconfirmed { .. });
        assert!(is_unconfirmed && calls == 1, "{calls}: {error}");
        rule.wait_hits(1).await;
        rule.remove();
        free += 2;
        eventually(SOON, "they are added", async || test.free().await == free).await;
        tokio::time::sleep(ms(500)).await;
        assert_eq!(test.free().await, free);
    }
}

/// A release beyond the limit returns no permit, not even a forgotten one.
#[tokio::test]
async fn a_release_beyond_the_limit_leaves_forgotten_permits() {
    let test = Fixture::with_permits(5).await;
    let (proxy, _) = behind_a_proxy(&test).await;
    let client = Client::builder().url(proxy.url()).max_waiters(1);
    let seats = client.build().await.unwrap().semaphore(NAME);
    seats.acquire_many(2).await.unwrap().forget();
    let gate = Gate::new();
    proxy.on(is(ADD), Action::HoldRequest(gate.clone()));
    assert!(poll_once(seats.add_permits(1)).await.is_none());
    gate.wait_reached().await;
    let error = seats.release(3).await.unwrap_err();
    let is_refused = matches!(error, Error::TooManyWaiters { limit: 1, .. });
    assert!(is_refused, "{error}");
    assert_eq!((test.free().await, test.shares().await), (3, vec![2]));
    gate.open();
    eventually(SOON, "there is room again", async || {
        seats.release(3).await.is_ok()
    })
    .await;
    assert_eq!((test.free().await, test.shares().await), (7, vec![]));
}

#[tokio::test]
async fn an_acquire_without_an_answer_is_an_error_and_is_undone() {
    let test = Fixture::with_permits(3).await;
    for permits in [1, 3] {
        let (proxy, seats) = behind_a_proxy(&test).await;
        let rule = proxy.on(is(ACQUIRE), Action::DropReply);
        let error = seats.acquire_many(permits).await.unwrap_err();
        assert!(error.is_timeout() && error.may_be_held(), "{error}");
        rule.wait_hits(1).await;
        test.eventually_free().await;
    }
}

/// SE3: an acquire that arrives after its release takes nothing, because no lease would end it.
#[tokio::test]
async fn an_acquire_that_arrives_after_it_was_given_up_takes_nothing() {
    let test = Fixture::with_permits(3).await;
    let (proxy, seats) = behind_a_proxy(&test).await;
    let gate = Gate::new();
    let rule = proxy.on(is(ACQUIRE), Action::HoldRequest(gate.clone()));
    let error = seats.acquire_many(2).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    // The release came first, and the server has a mark of it.
    let ends = async || {
        let count = ["ZCOUNT", super::LEDGER, "2147483648", "9999999999999"];
        test.redis.ask::<i64>(&count).await
    };
    eventually(SOON, "its end is remembered", async || ends().await == 1).await;
    let late = test.redis.monitor().await;
    gate.open();
    rule.wait_hits(1).await;
    eventually(SOON, "it has run", async || {
        late.seen().iter().any(|it| it.contains("zscore"))
    })
    .await;
    assert_eq!((test.free().await, test.shares().await), (3, vec![]));
}

#[tokio::test]
async fn a_release_without_an_answer_is_unconfirmed_and_repeated() {
    let test = Fixture::with_permits(2).await;
    let (proxy, seats) = behind_a_proxy(&test).await;
    let both = seats.acquire_many(2).await.unwrap();
    let gate = Gate::new();
    let rule = proxy.on(is(RELEASE), Action::HoldRequest(gate.clone()));
    let error = both.release().await.unwrap_err();
    assert!(error.is_timeout() || error.may_be_held(), "{error}");
    // The background's release comes first, and the held one later.
    test.eventually_free().await;
    let next = seats.acquire_many(2).await.unwrap();
    gate.open();
    rule.wait_hits(1).await;
    tokio::time::sleep(ms(200)).await;
    assert_eq!((test.free().await, test.shares().await), (0, vec![2]));
    next.release().await.unwrap();
    test.eventually_free().await;
}

/// A release by number without an answer is repeated in the background and counts once.
#[tokio::test]
async fn a_release_by_number_without_an_answer_is_repeated() {
    let test = Fixture::with_permits(1).await;
    let (proxy, seats) = behind_a_proxy(&test).await;
    let gate = Gate::new();
    for free in [3, 5] {
        let action = match free {
            3 => Action::HoldRequest(gate.clone()),
            _ => Action::DropReply,
        };
        let rule = proxy.on(is(ADD), action);
        let error = seats.release(2).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        if free == 5 {
            rule.wait_hits(1).await;
        }
        eventually(SOON, "it is repeated", async || test.free().await == free).await;
    }
    // The first sending arrives last.
    gate.let_pass().await;
    tokio::time::sleep(ms(600)).await;
    assert_eq!(test.free().await, 5);
}

/// A release by number that the client could not send at first.
#[tokio::test]
async fn a_release_by_number_that_could_not_be_sent_is_sent_later() {
    let test = Fixture::with_permits(1).await;
    let (proxy, seats) = behind_a_proxy(&test).await;
    assert_eq!(seats.available().await.unwrap(), 1);
    proxy.refuse();
    proxy.cut_all();
    let error = seats.release(2).await.unwrap_err();
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
    assert!(proxy.counts().refused > 0);
    assert_eq!(test.free().await, 1);
    proxy.heal();
    eventually(SOON, "it is sent", async || test.free().await == 3).await;
    tokio::time::sleep(ms(500)).await;
    assert_eq!(test.free().await, 3);
}

/// A refused call has no later effect.
#[tokio::test]
async fn a_late_repetition_of_a_refused_call_does_nothing() {
    let test = Fixture::with_permits(3).await;
    let (proxy, seats) = behind_a_proxy_for(&test, SOON).await;
    let late = |script| proxy.repeat_late(is(script));
    let arrived = async |gate: Gate| {
        gate.let_pass().await;
        tokio::time::sleep(ms(200)).await;
    };
    let gate = late(TRY_SET);
    assert!(!seats.try_set_permits(9).await.unwrap());
    test.redis.cmd(&["DEL", NAME]).await;
    arrived(gate).await;
    assert!(!test.redis.exists(NAME).await);
    let gate = late(ADD);
    assert!(!seats.release_if_exists(2).await.unwrap());
    assert!(seats.try_set_permits(3).await.unwrap());
    arrived(gate).await;
    assert_eq!(test.free().await, 3);
}

/// The server knows a repetition by the mark of its call. Without the mark it adds the permits once more.
#[tokio::test]
async fn a_late_repetition_without_its_mark_adds_once_more() {
    let test = Fixture::with_permits(5).await;
    let (proxy, seats) = behind_a_proxy_for(&test, SOON).await;
    let late = |script| proxy.repeat_late(is(script));
    let arrives_without_mark = async |gate: Gate| {
        test.redis.delete_marks(NAME).await;
        gate.let_pass().await;
    };
    let gate = late(ADD);
    seats.add_permits(2).await.unwrap();
    assert_eq!(test.free().await, 7);
    arrives_without_mark(gate).await;
    assert_eq!(test.free().await, 9);
    let gate = late(ADD);
    seats.release(1).await.unwrap();
    arrives_without_mark(gate).await;
    assert_eq!(test.free().await, 11);
    // More permits can be used than the calls added, until a call removes them.
    let all = seats.try_acquire_many(11).await.unwrap();
    all.expect("they are free").release().await.unwrap();
    seats.add_permits(-6).await.unwrap();
    test.eventually_free().await;
    // A `Permit` has no mark: the ledger says that its acquire has ended.
    let two = seats.acquire_many(2).await.unwrap();
    let gate = late(RELEASE);
    two.release().await.unwrap();
    arrives_without_mark(gate).await;
    assert_eq!(test.free().await, 5);
    // A semaphore that was deleted exists again.
    test.redis.cmd(&["DEL", NAME]).await;
    let gate = late(TRY_SET);
    assert!(seats.try_set_permits(5).await.unwrap());
    test.redis.cmd(&["DEL", NAME]).await;
    arrives_without_mark(gate).await;
    assert_eq!(test.free().await, 5);
    test.assert_total().await;
}

/// A wait shorter than the round trip sends one command.
#[tokio::test]
async fn a_wait_below_a_round_trip_asks_once() {
    let test = Fixture::with_permits(3).await;
    let (proxy, seats) = behind_a_proxy(&test).await;
    proxy.delay(Direction::ToClient, ms(2));
    let mut calls: usize = 0;
    for wait in [Duration::ZERO, Duration::from_nanos(1), ms(1)] {
        eventually(SOON, "it is granted", async || {
            // A call that finds too few permits may ask again.
            test.eventually_free().await;
            calls += 1;
            match seats.try_acquire().wait(wait).await {
                Ok(granted) => granted.is_some(),
                // A busy machine may exceed the wait.
                Err(error) => {
                    assert!(error.is_timeout(), "{error}");
                    false
                }
            }
        })
        .await;
    }
    // On a busy machine a call may end before its command is sent.
    let sent = proxy.count(is(ACQUIRE));
    assert!((3..=calls).contains(&sent), "{sent} of {calls} calls");
    test.eventually_free().await;
}

/// A contender that is not polled any more: its permits are returned at once.
#[tokio::test]
async fn an_abandoned_acquire_is_undone() {
    let test = Fixture::with_permits(3).await;
    // So long that the watchdog does not release it before.
    let (proxy, seats) = behind_a_proxy_for(&test, LONG).await;
    let gate = Gate::new();
    proxy.on(is(ACQUIRE), Action::HoldReply(gate.clone()));
    let mut request = seats.acquire_many(3).into_future();
    tokio::select! {
        biased;
        granted = &mut request => panic!("{granted:?}"),
        () = gate.wait_reached() => {}
    }
    // The grant is never read.
    gate.open();
    let next = tokio::time::timeout(SOON, seats.acquire_many(3).into_future()).await;
    drop(next.expect("the abandoned ones are released").unwrap());
    test.eventually_free().await;
}

/// A release of a part that is not polled any more, while other calls wait for that part.
#[tokio::test]
async fn an_abandoned_release_of_a_part_is_completed() {
    let test = Fixture::with_permits(3).await;
    let (proxy, seats) = behind_a_proxy(&test).await;
    let mut three = seats.acquire_many(3).await.unwrap();
    let gate = Gate::new();
    proxy.on(is(RELEASE), Action::HoldRequest(gate.clone()));
    let mut releasing = Box::pin(three.split(1).unwrap().release());
    tokio::select! {
        biased;
        released = &mut releasing => panic!("{released:?}"),
        () = gate.wait_reached() => {}
    }
    test.eventually_shared(1, &[2]).await;
    gate.let_pass().await;
    drop(releasing);
    three.release().await.unwrap();
    test.eventually_free().await;
}

/// The known limitation: a network that repeats an answered acquire after its release takes permits
/// that only `reclaim` returns. It never creates any.
#[tokio::test]
async fn a_late_repetition_of_an_answered_acquire_is_reclaimed() {
    let test = Fixture::with_permits(2).await;
    let (proxy, seats) = behind_a_proxy_for(&test, SOON).await;
    let gate = proxy.repeat_late(is(ACQUIRE));
    seats.acquire().await.unwrap().release().await.unwrap();
    gate.let_pass().await;
    eventually(SOON, "it has run", async || test.free().await == 1).await;
    test.assert_total().await;
    let holder = test.seats.holders().await.unwrap().remove(0);
    let client = holder.client_id().expect("it is one of lockdog");
    assert_eq!(test.seats.reclaim(client).await.unwrap(), 1);
    test.eventually_free().await;
}

fn is(script: &'static str) -> impl Fn(&[String]) -> bool + Clone + Send + Sync + 'static {
    let digest = redis::Script::new(script).get_hash().to_owned();
    move |args: &[String]| args.get(1) == Some(&digest)
}

const ACQUIRE: &str = include_str!("../../../lua/semaphore/acquire.lua");
const RELEASE: &str = include_str!("../../../lua/semaphore/release.lua");
const ADD: &str = include_str!("../../../lua/permit/add.lua");
const TRY_SET: &str = include_str!("../../../lua/semaphore/try_set.lua");
const RECLAIM: &str = include_str!("../../../lua/semaphore/reclaim.lua");
