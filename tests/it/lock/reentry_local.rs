//! Many acquires of one owner, of which Redis counts only the first.

use std::time::Duration;

use lockdog::config::Reentry;
use lockdog::error::LostReason;
use lockdog::{Client, Error, Guard, Lock, Owner, Unlocked};

use super::{Fixture, LONG, SOON, ms, poll_once, renewed};
use crate::support::{eventually, until_ok};

#[tokio::test]
async fn a_local_reentry_sends_nothing() {
    let test = Fixture::start().await;
    test.warm_up(&test.client).await;
    let lock = test.client.lock("l");
    let outer = lock.lock().reentry(Reentry::Local).await.unwrap();
    test.redis.reset_stats().await;
    let inner = local(&lock).await;
    let tried = lock.try_lock().reentry(Reentry::Local).await.unwrap();
    let tried = tried.expect("it is ours");
    let waited = lock.try_lock().wait(SOON).reentry(Reentry::Local).await;
    let waited = waited.unwrap().expect("it is ours");
    assert_eq!((outer.hold_count(), waited.hold_count()), (4, 4));
    assert_eq!(waited.unlock().await.unwrap(), still(3));
    drop(tried);
    assert_eq!(inner.unlock().await.unwrap(), still(1));
    let sum = lock.lock().reentry(Reentry::Local);
    let sum = sum.with(|held| async move { held.hold_count() + 1 }).await;
    assert_eq!(sum.unwrap(), 3);
    assert_eq!(test.sent().await, 0);
    // A drop would send its settlement in the background.
    tokio::time::sleep(ms(50)).await;
    assert_eq!(test.sent().await, 0);
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    assert_eq!(test.sent().await, 1);
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn redis_sees_the_outer_hold_only() {
    let test = Fixture::start().await;
    let client = counting_locally(&test, SOON).await;
    let lock = client.lock("l");
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    assert_eq!(inner.hold_count(), 2);
    assert_eq!(client.holds()[0].count, 2);
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    assert_eq!(lock.holder().await.unwrap().unwrap().count, 1);
    assert!(lock.is_held().await.unwrap());
    // The setting of a request overrides the client's.
    let counted = lock.lock().reentry(Reentry::Counted).await.unwrap();
    assert_eq!(counted.hold_count(), 3);
    assert_eq!(lock.hold_count().await.unwrap(), 2);
    assert_eq!(counted.unlock().await.unwrap(), still(2));
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    drop((inner, outer));
    test.freed("l").await;
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn the_lock_is_held_until_its_last_guard_ends_in_any_order() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    // Redis counts the counted acquires down to one, and not below.
    for order in [[0, 0, 0, 0], [3, 2, 1, 0], [2, 0, 1, 0], [1, 2, 0, 0]] {
        for is_dropped in [false, true] {
            let mut guards = vec![lock.lock().await.unwrap(), local(&lock).await];
            guards.push(lock.lock().await.unwrap());
            guards.push(local(&lock).await);
            assert_eq!(lock.hold_count().await.unwrap(), 2);
            for which in order {
                let guard = guards.remove(which);
                let left = guards.len() as u32;
                if is_dropped {
                    drop(guard);
                } else if left > 0 {
                    assert_eq!(guard.unlock().await.unwrap(), still(left));
                } else {
                    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
                }
                assert!(guards.iter().all(|guard| guard.hold_count() == left));
                if left > 0 {
                    assert!(test.redis.exists("l").await);
                    assert!(
                        lock.try_lock()
                            .owner(&Owner::new())
                            .await
                            .unwrap()
                            .is_none()
                    );
                }
            }
            test.freed("l").await;
        }
    }
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn ending_the_outer_claim_before_an_inner_one_sends_nothing() {
    let test = Fixture::start().await;
    test.warm_up(&test.client).await;
    let lock = test.client.lock("l");
    let outer = lock.lock().await.unwrap();
    let inner = local(&lock).await;
    test.redis.reset_stats().await;
    assert_eq!(outer.unlock().await.unwrap(), still(1));
    assert_eq!(test.sent().await, 0);
    // Redis now counts the inner acquire, and the next call is nested in it.
    let again = lock.lock().await.unwrap();
    assert_eq!(
        (again.hold_count(), lock.hold_count().await.unwrap()),
        (2, 2)
    );
    assert_eq!(inner.unlock().await.unwrap(), still(1));
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    assert_eq!(again.unlock().await.unwrap(), Unlocked::Released);
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn an_unlock_of_a_forgotten_local_claim_sends_nothing() {
    let test = Fixture::start().await;
    test.warm_up(&test.client).await;
    let lock = test.client.lock("l");
    lock.lock().await.unwrap().forget();
    local(&lock).await.forget();
    lock.lock().await.unwrap().forget();
    local(&lock).await.forget();
    assert_eq!(lock.hold_count().await.unwrap(), 2);
    test.redis.reset_stats().await;
    for (left, sent) in [(3, 0), (2, 1), (1, 1)] {
        assert_eq!(lock.unlock().await.unwrap(), still(left));
        assert_eq!(test.sent().await, sent);
    }
    assert_eq!(lock.unlock().await.unwrap(), Unlocked::Released);
    assert!(matches!(
        lock.unlock().await.unwrap_err(),
        Error::NotHeld(_)
    ));
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_reentry_that_lengthens_the_hold_is_counted_by_redis() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let counted = async || lock.hold_count().await.unwrap();
    let request = || lock.lock().reentry(Reentry::Local);

    let outer = request().lease(LONG).await.unwrap();
    let short = request().lease(LONG / 2).await.unwrap();
    assert_eq!(counted().await, 1, "it ends before the hold");
    let long = request().lease(2 * LONG).await.unwrap();
    assert_eq!(counted().await, 2, "it ends after the hold");
    assert!(test.redis.pttl("l").await > LONG.as_millis() as i64);
    let watched = request().await.unwrap();
    assert_eq!(counted().await, 3, "no client renewed the hold before");
    let under_it = request().await.unwrap();
    let bounded = request().max_hold(ms(60_000)).await.unwrap();
    assert_eq!(counted().await, 4, "a bound is a change");
    assert_eq!(outer.hold_count(), 6);
    drop((outer, short, long, watched, under_it, bounded));
    test.freed("l").await;
}

#[tokio::test]
async fn a_hold_is_renewed_while_a_local_claim_without_a_lease_lives() {
    let test = Fixture::start().await;
    let client = counting_locally(&test, ms(6_000)).await;
    let lock = client.lock("l");
    let fixed = lock.lock().lease(ms(5_000)).await.unwrap();
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    drop(outer);
    renewed(&[&inner]).await;
    assert!(inner.is_valid() && client.holds()[0].watched);
    assert_eq!(inner.unlock().await.unwrap(), still(1));
    // No command was sent, and the watchdog stops the renewal.
    assert!(!client.holds()[0].watched);
    test.freed("l").await;
    assert!(!fixed.is_valid());
    assert!(fixed.unlock().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn the_outer_unlock_detects_a_deleted_lock_and_ends_all_guards() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let outer = lock.lock().await.unwrap();
    let inner = local(&lock).await;
    test.redis.cmd(&["DEL", "l"]).await;
    // No command was sent.
    let deeper = local(&lock).await;
    assert!(deeper.is_valid());
    assert_eq!(deeper.unlock().await.unwrap(), still(2));
    // A query detects it.
    let nested = lock.lock().await.unwrap_err();
    assert!(nested.is_lost(), "{nested}");
    assert!(!inner.is_valid() && !outer.is_valid());
    let nested = lock.lock().reentry(Reentry::Local).await.unwrap_err();
    let Error::Lost(lost) = &nested else {
        panic!("{nested}")
    };
    assert_eq!(lost.reason(), LostReason::NotOurs);
    assert!(inner.unlock().await.unwrap_err().is_lost());
    assert!(outer.unlock().await.unwrap_err().is_lost());
    assert!(test.client.holds().is_empty());
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_local_claim_is_lost_with_the_hold_at_a_deadline_or_a_refused_renewal() {
    let test = Fixture::start().await;
    let client = counting_locally(&test, ms(4_500)).await;
    let lock = client.lock("l");
    let outer = until_ok(SOON, async || lock.lock().lease(ms(5_000)).await).await;
    let inner = lock.lock().lease(ms(20)).await.unwrap();
    assert_eq!(inner.lost().await.reason(), LostReason::Deadline);
    assert!(lock.lock().lease(ms(20)).await.unwrap_err().is_lost());
    assert!(inner.unlock().await.unwrap_err().is_lost());
    drop(outer);

    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    test.redis.cmd(&["DEL", "l"]).await;
    assert_eq!(inner.lost().await.reason(), LostReason::NotOurs);
    assert!(outer.lost_token().is_cancelled());
    assert!(lock.try_lock().await.unwrap_err().is_lost());
    drop(inner);
    assert!(lock.try_lock().await.unwrap_err().is_lost());
    drop(outer);
    lock.lock().await.unwrap().unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_cancelled_local_reentry_leaves_nothing() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let outer = lock.lock().await.unwrap();
    let never_polled = lock.lock().reentry(Reentry::Local).into_future();
    drop(never_polled);
    let mut request = lock.lock().reentry(Reentry::Local).into_future();
    drop(poll_once(&mut request).await.expect("nothing to wait for"));
    // A cancelled first acquire is undone, as always.
    let other = Owner::new();
    let elsewhere = test.client.lock("m");
    let mut request = elsewhere.lock().owner(&other).reentry(Reentry::Local);
    assert!(
        poll_once(&mut request.clone().into_future())
            .await
            .is_none()
    );
    request = request.lease(LONG);
    request.await.unwrap().unlock().await.unwrap();
    assert_eq!(outer.hold_count(), 1);
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_queued_request_is_counted_locally_once_its_owner_has_the_lock() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let (owner, before) = (
        Owner::new(),
        lock.lock().owner(&Owner::new()).await.unwrap(),
    );
    let request = || lock.lock().owner(&owner).reentry(Reentry::Local);
    let waiters = [request(), request()].map(|request| tokio::spawn(request.into_future()));
    // They wait for the holder of their own client without a command.
    tokio::time::sleep(ms(50)).await;
    before.unlock().await.unwrap();
    let mut guards = Vec::new();
    for waiter in waiters {
        guards.push(waiter.await.unwrap().unwrap());
    }
    assert_eq!(guards[0].hold_count(), 2);
    assert_eq!(owner.scope(lock.hold_count()).await.unwrap(), 1);
    drop(guards);
    test.freed("l").await;
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_shutdown_ends_local_claims_with_the_hold() {
    let test = Fixture::start().await;
    let client = counting_locally(&test, SOON).await;
    let lock = client.lock("l");
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    let report = client.shutdown().await;
    assert_eq!((report.released, report.unconfirmed), (1, 0));
    assert!(!test.redis.exists("l").await);
    assert!(!outer.is_valid() && !inner.is_valid());
    let closed = lock.lock().await.unwrap_err();
    assert!(matches!(closed, Error::Closed), "{closed}");
    assert!(inner.unlock().await.unwrap_err().is_lost());
    drop(outer);
    test.redis.assert_clean().await;
}

impl Fixture {
    /// The number of commands about locks since the last reset.
    async fn sent(&self) -> u64 {
        let [sent, whole] = self.calls(["evalsha", "eval"]).await;
        sent + whole
    }

    async fn freed(&self, name: &str) {
        eventually(SOON, "the lock is free", async || {
            !self.redis.exists(name).await
        })
        .await;
    }
}

async fn local(lock: &Lock) -> Guard {
    let request = lock.lock().reentry(Reentry::Local);
    request.await.expect("it is ours, or free")
}

async fn counting_locally(test: &Fixture, lease: Duration) -> Client {
    let client = Client::builder().url(test.server.url());
    let client = client.watchdog_lease(lease).reentry(Reentry::Local);
    client.build().await.expect("it runs")
}

fn still(count: u32) -> Unlocked {
    Unlocked::StillHeld { count }
}
