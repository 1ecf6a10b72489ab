//! Futures that are dropped during a hand-over.

use std::time::Duration;

use lockdog::{Client, Error, Owner, Unlocked};

use super::{finish, got, held_with_next, in_line, patient, transfers};
use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME};
use crate::faults::poll::{LINGERS, poll_n_times};
use crate::faults::scripts::transfer;
use crate::support::{Action, Gate, eventually};

/// The unlocking call sends the hand-over. It is dropped before and after the command was sent.
#[tokio::test]
async fn the_next_waiter_gets_the_lock_from_an_unlock_dropped_at_any_point() {
    let fixture = Fixture::start().await;
    let (mut sent, mut unsent) = (0, 0);
    // A waiter that a busy machine polls too late is handed nothing.
    for (sweep, linger) in LINGERS.into_iter().cycle().take(10).enumerate() {
        if sweep >= LINGERS.len() && sent >= 3 {
            break;
        }
        for n in 1.. {
            assert!(n < 100, "it is polled again and again");
            let before = transfers(&fixture);
            let (held, next) = held_with_next(&fixture).await;
            let done = poll_n_times(held.unlock(), n, linger).await;
            finish(&fixture, got(next).await).await;
            match transfers(&fixture) - before {
                0 => unsent += 1,
                _ => sent += 1,
            }
            if let Some(unlocked) = done {
                assert_eq!(unlocked.unwrap(), Unlocked::Released);
                assert!(n > 1, "it waits for something");
                break;
            }
        }
    }
    assert!(sent >= 3, "sent {sent}, unsent {unsent}");
}

/// The receiver is cancelled before and after the server executed the hand-over.
#[tokio::test]
async fn the_grant_of_a_cancelled_receiver_passes_on() {
    for executed in [false, true] {
        let fixture = patient().await;
        let (held, first) = held_with_next(&fixture).await;
        let second = in_line(&fixture.lock()).await;
        let gate = stop_hand_over(&fixture, executed);
        let holder = fixture.holder().await;
        let cancel = async {
            gate.wait_reached().await;
            if executed {
                eventually(SOON, "it is handed on", async || {
                    fixture.holder().await != holder
                })
                .await;
            }
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            gate.open();
        };
        let (unlocked, ()) = tokio::join!(held.unlock(), cancel);
        assert_eq!(unlocked.unwrap(), Unlocked::Released);
        finish(&fixture, got(second).await).await;
    }
}

#[tokio::test]
async fn a_receiver_that_times_out_during_a_hand_over_returns_in_time_and_keeps_nothing() {
    for executed in [false, true] {
        let fixture = patient().await;
        let lock = fixture.lock();
        let held = lock.lock().owner(&Owner::new()).await.unwrap();
        let wait = Duration::from_millis(1_500);
        let first = lock.try_lock().wait(wait).owner(&Owner::new());
        let first = tokio::spawn(first.into_future());
        tokio::task::yield_now().await;
        let second = in_line(&lock).await;
        let gate = stop_hand_over(&fixture, executed);
        let time_out = async {
            gate.wait_reached().await;
            let ended = tokio::time::timeout(SOON, first).await;
            match ended.expect("it ends at its deadline").unwrap() {
                Ok(None) | Err(Error::Timeout { .. }) => {}
                other => panic!("{other:?}"),
            }
            gate.open();
        };
        let (unlocked, ()) = tokio::join!(held.unlock(), time_out);
        assert_eq!(unlocked.unwrap(), Unlocked::Released);
        finish(&fixture, got(second).await).await;
    }
}

/// Invariant 9: the receiver's owner waits in two calls.
#[tokio::test]
async fn both_calls_of_an_owner_get_the_lock_handed_over_to_one() {
    let fixture = patient().await;
    let lock = fixture.lock();
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    let owner = Owner::new();
    let first = tokio::spawn(lock.lock().owner(&owner).into_future());
    tokio::task::yield_now().await;
    let stranger = in_line(&lock).await;
    let second = tokio::spawn(lock.lock().owner(&owner).into_future());
    tokio::task::yield_now().await;
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    let (first, second) = (got(first).await, got(second).await);
    assert_eq!(transfers(&fixture), 1);
    assert_eq!(
        (first.hold_count(), fixture.counts().await),
        (2, vec!["2".to_owned()])
    );
    assert!(!stranger.is_finished());
    first.unlock().await.unwrap();
    assert_eq!(second.unlock().await.unwrap(), Unlocked::Released);
    finish(&fixture, got(stranger).await).await;
}

/// The waiters get an error.
#[tokio::test]
async fn a_shutdown_during_a_hand_over_leaves_nothing() {
    for executed in [false, true] {
        let fixture = patient().await;
        let (held, first) = held_with_next(&fixture).await;
        let second = in_line(&fixture.lock()).await;
        let gate = stop_hand_over(&fixture, executed);
        let shut_down = async {
            gate.wait_reached().await;
            let (report, ()) = tokio::join!(fixture.client.shutdown(), async {
                tokio::task::yield_now().await;
                gate.open();
            });
            report
        };
        let (unlocked, report) = tokio::join!(held.unlock(), shut_down);
        assert_eq!(report.unconfirmed, 0);
        assert!(matches!(unlocked, Ok(Unlocked::Released)), "{unlocked:?}");
        for waiting in [first, second] {
            let answer = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
            assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
        }
        fixture.assert_recovered().await;
    }
}

/// Receivers and unlocks are cancelled at random moments, on two threads. A grant that no caller reads
/// would keep the lock for a lease, which is longer than the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_overs_continue_when_random_receivers_and_unlocks_are_cancelled() {
    let fixture = Fixture::start().await;
    let client = Client::builder()
        .url(fixture.server.url())
        .watchdog_lease(SOON * 10);
    let client = client.build().await.unwrap();
    let lock = client.lock(NAME);
    let mut crowd = tokio::task::JoinSet::new();
    for number in 0..6_u64 {
        let lock = lock.clone();
        crowd.spawn(async move {
            let mut random = number + 1;
            let mut taken = 0;
            for round in 0..400_u64 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let request = lock.lock().owner(&Owner::new()).into_future();
                // A third of the calls are dropped before their end.
                let polls = match random % 3 {
                    0 => 1 + (random / 3 % 4) as usize,
                    _ => usize::MAX,
                };
                let call = poll_n_times(request, polls, Duration::ZERO);
                let got = tokio::time::timeout(SOON, call).await;
                let got = got.unwrap_or_else(|_| panic!("{number} is stuck in round {round}"));
                if let Some(guard) = got {
                    taken += 1;
                    let polls = match random / 16 % 4 {
                        0 => 1 + (random / 64 % 2) as usize,
                        _ => usize::MAX,
                    };
                    let guard = guard.expect("nothing is wrong");
                    poll_n_times(guard.unlock(), polls, Duration::ZERO).await;
                }
            }
            taken
        });
    }
    let taken: u64 = crowd.join_all().await.into_iter().sum();
    assert!(taken > 1000, "{taken}");
    client.shutdown().await;
    fixture.assert_recovered().await;
}

/// Stops the next hand-over, before or after the server executes it.
fn stop_hand_over(fixture: &Fixture, executed: bool) -> Gate {
    let gate = Gate::new();
    let action = match executed {
        true => Action::HoldReply(gate.clone()),
        false => Action::HoldRequest(gate.clone()),
    };
    fixture.proxy.on(transfer(), action);
    gate
}
