//! The log's subscriber is the user's code and may block.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use lockdog::{Client, Owner};

use crate::support::RedisServer;
use crate::support::logs::{self, Slow};
use crate::turn::answered;

/// Design: invariant 9. The watchdog finds a hand-over that no caller takes in and, in the same pass, a
/// lost lock. While it writes of that one, the receiver takes its grant in.
#[test]
fn a_grant_taken_while_the_watchdog_revokes_it_stays_with_its_receiver() {
    logs::alone(
        "watchdog::slow_log::a_grant_taken_while_the_watchdog_revokes_it_stays_with_its_receiver",
        async {
            let pace = Slow::of_this_process();
            let server = RedisServer::start().await;
            let redis = server.redis().await;
            // A waiter is handed a lock if it was polled within this time, and has it as long for taking it.
            let client = Client::builder().url(server.url()).poll_cap(POLL_CAP);
            let client = client.build().await.unwrap();
            let (short, long) = (Duration::from_secs(2), Duration::from_secs(60));
            let _first = answered(async || client.lock("first").lock().lease(short).await).await;
            let _second = client.lock("second").lock().lease(short * 3).await.unwrap();
            // The watchdog is blocked and already has its list of due work.
            pace.wait_reached();

            let lock = client.lock("l");
            let outer = lock.lock().owner(&Owner::new()).lease(long).await.unwrap();
            let receiver = Owner::new();
            let mut waiting = pin!(lock.lock().owner(&receiver).lease(long).into_future());
            assert!(waiting.as_mut().now_or_never().is_none());
            outer.unlock().await.unwrap();
            assert!(redis.exists("l").await, "it was handed over");
            // By then the second lock is lost, and the receiver's time is over.
            tokio::time::sleep(short * 2 + Duration::from_secs(1)).await;
            pace.go_on();
            // The loss of the second lock is being logged, so the watchdog has its list of due work.
            pace.wait_reached();
            let guard = waiting.await.unwrap();
            assert!(guard.is_valid());
            // Nothing is blocked any more.
            drop(pace);

            // The watchdog would release it within this time.
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(guard.is_valid(), "{:?}", guard.verdict());
            let inner = lock.lock().owner(&receiver).await.unwrap();
            assert_eq!(inner.hold_count(), 2);
            inner.unlock().await.unwrap();
            guard.unlock().await.unwrap();
        },
    );
}

/// A busy machine needs some time between the wait and the hand-over.
const POLL_CAP: Duration = Duration::from_secs(3);
