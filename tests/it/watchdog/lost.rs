//! Every way to lose a lock, reported to every guard concerned: nested guards, a guard with a lease of
//! its own, views, tokens and work in progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockdog::error::LostReason;
use lockdog::report::Verdict;
use lockdog::{Client, Error, Guard, Held, Owner};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{LEASE, SAFETY, builder, connect, connected};
use crate::support::{Redis, RedisServer, eventually};

#[tokio::test]
async fn a_deleted_key_is_reported_everywhere() {
    let (_server, redis, client) = start().await;
    let concerned = Concerned::hold(&client, "a").await;
    redis.cmd(&["DEL", "a"]).await;
    concerned.are_notified(LostReason::NotOurs).await;
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_key_taken_by_another_owner_is_reported_and_left_alone() {
    let (_server, redis, client) = start().await;
    let concerned = Concerned::hold(&client, "a").await;
    redis.cmd(&["DEL", "a"]).await;
    redis.cmd(&["HSET", "a", "somebody:1", "1"]).await;
    redis.cmd(&["PEXPIRE", "a", "60000"]).await;
    concerned.are_notified(LostReason::NotOurs).await;
    sleep(LEASE / 2).await;
    assert_eq!(redis.hash("a").await["somebody:1"], "1");
    assert!(redis.pttl("a").await > 40_000);
    redis.assert_clean().await;
}

/// Invariant 1: the client's own clock ends the hold.
#[tokio::test]
async fn a_server_outage_beyond_the_lease_is_reported_everywhere() {
    let (server, redis, client) = start().await;
    let concerned = Concerned::hold(&client, "a").await;
    server.pause();
    concerned.are_notified(LostReason::Deadline).await;
    sleep(LEASE).await;
    server.resume();
    eventually(SAFETY, "it is free", async || !redis.exists("a").await).await;
    eventually(SAFETY, "nothing is held", async || {
        client.holds().is_empty()
    })
    .await;
    redis.assert_clean().await;
}

/// The verdict is held, then in jeopardy while renewals fail, then held again, and at last lost.
#[tokio::test]
async fn the_verdict_follows_the_renewals() {
    let (server, redis, _) = start().await;
    // So that there is time to end the jeopardy.
    let lease = LEASE * 3;
    let client = connected(builder(&server.url()).watchdog_lease(lease)).await;
    let guard = client.lock("a").lock().await.unwrap();
    assert_eq!(guard.verdict(), Verdict::Held);
    let becomes = async |verdict| {
        eventually(SAFETY, "the verdict is another", async || {
            guard.verdict() == verdict
        })
        .await;
    };
    server.pause();
    becomes(Verdict::Jeopardy).await;
    assert!(guard.is_valid());
    server.resume();
    becomes(Verdict::Held).await;
    redis.cmd(&["DEL", "a"]).await;
    becomes(Verdict::Lost(LostReason::NotOurs)).await;
    assert!(!guard.is_valid());
    // A view reports the same verdict. A fixed lease only ends.
    let (send, receive) = oneshot::channel();
    let fixed = client.lock("b").lock().lease(LEASE);
    fixed
        .with(async |held: Held| drop(send.send(held)))
        .await
        .unwrap();
    let held = receive.await.unwrap();
    assert_eq!(held.verdict(), Verdict::Lost(LostReason::Released));
    drop(guard);
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_force_unlock_by_this_client_is_reported_everywhere() {
    let (_server, redis, client) = start().await;
    let concerned = Concerned::hold(&client, "a").await;
    assert!(client.lock("a").force_unlock().await.unwrap());
    assert!(!concerned.outer.is_valid(), "this client knows at once");
    concerned.are_notified(LostReason::Forced).await;
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_force_unlock_by_another_client_is_reported_everywhere() {
    let (server, redis, client) = start().await;
    let concerned = Concerned::hold(&client, "a").await;
    let other = connect(&server.url()).await;
    assert!(other.lock("a").force_unlock().await.unwrap());
    concerned.are_notified(LostReason::NotOurs).await;
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_shutdown_is_reported_everywhere() {
    let (_server, redis, client) = start().await;
    let concerned = Concerned::hold(&client, "a").await;
    let report = client.shutdown().await;
    assert_eq!((report.released, report.unconfirmed), (1, 0));
    assert!(!redis.exists("a").await);
    concerned.are_notified(LostReason::ShutDown).await;
    redis.assert_clean().await;
}

#[tokio::test]
async fn max_hold_is_reported_everywhere() {
    let (_server, redis, client) = start().await;
    let max_hold = LEASE * 3 / 2;
    let concerned = Concerned::hold_at_most(&client, "a", Some(max_hold)).await;
    // Counted from here it is a little later than the engine's own.
    let deadline = Instant::now() + max_hold;
    concerned
        .are_notified_by(deadline, LostReason::MaxHold)
        .await;
    redis.assert_clean().await;
}

#[tokio::test]
async fn the_end_of_a_fixed_lease_is_reported_without_a_query() {
    let (_server, redis, client) = start().await;
    let guard = client.lock("a").lock().lease(LEASE).await.unwrap();
    let deadline = Instant::now() + guard.remaining();
    redis.cmd(&["DEL", "a"]).await;
    let lost = timeout(SAFETY, guard.lost()).await.unwrap();
    notified_in_time(deadline);
    assert_eq!(lost.reason(), LostReason::Deadline);
    assert!(!guard.is_valid() && guard.remaining().is_zero());
}

#[tokio::test]
async fn a_nested_call_after_the_loss_gets_lost_and_a_new_call_after_the_drop_does_not() {
    let (_server, redis, client) = start().await;
    let lock = client.lock("a");
    let guard = lock.lock().await.unwrap();
    redis.cmd(&["DEL", "a"]).await;
    timeout(SAFETY, guard.lost()).await.unwrap();
    assert!(matches!(lock.lock().await, Err(Error::Lost(_))));
    assert!(!redis.exists("a").await, "a nested call takes nothing");
    drop(guard);
    lock.lock().await.unwrap().unlock().await.unwrap();
    redis.assert_clean().await;
}

/// Every guard, view and token that must be notified when one hold is lost.
struct Concerned {
    outer: Guard,
    nested: Guard,
    fixed: Guard,
    view: Held,
    token: CancellationToken,
    child: CancellationToken,
    work: JoinHandle<Result<(), Error>>,
    /// Cancelled with the work.
    worked: Arc<()>,
}

impl Concerned {
    async fn hold(client: &Client, name: &str) -> Self {
        Self::hold_at_most(client, name, None).await
    }

    async fn hold_at_most(client: &Client, name: &str, max_hold: Option<Duration>) -> Self {
        let owner = Owner::new();
        let lock = client.lock(name);
        let request = lock.lock().owner(&owner);
        let outer = match max_hold {
            Some(max_hold) => request.max_hold(max_hold).await.unwrap(),
            None => request.await.unwrap(),
        };
        let nested = lock.lock().owner(&owner).await.unwrap();
        let short = lock.lock().owner(&owner).lease(LEASE / 2);
        let fixed = short.await.unwrap();
        let (hand_out, handed_out) = oneshot::channel();
        let worked = Arc::new(());
        let at_work = worked.clone();
        let request = lock.lock().owner(&owner);
        let work = tokio::spawn(request.with(move |held| async move {
            let _at_work = at_work;
            let _ = hand_out.send(held);
            std::future::pending().await
        }));
        let view = handed_out.await.unwrap();
        assert_eq!(view.hold_count(), 4);
        let token = outer.lost_token();
        Self {
            child: token.child_token(),
            token,
            outer,
            nested,
            fixed,
            view,
            work,
            worked,
        }
    }

    /// Waits until all are notified, and checks what they report and when.
    async fn are_notified(self, reason: LostReason) {
        // A renewal that was under way when the test struck may have moved it once.
        let deadline = Instant::now() + self.outer.remaining();
        self.are_notified_by(deadline, reason).await;
    }

    async fn are_notified_by(self, deadline: Instant, reason: LostReason) {
        let all = async {
            tokio::join!(
                async { (self.outer.lost().await, self.outer.is_valid()) },
                async { (self.nested.lost().await, self.nested.is_valid()) },
                async { (self.fixed.lost().await, self.fixed.is_valid()) },
                async { (self.view.lost().await, self.view.is_valid()) },
                self.token.cancelled(),
                self.child.cancelled(),
            )
        };
        let (outer, nested, fixed, view, ..) = timeout(SAFETY, all)
            .await
            .expect("all are notified of the loss");
        notified_in_time(deadline);
        for (lost, was_valid) in [outer, nested, fixed, view] {
            assert_eq!(lost.reason(), reason);
            assert!(!was_valid, "a loss was reported, and there was none");
        }
        let work = timeout(SAFETY, self.work).await.unwrap().unwrap();
        let Err(Error::Lost(lost)) = work else {
            panic!("{work:?}");
        };
        assert_eq!(lost.reason(), reason);
        assert_eq!(Arc::strong_count(&self.worked), 1, "the work continues");
        assert!(self.outer.remaining().is_zero() && self.fixed.remaining().is_zero());
        for guard in [self.fixed, self.nested, self.outer] {
            let Err(Error::Lost(lost)) = guard.unlock().await else {
                panic!("a lost lock was unlocked");
            };
            assert_eq!(lost.reason(), reason);
        }
    }
}

/// Notified by the deadline, apart from the delay of the test itself.
pub(super) fn notified_in_time(deadline: Instant) {
    let now = Instant::now();
    if now <= deadline {
        println!("notified {:?} before the deadline", deadline - now);
    } else {
        let late = now - deadline;
        println!("notified {late:?} after the deadline");
        assert!(late < SCHEDULING_NOISE, "notified {late:?} late");
    }
}

async fn start() -> (RedisServer, Redis, Client) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let timeout = Duration::from_secs(10);
    let client = connected(builder(&server.url()).command_timeout(timeout)).await;
    (server, redis, client)
}

/// The time that a test on a busy machine may take from its wake-up to reading the clock. A test in
/// virtual time checks that no holder is notified late (`losses` in `crates/lockdog-test`).
const SCHEDULING_NOISE: Duration = Duration::from_secs(5);
