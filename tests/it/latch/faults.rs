//! Lost, late and repeated commands, and servers that do not answer.

use std::time::Duration;

use lockdog::{Client, CountDownLatch, Error};

use super::{Fixture, LONG, NAME, SOON, ms, poll_once};
use crate::support::{Action, Direction, Gate, Proxy, eventually, named, until_ok};
use crate::turn::answered;

/// A client behind a proxy. All scripts are loaded, so that a rule meets the first sending.
async fn behind_a_proxy(test: &Fixture) -> (Proxy, CountDownLatch) {
    behind_a_proxy_for(test, ms(2_500)).await
}

/// A client with this command timeout.
async fn behind_a_proxy_for(test: &Fixture, patience: Duration) -> (Proxy, CountDownLatch) {
    for script in [COUNT_DOWN, TRY_SET, DELETE] {
        test.redis.cmd(&["SCRIPT", "LOAD", script]).await;
    }
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(patience);
    let client = client.poll_cap(ms(500)).build().await.unwrap();
    (proxy, client.count_down_latch(NAME))
}

/// CL1: a command whose reply is lost, or that runs twice, counts once.
#[tokio::test]
async fn a_repeated_command_counts_once() {
    let test = Fixture::with_count(None).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    for action in [Action::ExecuteThenCut, Action::Twice] {
        let rule = proxy.on(is(TRY_SET), action.clone());
        assert!(latch.try_set_count(9).await.unwrap());
        rule.wait_hits(1).await;
        let rule = proxy.on(is(COUNT_DOWN), action.clone());
        latch.count_down().await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!(latch.count().await.unwrap(), 8);
        let rule = proxy.on(is(DELETE), action);
        assert!(latch.delete().await.unwrap());
        rule.wait_hits(1).await;
    }
}

/// CL1: the client sends it until it is answered, and an earlier sending that arrives later does not count.
#[tokio::test]
async fn a_count_down_without_an_answer_counts_once() {
    let test = Fixture::with_count(Some(9)).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    let gate = Gate::new();
    for (left, action) in [
        (8, Action::HoldRequest(gate.clone())),
        (7, Action::DropReply),
    ] {
        proxy.on(is(COUNT_DOWN), action);
        let error = latch.count_down().await.unwrap_err();
        assert!(error.is_timeout() && !error.is_retriable(), "{error}");
        eventually(SOON, "it counts", async || {
            test.start.count().await.unwrap() == left
        })
        .await;
    }
    gate.let_pass().await;
    tokio::time::sleep(ms(600)).await;
    assert_eq!(test.start.count().await.unwrap(), 7);
}

/// CL1: the server refuses for a while, or its answer is lost. The client repeats the command, and its
/// caller must not.
#[tokio::test]
async fn a_caller_that_repeats_what_is_retriable_counts_once() {
    let test = Fixture::with_count(Some(9)).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    let refused = |code: &str| Action::ReplyWith(format!("-{code} wait"));
    for (left, action) in [
        (8, refused("TRYAGAIN")),
        (7, refused("READONLY")),
        (6, Action::DropReply),
    ] {
        let rule = proxy.on(is(COUNT_DOWN), action.clone());
        // The client repeats a command that is refused temporarily.
        let rule = match action {
            Action::ReplyWith(_) => rule.always(),
            _ => rule,
        };
        let mut calls = 0;
        loop {
            calls += 1;
            match latch.count_down().await {
                Err(error) if error.is_retriable() => continue,
                Err(Error::Unconfirmed { call, .. }) => assert_eq!(call, "count_down"),
                other => panic!("it says {other:?}"),
            }
            break;
        }
        assert_eq!(calls, 1);
        rule.wait_hits(1).await;
        rule.remove();
        eventually(SOON, "it counts", async || {
            test.start.count().await.unwrap() == left
        })
        .await;
        tokio::time::sleep(ms(500)).await;
        assert_eq!(test.start.count().await.unwrap(), left);
    }
}

