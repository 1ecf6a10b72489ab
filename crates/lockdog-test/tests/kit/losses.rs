//! The guard of a lost lock reports the loss by its deadline, to the millisecond.

use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::report::Verdict;
use lockdog::{Client, Guard, RedLock};
use lockdog_test::{Data, Server};
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_millis(1_200);
const PERIOD: Duration = Duration::from_millis(400);

/// Waits until the guard reports its loss, and checks that this is in time.
async fn notified_by(guard: &Guard, deadline: Instant) -> LostReason {
    let lost = guard.lost().await;
    let now = Instant::now();
    assert!(now <= deadline, "notified {:?} late", now - deadline);
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert!(guard.lost_token().is_cancelled());
    lost.reason()
}

fn deadline(guard: &Guard) -> Instant {
    Instant::now() + guard.remaining()
}

async fn start() -> (Server, Client) {
    let server = Server::new();
    let client = server.builder().watchdog_lease(LEASE).build().await;
    (server, client.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_notified_by_its_deadline_whenever_the_server_stops() {
    // Through more than a period, so that renewals are due, under way and just answered.
    for millis in (0..600).step_by(7) {
        let (server, client) = start().await;
        let guard = client.lock("l").lock().await.unwrap();
        sleep(Duration::from_millis(millis)).await;
        server.freeze();
        let reason = notified_by(&guard, deadline(&guard)).await;
        assert_eq!(reason, LostReason::Deadline, "after {millis} ms");
        server.thaw();
        drop(guard);
        server.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_notified_of_a_deleted_key_within_a_renewal_period() {
    for millis in (0..600).step_by(7) {
        let (server, client) = start().await;
        let guard = client.lock("l").lock().await.unwrap();
        sleep(Duration::from_millis(millis)).await;
        server.lose("l");
        let reason = notified_by(&guard, Instant::now() + PERIOD).await;
        assert_eq!(reason, LostReason::NotOurs, "after {millis} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_notified_by_the_end_of_its_fixed_lease() {
    for millis in [10, 100, 999, 5_000] {
        let (server, client) = start().await;
        let lease = Duration::from_millis(millis);
        let asked = Instant::now();
        let guard = client.lock("l").lock().lease(lease).await.unwrap();
        let reason = notified_by(&guard, asked + lease).await;
        assert_eq!(reason, LostReason::Deadline);
        // A hundredth of the lease is reserved for different clock rates.
        assert!(asked.elapsed() >= lease * 9 / 10 - Duration::from_millis(3));
        drop(server);
    }
}

#[tokio::test(start_paused = true)]
async fn a_red_lock_holder_is_notified_by_its_deadline_whenever_a_majority_stops() {
    for millis in (0..600).step_by(50) {
        let servers = [Server::new(), Server::new(), Server::new()];
        let mut members = Vec::new();
        for server in &servers {
            let client = server.builder().watchdog_lease(LEASE).build().await;
            members.push(client.unwrap().lock("l"));
        }
        let guard = RedLock::new(members).lock().await.unwrap();
        sleep(Duration::from_millis(millis)).await;
        servers[0].freeze();
        servers[1].freeze();
        let mut last = deadline(&guard);
        // Answers that were under way may still count.
        while guard.is_valid() {
            last = last.max(deadline(&guard));
            let _ = timeout(Duration::from_millis(1), guard.lost()).await;
        }
        let reason = notified_by(&guard, last + Duration::from_millis(1)).await;
        assert_eq!(reason, LostReason::Deadline, "after {millis} ms");
        servers[0].thaw();
        servers[1].thaw();
    }
}

/// The verdict is held, then in jeopardy while renewals fail, then held again, and at last lost.
#[tokio::test(start_paused = true)]
async fn the_verdict_follows_the_renewals() {
    let (server, client) = start().await;
    let guard = client.lock("l").lock().await.unwrap();
    let mut seen = vec![guard.verdict()];
    let look = async |time: Duration, seen: &mut Vec<Verdict>| {
        let until = Instant::now() + time;
        while Instant::now() < until {
            sleep(Duration::from_millis(1)).await;
            let verdict = guard.verdict();
            if seen.last() != Some(&verdict) {
                seen.push(verdict);
            }
        }
    };
    look(LEASE * 3, &mut seen).await;
    assert_eq!(seen, [Verdict::Held]);
    server.freeze();
    // A renewal is due within a period, and missed after a sixth of the lease.
    look(PERIOD * 13 / 8, &mut seen).await;
    assert_eq!(seen, [Verdict::Held, Verdict::Jeopardy]);
    server.thaw();
    look(LEASE, &mut seen).await;
    assert_eq!(seen, [Verdict::Held, Verdict::Jeopardy, Verdict::Held]);
    server.restart(Data::Lost);
    look(LEASE, &mut seen).await;
    // The client's connections broke, too.
    let lost = Verdict::Lost(LostReason::NotOurs);
    assert!(
        seen[3..] == [lost] || seen[3..] == [Verdict::Jeopardy, lost],
        "{seen:?}"
    );
}
