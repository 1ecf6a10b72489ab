//! Observers.

use lockdog::Error;

use super::*;
use crate::support::{Proxy, until_ok};

/// After a shutdown each call returns at once. A loop of such calls would keep its task from being aborted, and the
/// runtime from ending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_observes_in_a_loop_can_be_aborted_after_a_shutdown() {
    let test = Fixture::start().await;
    let mut leaders = test.election.observe();
    assert!(leaders.next().await.unwrap().is_none());
    test.client.shutdown().await;
    let (send, closed) = tokio::sync::oneshot::channel();
    let observing = tokio::spawn(async move {
        let error = leaders.next().await.unwrap_err();
        send.send(error).unwrap();
        // It ends, so that the test fails and does not hang.
        for _ in 0..10_000_000 {
            leaders.next().await.unwrap_err();
        }
    });
    assert!(matches!(closed.await.unwrap(), Error::Closed));
    observing.abort();
    let ended = tokio::time::timeout(LONG, observing).await.unwrap();
    assert!(ended.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn an_observer_sees_each_change_by_its_message() {
    let test = Fixture::start().await;
    let watching = test.another_with(|builder| builder.poll_cap(LONG)).await;
    let mut leaders = watching.observe();
    assert!(leaders.next().await.unwrap().is_none());
    let (send, mut seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(leader) = leaders.next().await {
            // A leader that was elected and has not published its value yet may be seen.
            if leader.as_ref().is_some_and(|leader| leader.value.is_none()) {
                continue;
            }
            let value = leader.and_then(|leader| leader.value);
            if send.send(value).is_err() {
                break;
            }
        }
    });
    eventually(SOON, "it listens", async || {
        test.redis.channels().await.contains(&LEADER_KEY.to_owned())
    })
    .await;
    // The observer queries once more after its subscription.
    tokio::time::sleep(ms(100)).await;
    let next = async |seen: &mut tokio::sync::mpsc::UnboundedReceiver<_>| {
        let next = tokio::time::timeout(SOON, seen.recv()).await;
        next.expect("a message comes").expect("it watches")
    };
    let lead = test.election.campaign("a").await.unwrap();
    assert_eq!(next(&mut seen).await.as_deref(), Some("a"));
    lead.proclaim("b").await.unwrap();
    assert_eq!(next(&mut seen).await.as_deref(), Some("b"));
    let second = test.queued(&test.election, "c").await;
    lead.resign().await.unwrap();
    let lead = in_time(second).await;
    let mut value = next(&mut seen).await;
    if value.is_none() {
        // On a busy machine the leadership may be released instead of handed over.
        value = next(&mut seen).await;
    }
    assert_eq!(value.as_deref(), Some("c"));
    lead.resign().await.unwrap();
    assert_eq!(next(&mut seen).await, None);
    let lead = test.election.campaign("d").await.unwrap();
    assert_eq!(next(&mut seen).await.as_deref(), Some("d"));
    assert!(test.client.fair_lock(NAME).force_unlock().await.unwrap());
    drop(lead);
}

/// A dead leader publishes nothing. The observer learns of its end within a poll cap after its lease.
#[tokio::test]
async fn an_observer_learns_of_a_silent_end_within_a_poll_cap() {
    let test = Fixture::start().await;
    let mut leaders = test.another().await.observe();
    let lead = test.election.campaign("a").lease(ms(4_000)).await.unwrap();
    let first = leaders.next().await.unwrap().expect("it leads");
    assert_eq!(first.term, Some(lead.term()));
    let end = tokio::time::timeout(SOON, leaders.next()).await;
    assert!(end.expect("in time").unwrap().is_none());
    assert!(!lead.is_valid());
    assert!(test.election.leader().await.unwrap().is_none());
    test.eventually_over().await;
}

#[tokio::test]
async fn an_observer_that_is_cancelled_at_any_point_misses_no_change() {
    let test = Fixture::start().await;
    let mut leaders = test.another().await.observe();
    assert!(leaders.next().await.unwrap().is_none());
    for number in 0..20_u64 {
        let lead = test.election.campaign(number.to_string()).await.unwrap();
        let seen = loop {
            let limit = ms(number % 7);
            if let Ok(seen) = tokio::time::timeout(limit, leaders.next()).await {
                break seen.unwrap();
            }
        };
        // The end of the previous leader, or this leader.
        let seen = match seen {
            Some(leader) => leader,
            None => leaders.next().await.unwrap().expect("it leads"),
        };
        assert_eq!(seen.term, Some(lead.term()));
        lead.resign().await.unwrap();
        assert!(leaders.next().await.unwrap().is_none());
    }
}

/// It reports a failure, pauses before the next query, and continues when the server is back.
#[tokio::test]
async fn an_observer_continues_after_an_outage() {
    let test = Fixture::start().await;
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder()
        .url(proxy.url())
        .command_timeout(ms(300))
        .poll_cap(ms(200));
    // On a busy machine an answer may take longer than the command timeout.
    let client = until_ok(SOON, async || client.clone().build().await).await;
    let mut leaders = client.election(NAME).observe();
    let first = until_ok(SOON, async || leaders.next().await).await;
    assert!(first.is_none());
    proxy.refuse();
    proxy.cut_all();
    let began = std::time::Instant::now();
    for _ in 0..3 {
        let error = leaders.next().await.unwrap_err();
        assert!(error.is_retriable(), "{error}");
    }
    // Three pauses; jitter shortens each a little.
    assert!(began.elapsed() >= ms(300), "{:?}", began.elapsed());
    proxy.heal();
    let lead = test.election.campaign("a").await.unwrap();
    let seen = loop {
        if let Ok(seen) = leaders.next().await {
            break seen;
        }
    };
    assert_eq!(seen.and_then(|leader| leader.term), Some(lead.term()));
}

#[tokio::test]
async fn an_observer_of_a_client_that_is_shut_down_ends() {
    let test = Fixture::start().await;
    let mut leaders = test.election.observe();
    assert!(leaders.next().await.unwrap().is_none());
    let ended = tokio::spawn(async move { leaders.next().await });
    tokio::time::sleep(ms(50)).await;
    test.client.shutdown().await;
    let error = in_time(ended).await.unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
}