/// CL1: many calls to a server that does not answer. Some are sent, and the others wait until some of these
/// have ended.
#[tokio::test]
async fn a_bounded_number_of_count_downs_is_sent_at_once() {
    let test = Fixture::with_count(Some(1_000)).await;
    let (proxy, _) = behind_a_proxy(&test).await;
    let client = Client::builder().url(proxy.url()).command_timeout(LONG);
    let latch = client.build().await.unwrap().count_down_latch(NAME);
    assert_eq!(latch.count().await.unwrap(), 1_000);
    // The server counts the commands, and the client receives no answers.
    let rule = proxy.on(is(COUNT_DOWN), Action::DropReply);
    for _ in 0..600 {
        assert!(poll_once(latch.count_down()).await.is_none());
    }
    rule.wait_hits(1).await;
    eventually(SOON, "the first ones arrive", async || {
        test.start.count().await.unwrap() <= 1_000 - 256
    })
    .await;
    tokio::time::sleep(ms(500)).await;
    assert_eq!(test.start.count().await.unwrap(), 1_000 - 256);
    proxy.cut_all();
    eventually(SOON, "all of them count", async || {
        test.start.count().await.unwrap() == 400
    })
    .await;
    tokio::time::sleep(ms(500)).await;
    assert_eq!(test.start.count().await.unwrap(), 400);
}

/// A call beyond the limit sends nothing, so its caller may repeat it.
#[tokio::test]
async fn too_many_count_downs_without_an_answer_are_refused() {
    let test = Fixture::with_count(Some(9)).await;
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url()).max_waiters(2);
    let client = client.command_timeout(LONG).build().await.unwrap();
    let latch = client.count_down_latch(NAME);
    assert_eq!(latch.count().await.unwrap(), 9);
    let gate = Gate::new();
    proxy.on(is(COUNT_DOWN), Action::HoldRequest(gate.clone()));
    for _ in 0..2 {
        assert!(poll_once(latch.count_down()).await.is_none());
    }
    let error = latch.count_down().await.unwrap_err();
    let is_refused = matches!(error, Error::TooManyWaiters { limit: 2, .. });
    assert!(is_refused && error.is_retriable(), "{error}");
    gate.wait_reached().await;
    gate.open();
    eventually(SOON, "there is room again", async || {
        latch.count_down().await.is_ok()
    })
    .await;
    assert_eq!(test.start.count().await.unwrap(), 6);
}

/// CL1: the client could not send it at first.
#[tokio::test]
async fn a_count_down_that_could_not_be_sent_counts_later() {
    let test = Fixture::with_count(Some(9)).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    assert_eq!(latch.count().await.unwrap(), 9);
    proxy.refuse();
    proxy.cut_all();
    let error = latch.count_down().await.unwrap_err();
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
    assert!(proxy.counts().refused > 0);
    assert_eq!(test.start.count().await.unwrap(), 9);
    proxy.heal();
    eventually(SOON, "it counts", async || {
        test.start.count().await.unwrap() == 8
    })
    .await;
    tokio::time::sleep(ms(500)).await;
    assert_eq!(test.start.count().await.unwrap(), 8);
}

/// A count that was refused is not set later.
#[tokio::test]
async fn a_late_repetition_of_a_refused_count_sets_none() {
    let test = Fixture::with_count(Some(3)).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    let gate = proxy.repeat_late(is(TRY_SET));
    assert!(!latch.try_set_count(5).await.unwrap());
    assert!(test.start.delete().await.unwrap());
    gate.let_pass().await;
    tokio::time::sleep(ms(200)).await;
    assert_eq!(latch.count().await.unwrap(), 0);
}

/// CL2: the connection for messages is slow, and commands are answered. The waiter still queries the count.
#[tokio::test]
async fn a_slow_subscription_delays_no_query() {
    let test = Fixture::with_count(Some(1)).await;
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(LONG);
    let client = client.poll_cap(ms(200)).build().await.unwrap();
    let gate = Gate::new();
    proxy.on(named("subscribe"), Action::HoldReply(gate.clone()));
    let latch = client.count_down_latch(NAME);
    let waiting = tokio::spawn(async move { latch.wait_zero().await });
    gate.wait_reached().await;
    test.start.count_down().await.unwrap();
    let ended = tokio::time::timeout(SOON, waiting).await;
    ended.expect("a query finds the zero").unwrap().unwrap();
    gate.open();
}

