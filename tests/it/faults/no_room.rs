//! A server with too few replicas for writes, without room for another client, or that cannot save, while locks are
//! held. The holds last for their leases, and are renewed if the state ends before.

use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::report::Verdict;
use lockdog::{Client, Error, Unlocked};

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, MOMENT, NAME, take};
use crate::faults::scripts::renew;
use crate::support::{Redis, RedisServer, eventually};
use crate::turn::refusal;

/// The server answers `NOREPLICAS` while it has no replica.
#[tokio::test]
async fn a_held_lock_is_renewed_when_the_replicas_are_back() {
    let fixture = Fixture::with(|client| client.watchdog_lease(LEASE).command_timeout(SOON)).await;
    let set = async |setting: [&str; 2]| {
        let set = [&["CONFIG", "SET"][..], &setting].concat();
        fixture.redis.cmd(&set).await;
    };
    set(["repl-diskless-sync-delay", "0"]).await;
    let replica = RedisServer::start().await;
    let replica = Replica::of(&fixture, &replica).await;
    set(["min-replicas-to-write", "1"]).await;
    let guard = fixture.lock().lock().await.unwrap();
    replica.leave(&fixture).await;
    let before = fixture.proxy.count(renew());
    fixture.proxy.wait_for(renew(), before + 3).await;
    eventually(SOON, "its renewals fail", async || {
        guard.verdict() == Verdict::Jeopardy
    })
    .await;
    assert!(guard.is_valid());
    let free = fixture.client.lock("other");
    let error = refusal(&free).await;
    let Error::Refused { code, .. } = &error else {
        panic!("{error}")
    };
    assert!(code == "NOREPLICAS" && error.is_retriable(), "{error}");

    let waiting = tokio::spawn(free.lock().into_future());
    replica.follow(&fixture).await;
    eventually(SOON, "it is renewed", async || {
        guard.verdict() == Verdict::Held && guard.remaining() > LEASE / 2
    })
    .await;
    let got = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    got.expect("there is a replica again")
        .unlock()
        .await
        .unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    fixture.assert_recovered().await;
}

/// If the replicas are away for longer than a lease, the hold is lost at its deadline, and its guard
/// reports that.
#[tokio::test]
async fn a_held_lock_is_lost_at_its_deadline_if_the_replicas_stay_away() {
    let fixture = Fixture::with(|client| client.watchdog_lease(LEASE / 2)).await;
    let guard = fixture.lock().lock().await.unwrap();
    let require = async |number: &str| {
        let set = ["CONFIG", "SET", "min-replicas-to-write", number];
        fixture.redis.cmd(&set).await;
    };
    require("1").await;
    let lost = tokio::time::timeout(SOON * 3, guard.lost()).await;
    assert_eq!(lost.expect("it is notified").reason(), LostReason::Deadline);
    assert!(refusals(&fixture.redis, "NOREPLICAS").await >= 1);
    assert!(guard.unlock().await.unwrap_err().is_lost());
    require("0").await;
    take(&fixture.lock()).await.unlock().await.unwrap();
    fixture.assert_recovered().await;
}

/// A server that cannot save refuses renewals, too (`MISCONF`).
#[tokio::test]
async fn a_held_lock_is_lost_at_its_deadline_if_the_server_cannot_save() {
    let fixture = Fixture::with(|client| client.watchdog_lease(LEASE / 2)).await;
    let guard = fixture.lock().lock().await.unwrap();
    fixture.fail_to_save().await;
    let lost = tokio::time::timeout(SOON * 3, guard.lost()).await;
    assert_eq!(lost.expect("it is notified").reason(), LostReason::Deadline);
    assert!(guard.unlock().await.unwrap_err().is_lost());
    fixture.write_unsaved().await;
    take(&fixture.lock()).await.unlock().await.unwrap();
    fixture.assert_recovered().await;
}

