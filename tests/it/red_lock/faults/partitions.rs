//! Networks between one holder and its servers that carry nothing, in one direction or in both.

use lockdog::Error;
use lockdog::error::LostReason;

use super::LEASE;
use super::crowd::Crowd;
use super::fixture::{Fixture, assert_busy, await_states, give_back, take};
use super::story::Watched;
use crate::red_lock::SOON;
use crate::support::{Direction, eventually};

/// The connections are half-open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_commands_are_lost_keeps_the_lock_only_with_a_majority() {
    minority_then_majority(&[Direction::ToServer]).await;
}

/// The connections are half-open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_answers_are_lost_keeps_the_lock_only_with_a_majority() {
    minority_then_majority(&[Direction::ToClient]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitioned_holder_keeps_the_lock_only_with_a_majority() {
    minority_then_majority(&[Direction::ToServer, Direction::ToClient]).await;
}

/// The first set of clients is cut off, the second is not.
async fn minority_then_majority(lost: &[Direction]) {
    let test = Fixture::proxied(5).await;
    let (mine, yours) = (test.lock().await, test.direct_lock().await);
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 2).await;
    let mut watched = Watched::new(guard);
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    cut_off(&test, 2, lost);
    watched.stays_valid(LEASE * 3 / 2).await;
    assert_lost(&test, 2);
    await_states(watched.guard(), &test, "UUAAA").await;
    assert_busy(&yours).await;
    heal(&test);
    eventually(SOON, "it has all again", async || {
        watched.look() && watched.guard().margin() == 2
    })
    .await;
    assert_eq!(
        crowd.visits(),
        0,
        "another owner acquired the lock while it was held"
    );
    crowd.end().await;

    let crowd = Crowd::start(std::slice::from_ref(&yours));
    let watched = watched.working(crowd.beside());
    cut_off(&test, 3, lost);
    let loss = watched.followed_to_the_end().await;
    assert_eq!(loss.reason, LostReason::Deadline);
    assert_lost(&test, 3);
    crowd.await_visits(5).await;
    let granted = crowd.first_granted().expect("an owner got it");
    assert!(
        loss.last_valid < granted,
        "two have it: {loss:?}, {granted:?}"
    );
    crowd.end().await;
    let next = take(&yours).await;
    let error = mine.try_lock().await.expect_err("two of five answer");
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    heal(&test);
    // The delayed commands arrive now and affect no owner.
    let mut next = Watched::new(next);
    next.stays_valid(LEASE).await;
    assert_busy(&mine).await;
    give_back(next.into_guard()).await;
    let crowd = Crowd::start(&[mine]);
    crowd.await_visits(5).await;
    crowd.end().await;
    test.assert_nothing_stays().await;
}

fn cut_off(test: &Fixture, n: usize, lost: &[Direction]) {
    for proxy in &test.proxies[..n] {
        for direction in lost {
            proxy.blackhole(*direction);
        }
    }
}

/// Checks that data to or from each of these servers was lost.
fn assert_lost(test: &Fixture, n: usize) {
    for proxy in &test.proxies[..n] {
        assert!(proxy.counts().blackholed > 0, "{:?}", proxy.counts());
    }
}

fn heal(test: &Fixture) {
    for proxy in &test.proxies {
        proxy.heal();
    }
}