/// CL2 and CL4: the message of a zero that an earlier wait has already seen comes late.
#[tokio::test]
async fn the_message_of_an_earlier_zero_does_not_end_the_next_wait() {
    let test = Fixture::with_count(Some(1)).await;
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(LONG);
    let client = client.poll_cap(ms(200)).build().await.unwrap();
    let latch = client.count_down_latch(NAME);
    let waiter = || {
        let latch = latch.clone();
        tokio::spawn(async move { latch.wait_zero().await })
    };
    let first = waiter();
    test.somebody_waits().await;
    // From now on the client reads no message.
    let gate = Gate::new();
    proxy.on(named("subscribe"), Action::HoldReply(gate.clone()));
    let other = client.count_down_latch("other");
    assert!(other.try_set_count(1).await.unwrap());
    let holding = tokio::spawn(async move { other.wait_zero().await });
    gate.wait_reached().await;
    test.start.count_down().await.unwrap();
    let ended = tokio::time::timeout(SOON, first).await;
    ended.expect("a query finds the zero").unwrap().unwrap();
    assert!(test.start.try_set_count(1).await.unwrap());
    let second = waiter();
    tokio::time::sleep(ms(500)).await;
    gate.let_pass().await;
    tokio::time::sleep(ms(500)).await;
    assert!(!second.is_finished());
    // The waiter receives the next message.
    test.start.count_down().await.unwrap();
    let ended = tokio::time::timeout(SOON, second).await;
    ended.expect("it is let go").unwrap().unwrap();
    holding.abort();
}

/// CL2 and CL4: a late message of a zero. It ends the earlier waits. A waiter that joined them after the zero
/// waits for the new count.
#[tokio::test]
async fn a_late_message_does_not_end_a_wait_that_began_after_the_zero() {
    let test = Fixture::with_count(Some(1)).await;
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(LONG);
    let client = client.poll_cap(LONG).build().await.unwrap();
    let latch = client.count_down_latch(NAME);
    let waiter = || {
        let latch = latch.clone();
        tokio::spawn(async move { latch.wait_zero().await })
    };
    let first = waiter();
    test.somebody_waits().await;
    // From now on the client reads no message.
    let gate = Gate::new();
    proxy.on(named("subscribe"), Action::HoldReply(gate.clone()));
    let other = client.count_down_latch("other");
    assert!(other.try_set_count(1).await.unwrap());
    let holding = tokio::spawn(async move { other.wait_zero().await });
    gate.wait_reached().await;
    test.start.count_down().await.unwrap();
    assert!(test.start.try_set_count(1).await.unwrap());
    let second = waiter();
    tokio::time::sleep(ms(300)).await;
    assert!(!first.is_finished());
    gate.open();
    let ended = tokio::time::timeout(SOON, first).await;
    ended
        .expect("it receives the message of the zero")
        .unwrap()
        .unwrap();
    tokio::time::sleep(ms(500)).await;
    assert!(!second.is_finished());
    test.start.count_down().await.unwrap();
    let ended = tokio::time::timeout(SOON, second).await;
    ended.expect("it is let go").unwrap().unwrap();
    holding.abort();
}

/// A wait that is shorter than a round trip sends one query.
#[tokio::test]
async fn a_wait_of_no_time_asks_once() {
    let test = Fixture::with_count(None).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    proxy.delay(Direction::ToClient, ms(2));
    let mut calls: usize = 0;
    for wait in [Duration::ZERO, Duration::from_nanos(1), ms(1)] {
        let is_open = answered(async || {
            calls += 1;
            latch.wait_zero_within(wait).await
        });
        assert!(is_open.await, "it sees that the latch is open");
    }
    // On a busy machine a call may end before its query is sent.
    let sent = proxy.count(named("get"));
    assert!((3..=calls).contains(&sent), "{sent} of {calls} calls");
}

