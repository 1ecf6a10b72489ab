//! Servers that are killed before, during and after an acquire.

use std::future::IntoFuture;
use std::time::Instant;

use lockdog::Error;
use lockdog::error::LostReason;

use super::crowd::Crowd;
use super::fixture::{
    Fixture, assert_busy, await_states, give_back, red_lock, states_as_letters, take,
};
use super::story::Watched;
use super::{LEASE, QUARANTINE};
use crate::red_lock::faults::is_acquire;
use crate::red_lock::{SOON, ms};
use crate::support::{Action, Data, Gate, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_or_two_of_five_killed_before_an_acquire_do_not_prevent_it() {
    let test = Fixture::start(5).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let crowd = Crowd::start(&[mine.clone(), yours.clone()]);
    crowd.await_visits(10).await;
    for (dead, margin) in [(0, 1), (1, 0)] {
        test.servers[dead].kill();
        crowd.await_visits(20).await;
        let guard = take(&mine).await;
        let found = if dead == 0 { "UAAAA" } else { "UUAAA" };
        await_states(&guard, &test, found).await;
        assert_eq!(guard.margin(), margin);
        assert_busy(&yours).await;
        give_back(guard).await;
    }
    crowd.end().await;
    test.assert_nothing_stays().await;
    // Without the third server there is no quorum. That is an error and not `None`.
    test.servers[2].kill();
    for lock in [&mine, &yours] {
        let error = lock.try_lock().wait(ms(1_000)).await.unwrap_err();
        let Error::NoQuorum(none) = &error else {
            panic!("{error}");
        };
        assert_eq!(none.need(), 3, "{error}");
        let found = states_as_letters(none.instances(), &test);
        let is_away = |letter: char| letter == 'U' || letter == 'L';
        assert!(found[..3].chars().all(is_away), "{error}");
        let (error, waited) = crate::support::timed(lock.lock().into_future()).await;
        assert!(matches!(error, Err(Error::NoQuorum(_))), "{error:?}");
        assert!(waited < SOON, "{waited:?}");
    }
    test.assert_nothing_stays().await;
}

/// When they are killed, one has not received the command, one has executed it, and the acquire has
/// two of the three answers that it needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_killed_during_an_acquire_do_not_end_it() {
    let test = Fixture::proxied(5).await;
    // So long that each instance has half a second.
    let lease = SOON / 2;
    let mine = red_lock(&test.clients().await).max_lease(lease);
    // This lock does not use the proxies, whose rules are for the other acquire.
    let yours = test.direct_lock().await;
    // Every server knows the script by then.
    give_back(take(&mine).await).await;
    test.await_taken(0).await;
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let [unsent, unanswered, late] = &gates;
    test.proxies[0].on(is_acquire, Action::HoldRequest(unsent.clone()));
    let executed = test.proxies[1].on(is_acquire, Action::HoldReply(unanswered.clone()));
    test.proxies[2].on(is_acquire, Action::HoldReply(late.clone()));
    // Again if a busy machine takes longer than that.
    let request = mine.try_lock().wait(SOON).lease(lease);
    let call = tokio::spawn(request.into_future());
    unsent.wait_reached().await;
    executed.wait_hits(1).await;
    late.wait_reached().await;
    assert!(!test.is_taken(0).await);
    assert!(!call.is_finished(), "two answers are enough");
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    test.servers[0].kill();
    test.servers[1].kill();
    late.open();
    let guard = call.await.unwrap().unwrap().expect("it is free");
    let beside = crowd.beside();
    let mut watched = Watched::new(guard).working(crowd.beside());
    watched.stays_valid(LEASE).await;
    await_states(watched.guard(), &test, "UUAAA").await;
    assert!(beside.written() > 0 && crowd.visits() == 0);
    give_back(watched.into_guard()).await;
    crowd.await_visits(5).await;
    crowd.end().await;
    let next = take(&yours).await;
    assert_busy(&mine).await;
    give_back(next).await;
    test.assert_nothing_stays_of(lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_survives_two_of_five_killed_but_not_three() {
    let test = Fixture::persistent(5).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 2).await;
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    let mut watched = Watched::new(guard);
    test.servers[3].kill();
    watched.stays_valid(LEASE / 2).await;
    test.servers[4].kill();
    watched.stays_valid(LEASE * 3 / 2).await;
    await_states(watched.guard(), &test, "AAAUU").await;
    assert_eq!(
        crowd.visits(),
        0,
        "another owner acquired the lock while it was held"
    );
    assert_busy(&yours).await;
    test.servers[2].kill();
    let loss = watched.followed_to_the_end().await;
    assert_eq!(loss.reason, LostReason::Deadline);
    assert_eq!(crowd.visits(), 0, "two of five are no quorum");
    for dead in 2..5 {
        test.servers[dead].restart(Data::Kept).await;
    }
    let healed = Instant::now();
    crowd.await_visits(5).await;
    println!(
        "they went on after {:?} of {QUARANTINE:?}",
        healed.elapsed()
    );
    crowd.end().await;
    assert!(loss.last_valid < healed);
    give_back(take(&mine).await).await;
    test.assert_nothing_stays().await;
}
