//! A suspended machine: no code runs, and the client's clock continues.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::time::{sleep, timeout};

use crate::client::{Client, ClientBuilder};
use crate::error::{Error, LostReason};
use crate::guard::Guard;
use crate::red_lock::RedLock;
use crate::support::prelude::{SOON, ms};
use crate::support::{Action, Gate, Proxy, Redis, RedisServer, eventually, until_ok};

#[tokio::test]
async fn a_machine_that_slept_for_a_minute_lost_its_locks() {
    let server = RedisServer::start().await;
    let machine = Machine::default();
    let client = machine.connect(server.url(), ms(30_000)).await;
    let watched = client.lock("watched").lock().await.unwrap();
    let fixed = client.lock("fixed").lock().lease(ms(40_000)).await.unwrap();
    let token = fixed.lost_token();
    let losses = tokio::spawn(async move {
        let lost = fixed.lost().await;
        (lost, fixed)
    });
    sleep(ms(50)).await;
    assert!(watched.is_valid() && !token.is_cancelled());
    machine.sleep(ms(60_000));
    assert!(!watched.is_valid(), "known without any task running");
    let (lost, fixed) = timeout(SOON, losses).await.unwrap().unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    assert!(!fixed.is_valid() && lost.held_for() >= ms(60_000));
    let lost = timeout(SOON, watched.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    timeout(SOON, token.cancelled()).await.unwrap();
    assert!(client.holds().is_empty());
    drop((watched, fixed));
    server.redis().await.assert_clean().await;
}

#[tokio::test]
async fn a_late_renewal_does_not_revive_a_lost_hold() {
    for lost_before_the_answer in [true, false] {
        let server = RedisServer::start().await;
        let redis = server.redis().await;
        let proxy = Proxy::start(&server).await;
        // An answer counts for a third of the lease.
        let lease = LEASE * 2;
        let machine = Machine::default();
        let client = machine.connect(proxy.url().to_owned(), lease).await;
        let guard = client.lock("a").lock().await.unwrap();
        // The server knows the script, so that the answer held back is a renewal's.
        let script = renew_script();
        redis.cmd(&["SCRIPT", "LOAD", &script]).await;
        let gate = Gate::new();
        let digest = redis::Script::new(&script).get_hash().to_owned();
        let is_renewal = move |args: &[String]| {
            args.get(1)
                .is_some_and(|arg| *arg == script || *arg == digest)
        };
        let rule = proxy.on(is_renewal, Action::HoldReply(gate.clone()));
        gate.wait_reached().await;
        eventually(SOON, "the renewal was good", async || {
            redis.pttl("a").await > (lease * 3 / 4).as_millis() as i64
        })
        .await;
        // Beyond the deadline, but not beyond the one that the renewal would have given.
        machine.sleep(lease * 3 / 4);
        assert!(!guard.is_valid());
        if lost_before_the_answer {
            timeout(SOON, guard.lost()).await.unwrap();
        }
        gate.open();
        rule.wait_hits(1).await;
        for _ in 0..50 {
            assert!(!guard.is_valid() && guard.remaining().is_zero());
            sleep(ms(5)).await;
        }
        let lost = timeout(SOON, guard.lost()).await.unwrap();
        assert_eq!(lost.reason(), LostReason::Deadline);
        assert!(matches!(guard.unlock().await, Err(Error::Lost(_))));
        // The client releases what the renewal keeps in Redis.
        eventually(SOON, "it is free", async || !redis.exists("a").await).await;
        redis.assert_clean().await;
    }
}

#[tokio::test]
async fn a_machine_that_slept_longer_than_the_lease_sees_the_quorum_lost_at_once() {
    let servers = ThreeServers::start(LEASE).await;
    let guard = servers.take().await;
    assert!(guard.is_valid());
    servers.machine.sleep(LEASE);
    assert!(!guard.is_valid(), "its deadline is over");
    assert!(guard.remaining().is_zero());
    let lost = timeout(SOON, guard.lost()).await;
    assert_eq!(lost.expect("it is notified").reason(), LostReason::Deadline);
    drop(guard);
    give_back(servers.take().await).await;
    servers.await_taken(0).await;
}

/// After a suspension of more than a third of the lease, the client extends the remaining instances and
/// acquires the lost ones again in the same round, and not a third of the lease later. Queries of the
/// guard meanwhile do not change that.
#[tokio::test]
async fn an_instance_lost_before_a_round_is_reacquired_in_that_round() {
    let servers = ThreeServers::start(ms(9_000)).await;
    let guard = servers.take().await;
    servers.await_taken(3).await;
    let mut fastest = SOON;
    for turn in 0..6 {
        sleep(ms(50)).await;
        servers.machine.sleep(ms(3_100));
        let member = servers.clients[turn % 3].lock(NAME);
        assert!(member.force_unlock().await.unwrap());
        let looks = turn % 2 == 0;
        assert!(!looks || guard.lost().now_or_never().is_none());
        let began = Instant::now();
        servers.await_taken(3).await;
        if !looks {
            fastest = fastest.min(began.elapsed());
        }
        assert!(guard.is_valid());
    }
    assert!(fastest < ms(1_000), "{fastest:?}");
    give_back(guard).await;
}

/// A machine that a test can suspend.
#[derive(Default)]
struct Machine {
    ahead: Arc<AtomicU64>,
}

impl Machine {
    async fn connect(&self, url: String, lease: Duration) -> Client {
        let builder: ClientBuilder = Client::builder()
            .url(url)
            .watchdog_lease(lease)
            .clock_ahead(self.ahead.clone());
        until_ok(SOON, async || builder.clone().build().await).await
    }

    fn sleep(&self, time: Duration) {
        self.ahead
            .fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

/// A quorum of three, and the test's own view of each.
struct ThreeServers {
    clients: Vec<Client>,
    machine: Machine,
    views: Vec<Redis>,
    lease: Duration,
    _servers: Vec<RedisServer>,
}

impl ThreeServers {
    async fn start(lease: Duration) -> Self {
        let machine = Machine::default();
        let (mut clients, mut views, mut servers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            let server = RedisServer::start().await;
            clients.push(machine.connect(server.url(), lease).await);
            views.push(server.redis().await);
            servers.push(server);
        }
        Self {
            clients,
            machine,
            views,
            lease,
            _servers: servers,
        }
    }

    /// Takes the lock, which is free or about to be.
    async fn take(&self) -> Guard {
        let locks = self.clients.iter().map(|client| client.lock(NAME));
        let lock = RedLock::new(locks).max_lease(self.lease);
        let taken = lock.try_lock().wait(SOON).await;
        taken
            .expect("enough servers answer")
            .expect("the lock becomes free")
    }

    /// Waits until the lock is taken on this many servers.
    async fn await_taken(&self, n: usize) {
        let what = format!("{n} servers have the lock");
        eventually(SOON, &what, async || {
            let mut taken = 0;
            for view in &self.views {
                taken += usize::from(view.exists(NAME).await);
            }
            taken == n
        })
        .await;
    }
}

/// On a busy machine answers may be late, and then the client completes the release in the background.
async fn give_back(guard: Guard) {
    match guard.unlock().await {
        Ok(_) | Err(Error::UnlockUnconfirmed(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Long enough for a busy machine to renew in time.
const LEASE: Duration = Duration::from_millis(4_800);
const NAME: &str = "orders:42";

fn renew_script() -> String {
    let lua = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let file = lua.join("lock/renew").with_extension("lua");
    std::fs::read_to_string(file).expect("it is there")
}