/// CL1: a shutdown waits for unanswered calls, and so does the end of a client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_ends_sends_its_count_downs() {
    let test = Fixture::with_count(Some(9)).await;
    for (left, is_shut_down) in [(8, true), (7, false)] {
        let proxy = Proxy::start(&test.server).await;
        let client = Client::builder().url(proxy.url());
        let client = client.command_timeout(ms(10_000)).build().await.unwrap();
        let latch = client.count_down_latch(NAME);
        assert_eq!(latch.count().await.unwrap(), left + 1);
        proxy.refuse();
        proxy.cut_all();
        assert!(poll_once(latch.count_down()).await.is_none());
        drop(latch);
        let ended = tokio::spawn(async move {
            match is_shut_down {
                true => Some(client.shutdown().await),
                false => None,
            }
        });
        eventually(SOON, "a connection is refused", async || {
            proxy.counts().refused > 0
        })
        .await;
        proxy.heal();
        let report = ended.await.unwrap();
        assert_eq!(report.map_or(0, |report| report.unanswered_calls), 0);
        eventually(SOON, "it counts", async || {
            test.start.count().await.unwrap() == left
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_reports_a_count_down_without_an_answer() {
    let test = Fixture::with_count(Some(9)).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    let client = Client::builder().url(proxy.url()).command_timeout(ms(500));
    let client = until_ok(SOON, async || client.clone().build().await).await;
    let start = client.count_down_latch(NAME);
    assert_eq!(latch.count().await.unwrap(), 9);
    proxy.refuse();
    proxy.cut_all();
    let error = start.count_down().await.unwrap_err();
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
    let report = client.shutdown().await;
    assert_eq!(report.unanswered_calls, 1);
    assert!(matches!(start.count_down().await, Err(Error::Closed)));
    proxy.heal();
    tokio::time::sleep(ms(500)).await;
    assert_eq!(latch.count().await.unwrap(), 9);
}

/// CL1: a count-down counts from its first poll on.
#[tokio::test]
async fn a_count_down_that_is_dropped_counts() {
    let test = Fixture::with_count(Some(9)).await;
    for left in [8, 7, 6] {
        // The client's thread may have the answer at once.
        let _ = poll_once(test.start.count_down()).await;
        eventually(SOON, "it counts", async || {
            test.start.count().await.unwrap() == left
        })
        .await;
    }
    tokio::time::sleep(ms(300)).await;
    assert_eq!(test.start.count().await.unwrap(), 6);
}

/// A repetition after the latch got another count changes nothing.
#[tokio::test]
async fn a_late_repetition_does_not_lower_the_next_count() {
    let test = Fixture::with_count(None).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    for count in [None, Some(1)] {
        if let Some(count) = count {
            assert!(latch.try_set_count(count).await.unwrap());
        }
        let gate = proxy.repeat_late(is(COUNT_DOWN));
        latch.count_down().await.unwrap();
        assert!(latch.try_set_count(5).await.unwrap());
        gate.let_pass().await;
        tokio::time::sleep(ms(200)).await;
        assert_eq!(latch.count().await.unwrap(), 5);
        assert!(latch.delete().await.unwrap());
    }
}

/// A repetition of `delete` after the latch got another count ends nothing.
#[tokio::test]
async fn a_late_repetition_of_a_delete_leaves_the_next_count() {
    let test = Fixture::with_count(None).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    for count in [None, Some(3)] {
        if let Some(count) = count {
            assert!(latch.try_set_count(count).await.unwrap());
        }
        let gate = proxy.repeat_late(is(DELETE));
        assert_eq!(latch.delete().await.unwrap(), count.is_some());
        assert!(latch.try_set_count(5).await.unwrap());
        gate.let_pass().await;
        tokio::time::sleep(ms(200)).await;
        assert_eq!(latch.count().await.unwrap(), 5);
        assert!(latch.delete().await.unwrap());
    }
}

/// The limit of CL1: the server knows a repetition by the mark of its call. Without the mark it runs the command once
/// more.
#[tokio::test]
async fn a_late_repetition_without_its_mark_runs_once_more() {
    let test = Fixture::with_count(None).await;
    let (proxy, latch) = behind_a_proxy_for(&test, SOON).await;
    let late = |script| proxy.repeat_late(is(script));
    let arrives_without_mark = async |gate: Gate| {
        test.redis.delete_marks(NAME).await;
        gate.let_pass().await;
    };
    let count = async || test.start.count().await.unwrap();
    // A latch that was open has a count again.
    let gate = late(TRY_SET);
    assert!(latch.try_set_count(3).await.unwrap());
    assert!(test.start.delete().await.unwrap());
    arrives_without_mark(gate).await;
    assert_eq!(count().await, 3);
    // One call counts twice, so the latch opens too early.
    let gate = late(COUNT_DOWN);
    latch.count_down().await.unwrap();
    assert_eq!(count().await, 2);
    arrives_without_mark(gate).await;
    assert_eq!(count().await, 1);
    // A count that was set later is gone.
    let gate = late(DELETE);
    assert!(latch.delete().await.unwrap());
    assert!(test.start.try_set_count(5).await.unwrap());
    arrives_without_mark(gate).await;
    assert_eq!(count().await, 0);
}

/// Texts that Redis does not accept as a number, or that this crate does not count with.
#[tokio::test]
async fn a_count_that_is_no_number_changes_nothing() {
    let test = Fixture::with_count(None).await;
    for junk in [
        "some",
        "",
        "007",
        "-0",
        "1e3",
        " 5",
        "+5",
        "5\n",
        "9007199254740992",
    ] {
        test.redis.cmd(&["SET", NAME, junk]).await;
        for error in [
            test.start.count().await.map(drop).unwrap_err(),
            test.start.count_down().await.unwrap_err(),
            test.start.wait_zero().await.unwrap_err(),
        ] {
            assert!(
                matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE"),
                "{junk:?}: {error}"
            );
        }
        let keys: Vec<String> = test.redis.ask(&["KEYS", "*"]).await;
        assert_eq!(keys, [NAME]);
        assert_eq!(test.redis.ask::<String>(&["GET", NAME]).await, junk);
    }
}

/// The server refuses new counts, and runs the commands that end waits.
#[tokio::test]
async fn a_latch_opens_on_a_server_without_memory() {
    let test = Fixture::with_count(Some(2)).await;
    let waiting = test.start.clone();
    let waiting = tokio::spawn(async move { waiting.wait_zero().await });
    test.somebody_waits().await;
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let other = test.client.count_down_latch("other");
    let error = other.try_set_count(1).await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "OOM"),
        "{error}"
    );
    for left in [1, 0] {
        test.start.count_down().await.unwrap();
        assert_eq!(test.start.count().await.unwrap(), left);
    }
    let ended = tokio::time::timeout(SOON, waiting).await;
    ended.expect("it is let go").unwrap().unwrap();
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert!(test.start.try_set_count(3).await.unwrap());
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert!(test.start.delete().await.unwrap());
    assert_eq!(test.start.count().await.unwrap(), 0);
}

/// CL3: a wait without a limit ends with an error, and a wait with a limit continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_ends_waits_without_a_limit() {
    let test = Fixture::with_count(Some(1)).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    let start = latch.clone();
    let patient = tokio::spawn(async move { start.wait_zero_within(LONG).await });
    let start = latch.clone();
    let waiting = tokio::spawn(async move { start.wait_zero().await });
    test.somebody_waits().await;
    proxy.blackhole(Direction::ToClient);
    let ended = tokio::time::timeout(SOON, waiting).await.expect("it ends");
    let error = ended.unwrap().unwrap_err();
    assert!(error.is_timeout() || error.is_retriable(), "{error}");
    assert!(!patient.is_finished());
    test.start.count_down().await.unwrap();
    proxy.heal();
    proxy.cut_all();
    let ended = tokio::time::timeout(SOON, patient)
        .await
        .expect("it is let go");
    assert!(ended.unwrap().unwrap());
}

fn is(script: &'static str) -> impl Fn(&[String]) -> bool + Clone + Send + Sync + 'static {
    let digest = redis::Script::new(script).get_hash().to_owned();
    move |args: &[String]| args.get(1) == Some(&digest)
}

const COUNT_DOWN: &str = include_str!("../../../lua/latch/count_down.lua");
const TRY_SET: &str = include_str!("../../../lua/latch/try_set.lua");
const DELETE: &str = include_str!("../../../lua/latch/delete.lua");
