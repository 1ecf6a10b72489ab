//! Lost, late and repeated commands, and servers that do not answer.

use lockdog::{Client, CountDownLatch};

use super::{Fixture, LONG, NAME, SOON, ms, poll_once};
use crate::support::{Action, Gate, Proxy, eventually};

/// A client behind a proxy. All scripts are loaded, so that a rule meets the first sending.
async fn behind_a_proxy(test: &Fixture) -> (Proxy, CountDownLatch) {
    for script in [COUNT_DOWN, TRY_SET, DELETE] {
        test.redis.cmd(&["SCRIPT", "LOAD", script]).await;
    }
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder()
        .url(proxy.url())
        .command_timeout(ms(1_500));
    let client = client.poll_cap(ms(500)).build().await.unwrap();
    (proxy, client.count_down_latch(NAME))
}

/// CL1: a command whose reply is lost, or that runs twice, counts once.
#[tokio::test]
async fn a_repeated_command_counts_once() {
    let test = Fixture::of(None).await;
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

/// CL1: the client sends it until it is answered, and a sending that arrives last counts no more.
#[tokio::test]
async fn a_count_down_without_an_answer_counts_once() {
    let test = Fixture::of(Some(9)).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    let gate = Gate::new();
    for (left, action) in [
        (8, Action::HoldRequest(gate.clone())),
        (7, Action::DropReply),
    ] {
        proxy.on(is(COUNT_DOWN), action);
        let error = latch.count_down().await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        eventually(SOON, "it counts", async || {
            test.start.count().await.unwrap() == left
        })
        .await;
    }
    gate.open();
    gate.wait_passed().await;
    tokio::time::sleep(ms(600)).await;
    assert_eq!(test.start.count().await.unwrap(), 7);
}

/// CL1: from its first poll on it counts.
#[tokio::test]
async fn a_count_down_that_is_dropped_counts() {
    let test = Fixture::of(Some(9)).await;
    for left in [8, 7, 6] {
        // A fast client's thread has its answer at once.
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
    let test = Fixture::of(None).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    for count in [None, Some(1)] {
        if let Some(count) = count {
            assert!(latch.try_set_count(count).await.unwrap());
        }
        let gate = Gate::new();
        proxy.on(is(COUNT_DOWN), Action::TwiceLate(gate.clone()));
        latch.count_down().await.unwrap();
        assert!(latch.try_set_count(5).await.unwrap());
        gate.open();
        gate.wait_passed().await;
        tokio::time::sleep(ms(200)).await;
        assert_eq!(latch.count().await.unwrap(), 5);
        assert!(latch.delete().await.unwrap());
    }
}

/// CL3: a wait without a limit ends with an error, and one with a limit goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_ends_waits_without_a_limit() {
    let test = Fixture::of(Some(1)).await;
    let (proxy, latch) = behind_a_proxy(&test).await;
    let start = latch.clone();
    let patient = tokio::spawn(async move { start.wait_zero_within(LONG).await });
    let start = latch.clone();
    let waiting = tokio::spawn(async move { start.wait_zero().await });
    test.somebody_waits().await;
    proxy.blackhole(crate::support::Direction::ToClient);
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