/// Calls, waiters and the watchdog all meet a full `maxclients`.
#[tokio::test]
async fn a_held_lock_is_renewed_when_maxclients_allows_its_client_again() {
    let fixture = Fixture::with(|client| client.watchdog_lease(LEASE).command_timeout(SOON)).await;
    let guard = fixture.lock().lock().await.unwrap();
    fixture.proxy.wait_for(renew(), 2).await;
    let held = Client::connect(fixture.server.url()).await.unwrap();
    let held = held.lock("other").lock().await.unwrap();
    let waiting = tokio::spawn(fixture.client.lock("other").lock().into_future());
    eventually(SOON, "the waiter listens", async || {
        !fixture.redis.channels().await.is_empty()
    })
    .await;

    let full = Full::without(&fixture).await;
    eventually(SOON, "its renewals fail", async || {
        guard.verdict() == Verdict::Jeopardy
    })
    .await;
    full.has_rejected(3).await;
    assert!(guard.is_valid() && !waiting.is_finished());
    full.make_room().await;
    eventually(SOON, "it is renewed", async || {
        guard.verdict() == Verdict::Held && guard.remaining() > LEASE / 2
    })
    .await;
    held.unlock().await.unwrap();
    let got = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    got.unwrap().unlock().await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    fixture.assert_recovered().await;
}

/// The first connection of a client behaves like later ones.
#[tokio::test]
async fn a_new_client_on_a_full_server_waits_or_reports_it() {
    let fixture = Fixture::start().await;
    let full = Full::without(&fixture).await;
    let builder = || Client::builder().url(fixture.server.url());
    let error = builder().command_timeout(MOMENT).build().await;
    let error = error.unwrap_err();
    assert!(error.is_retriable(), "{error}");
    full.has_rejected(1).await;
    let lazy = builder().lazy(true).build().await.unwrap();
    let lock = lazy.lock(NAME);
    let error = refusal(&lock).await;
    assert!(error.is_retriable(), "{error}");
    let waiting = lock.try_lock().wait(SOON);
    let room = async {
        tokio::time::sleep(MOMENT).await;
        full.make_room().await;
    };
    let (waited, ()) = tokio::join!(waiting.into_future(), room);
    let guard = waited.unwrap().expect("no other owner has it");
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    fixture.assert_recovered().await;
}

/// A replica of the fixture's server.
struct Replica {
    redis: Redis,
}

impl Replica {
    async fn of(fixture: &Fixture, server: &RedisServer) -> Self {
        let redis = server.redis().await;
        let replica = Self { redis };
        replica.follow(fixture).await;
        replica
    }

    async fn follow(&self, fixture: &Fixture) {
        let port = fixture.server.port().to_string();
        self.redis.cmd(&["REPLICAOF", "127.0.0.1", &port]).await;
        count(fixture, 1).await;
    }

    async fn leave(&self, fixture: &Fixture) {
        self.redis.cmd(&["REPLICAOF", "NO", "ONE"]).await;
        count(fixture, 0).await;
    }
}

/// Waits until the server has this number of good replicas.
async fn count(fixture: &Fixture, number: usize) {
    let line = format!("connected_slaves:{number}\r\n");
    let state = "state=online";
    eventually(SOON, "the replica is there, or gone", async || {
        let info: String = fixture.redis.ask(&["INFO", "replication"]).await;
        info.contains(&line) && info.matches(state).count() == number
    })
    .await;
}

/// A server that has closed the client's connections and accepts no new ones.
struct Full {
    redis: Redis,
    /// The number of connections that it had rejected before.
    before: u64,
}

impl Full {
    async fn without(fixture: &Fixture) -> Self {
        let redis = fixture.redis.clone();
        let before = rejected_connections(&redis).await;
        // The connections of other clients stay.
        let own = fixture.proxy.connections();
        let there = redis.clients().await.len() - own;
        assert!(own >= 1 && there >= 1);
        set(&redis, there).await;
        assert_eq!(fixture.proxy.reset_all(), own);
        Self { redis, before }
    }

    async fn has_rejected(&self, number: u64) {
        eventually(SOON, "clients are turned away", async || {
            rejected_connections(&self.redis).await >= self.before + number
        })
        .await;
    }

    async fn make_room(&self) {
        set(&self.redis, 1000).await;
    }
}

async fn set(redis: &Redis, most: usize) {
    let most = most.to_string();
    redis.cmd(&["CONFIG", "SET", "maxclients", &most]).await;
}

async fn rejected_connections(redis: &Redis) -> u64 {
    let info: String = redis.ask(&["INFO", "stats"]).await;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("rejected_connections:"));
    line.and_then(|count| count.parse().ok())
        .expect("the server counts them")
}

async fn refusals(redis: &Redis, code: &str) -> u64 {
    let stats = redis.errorstats().await;
    stats.get(code).copied().unwrap_or(0)
}

/// Long enough for a replica to come back on a busy machine.
const LEASE: Duration = Duration::from_secs(18);
