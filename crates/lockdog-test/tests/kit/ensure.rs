//! The check before a step that cannot be undone.

use std::time::Duration;

use lockdog::error::LostReason;
use lockdog_test::Server;
use tokio::time::sleep;

use crate::support::locks::Fixture;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_ensured_only_for_the_time_that_is_left() {
    for fixture in Fixture::each().await {
        let guard = fixture.lock().lease(secs(10)).await.unwrap();
        guard.ensure(secs(5)).unwrap();
        guard.ensure(Duration::ZERO).unwrap();
        sleep(secs(6)).await;
        guard.ensure(secs(3)).unwrap();
        let lost = guard.ensure(secs(5)).unwrap_err();
        assert_eq!(lost.reason(), LostReason::Deadline);
        assert!(guard.ensure(Duration::MAX).is_err());
        // A failed check does not end the hold: the lock can still be used and extended.
        assert!(guard.is_valid() && fixture.is_taken());
        guard.extend(secs(30)).await.unwrap();
        guard.ensure(secs(5)).unwrap();
        sleep(secs(40)).await;
        let lost = guard.ensure(Duration::ZERO).unwrap_err();
        assert_eq!(lost.reason(), LostReason::Deadline);
        assert!(!guard.is_valid());
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_max_hold_is_the_reason_of_a_failed_check() {
    for fixture in Fixture::each().await {
        let guard = fixture.lock().max_hold(secs(10)).await.unwrap();
        sleep(secs(6)).await;
        guard.ensure(secs(3)).unwrap();
        let lost = guard.ensure(secs(5)).unwrap_err();
        assert_eq!(lost.reason(), LostReason::MaxHold);
        assert!(guard.is_valid());
    }
}

#[tokio::test(start_paused = true)]
async fn a_healthy_watched_lock_is_ensured_at_any_time() {
    for fixture in Fixture::each().await {
        let guard = fixture.held().await;
        for _ in 0..100 {
            sleep(Duration::from_millis(1700)).await;
            guard.ensure(secs(19)).unwrap();
        }
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_without_an_end_is_ensured_for_any_time() {
    let server = Server::new();
    let seats = server.client().await.permit_semaphore("seats");
    assert!(seats.try_set_permits(1).await.unwrap());
    let permit = seats.acquire().forever().await.unwrap();
    permit.ensure(Duration::MAX).unwrap();
    permit.release().await.unwrap();
    let permit = seats.acquire().await.unwrap();
    let lost = permit.ensure(Duration::MAX).unwrap_err();
    assert_eq!(lost.reason(), LostReason::Deadline);
    permit.release().await.unwrap();
}
