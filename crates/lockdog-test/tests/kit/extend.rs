//! Guards that get a longer lease.

use std::time::Duration;

use lockdog::{Error, Owner};
use tokio::time::sleep;

use crate::support::locks::{Fixture, NAME};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[tokio::test(start_paused = true)]
async fn extend_lengthens_a_fixed_lease_and_never_shortens_it() {
    for fixture in Fixture::each().await {
        let guard = fixture.lock().lease(secs(10)).await.unwrap();
        sleep(secs(5)).await;
        guard.extend(secs(60)).await.unwrap();
        let long = guard.remaining();
        assert!(long > secs(58) && long <= secs(60), "{long:?}");
        guard.extend(secs(1)).await.unwrap();
        assert!(guard.remaining() > secs(58));
        sleep(secs(50)).await;
        assert!(guard.is_valid() && fixture.is_taken());
        let other = fixture.try_lock().owner(&Owner::new());
        assert!(other.await.unwrap().is_none());
        guard.unlock().await.unwrap();
        assert_eq!(fixture.taken(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_renews_again_when_the_longer_lease_ends() {
    for fixture in Fixture::each().await {
        let guard = fixture.held().await;
        guard.extend(secs(300)).await.unwrap();
        let long = guard.remaining();
        assert!(long > secs(290), "{long:?}");
        sleep(secs(400)).await;
        assert!(guard.is_valid() && fixture.is_taken());
        assert!(guard.remaining() <= secs(30), "{:?}", guard.remaining());
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn extend_of_a_deleted_lock_reports_the_loss() {
    for fixture in Fixture::each().await {
        let guard = fixture.lock().lease(secs(60)).await.unwrap();
        for server in &fixture.servers {
            server.lose(NAME);
        }
        let extended = guard.extend(secs(120)).await;
        assert!(matches!(extended, Err(Error::Lost(_))), "{extended:?}");
        assert!(!guard.is_valid());
        // The second call answers from the client's own state.
        let extended = guard.extend(secs(120)).await;
        assert!(matches!(extended, Err(Error::Lost(_))), "{extended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn extend_stays_within_max_hold_and_refuses_a_bad_lease() {
    for fixture in Fixture::each().await {
        let guard = fixture.lock().max_hold(secs(60)).await.unwrap();
        guard.extend(secs(300)).await.unwrap();
        assert!(guard.remaining() <= secs(60), "{:?}", guard.remaining());
        let extended = guard.extend(Duration::from_millis(5)).await;
        assert!(
            matches!(extended, Err(Error::Invalid { .. })),
            "{extended:?}"
        );
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn extend_on_a_silent_server_takes_a_command_timeout_and_keeps_the_lock() {
    let [fixture, ..] = Fixture::each().await;
    let guard = fixture.lock().lease(secs(60)).await.unwrap();
    fixture.servers[0].freeze();
    let began = tokio::time::Instant::now();
    let extended = guard.extend(secs(300)).await;
    assert!(
        matches!(extended, Err(Error::Timeout { .. })),
        "{extended:?}"
    );
    assert!(began.elapsed() <= secs(4), "{:?}", began.elapsed());
    assert!(guard.is_valid() && guard.remaining() <= secs(60));
    fixture.servers[0].thaw();
    guard.unlock().await.unwrap();
}
