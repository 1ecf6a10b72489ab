//! Work that runs during a leadership.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::support::{Proxy, until_ok};

#[tokio::test]
async fn work_that_ends_while_it_leads_is_done_once() {
    let test = Fixture::start().await;
    let done = test.election.run("a", async |lead| lead.term());
    let term = done.await.unwrap();
    let lead = test.election.campaign("b").await.unwrap();
    assert!(lead.term() > term);
    lead.resign().await.unwrap();
    test.eventually_over().await;
}

/// The work is dropped when the leadership is lost, and starts again in a later term.
#[tokio::test]
async fn work_begins_again_with_a_new_term_after_a_loss() {
    let test = Fixture::with(|builder| builder.watchdog_lease(ms(4_500))).await;
    let terms = Arc::new(std::sync::Mutex::new(Vec::new()));
    let election = test.election.clone();
    let seen = terms.clone();
    let running = tokio::spawn(async move {
        let work = |lead: lockdog::Leading| {
            let seen = seen.clone();
            async move {
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(lead.term());
                    seen.len()
                };
                if number < 3 {
                    std::future::pending::<()>().await;
                }
                number
            }
        };
        election.run("a", work).await
    });
    for number in 1..3 {
        eventually(SOON, "it works", async || {
            terms.lock().unwrap().len() == number
        })
        .await;
        assert!(test.redis.ask::<bool>(&["DEL", NAME]).await);
    }
    assert_eq!(in_time(running).await.unwrap(), 3);
    let terms = terms.lock().unwrap().clone();
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    test.eventually_over().await;
}

/// An outage longer than the command timeout does not end it.
#[tokio::test]
async fn a_run_campaigns_through_an_outage() {
    let test = Fixture::start().await;
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder()
        .url(proxy.url())
        .command_timeout(ms(300))
        .poll_cap(ms(200));
    // A busy machine may need more than one attempt.
    let client = until_ok(SOON, async || client.clone().build().await).await;
    let election = client.election(NAME);
    proxy.refuse();
    proxy.cut_all();
    let failed = election.campaign("a").await.unwrap_err();
    assert!(failed.is_retriable(), "{failed}");
    let begun = Arc::new(AtomicU64::new(0));
    let count = begun.clone();
    let running = tokio::spawn(async move {
        let work = async |_| count.fetch_add(1, Ordering::Relaxed);
        election.run("a", work).await
    });
    tokio::time::sleep(ms(1_500)).await;
    assert!(!running.is_finished());
    proxy.heal();
    in_time(running).await.unwrap();
    assert_eq!(begun.load(Ordering::Relaxed), 1);
    test.eventually_over().await;
}

/// A permanent refusal ends it, because it would never lead.
#[tokio::test]
async fn an_error_that_no_retry_can_fix_ends_the_run() {
    let test = Fixture::start().await;
    test.redis.cmd(&["SET", NAME, "a string"]).await;
    let ended = test.election.run("a", async |_| ()).await.unwrap_err();
    assert!(ended.to_string().contains("WRONGTYPE"), "{ended}");
}

#[tokio::test]
async fn a_dropped_run_resigns() {
    let test = Fixture::start().await;
    let election = test.election.clone();
    let running = tokio::spawn(async move {
        let work = async |_| std::future::pending::<()>().await;
        election.run("a", work).await
    });
    eventually(SOON, "it leads", async || test.value().await.is_some()).await;
    running.abort();
    eventually(SOON, "none leads", async || {
        test.election.leader().await.unwrap().is_none()
    })
    .await;
    test.eventually_over().await;
}
