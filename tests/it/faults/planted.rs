//! Schedules of the network that distinguish a correct lock from one with a planted defect
//! (`tests/mutants`), on real servers. Each test names the defect that it detects.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lockdog::{Client, Guard, Owner, RedLock, Unlocked};

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME, load_scripts, take};
use crate::faults::scripts::{acquire, renew, transfer};
use crate::support::prelude::{LONG, poll_once};
use crate::support::{Action, Gate, Proxy, Redis, RedisServer, eventually};

/// `blind_force_unlock`: a late command deletes the key, also if another owner has it by then.
#[tokio::test]
async fn a_delayed_force_unlock_does_not_free_the_next_holders_lock() {
    let fixture = Fixture::start().await;
    let others = fixture.others_lock().await;
    let first = take(&others).await;
    let holder = fixture.holder().await;
    let gate = Gate::new();
    let names_the_holder = move |args: &[String]| {
        let is_script = args[0].to_ascii_uppercase().starts_with("EVAL");
        is_script && args.contains(&holder)
    };
    let action = Action::HoldRequest(gate.clone());
    fixture.proxy.on(names_the_holder, action);
    let force = tokio::spawn(fixture.lock().force_unlock().into_future());
    gate.wait_reached().await;
    assert_eq!(first.unlock().await.unwrap(), Unlocked::Released);
    let next = take(&others).await;
    gate.open();
    let forced = force.await.unwrap().unwrap();
    assert!(!forced, "the holder that it was for has gone");
    assert_eq!(fixture.counts().await, ["1"], "the next holder keeps it");
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    fixture.assert_recovered().await;
}

/// `late_renewal_revives`: a successful renewal that is read after the deadline makes a lost hold valid
/// again.
#[tokio::test]
async fn a_renewal_answered_after_the_loss_revives_nothing() {
    // On a busy machine the lease may be over before the last renewal is sent.
    let what = "a renewal is under way at the end of the lease";
    eventually(LONG, what, revives_nothing).await;
}

/// False if no renewal was in flight at the end of the lease.
async fn revives_nothing() -> bool {
    const LEASE: Duration = Duration::from_secs(4);
    let fixture = Fixture::with(|client| client.watchdog_lease(LEASE)).await;
    let began = Instant::now();
    let guard = fixture.lock().lock().await.unwrap();
    let refused = Action::ReplyWith("-ERR not now".to_owned());
    let before = fixture.proxy.on(renew(), refused.clone()).always();
    // The client waits for an answer for a third of the lease, so the loss comes in that time.
    tokio::time::sleep_until((began + LEASE * 4 / 5).into()).await;
    if !guard.is_valid() || before.hits() == 0 {
        return false;
    }
    let gate = Gate::new();
    let held = fixture.proxy.on(renew(), Action::HoldReply(gate.clone()));
    // The renewals that the client sends meanwhile on another connection.
    fixture.proxy.on(renew(), refused).always();
    before.remove();
    tokio::select! {
        biased;
        () = gate.wait_reached() => {}
        _ = guard.lost() => return false,
    }
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert!(!guard.is_valid());
    gate.open();
    held.wait_hits(1).await;
    // Long enough for the client to read the answer, and shorter than the renewed lease.
    let until = Instant::now() + LEASE / 4;
    while Instant::now() < until {
        assert!(!guard.is_valid(), "a lost guard is valid again");
        assert!(fixture.client.holds().is_empty(), "a lost hold is listed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(guard);
    fixture.assert_recovered().await;
    true
}

/// `declined_grant_stays`: no client undoes the hand-over to a waiter that has left.
#[tokio::test]
async fn a_lock_handed_over_to_a_waiter_that_left_is_free_at_once() {
    // Neither the end of a lease nor the watchdog's check of untaken grants comes before the end of the
    // test.
    let fixture = Fixture::with(|client| client.poll_cap(LONG)).await;
    let lock = fixture.lock();
    for is_under_way in [false, true] {
        let held = lock.lock().owner(&Owner::new()).await.unwrap();
        let next = lock.lock().lease(LONG).owner(&Owner::new());
        let mut next = next.into_future();
        assert!(poll_once(&mut next).await.is_none());
        let before = fixture.proxy.count(transfer());
        if is_under_way {
            let gate = Gate::new();
            let action = Action::HoldReply(gate.clone());
            fixture.proxy.on(transfer(), action);
            let unlock = tokio::spawn(async move { held.unlock().await });
            gate.wait_reached().await;
            drop(next);
            gate.open();
            assert_eq!(unlock.await.unwrap().unwrap(), Unlocked::Released);
        } else {
            assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
            assert_eq!(fixture.counts().await, ["1"], "the waiter has it");
            drop(next);
        }
        assert_eq!(fixture.proxy.count(transfer()), before + 1);
        fixture.await_free().await;
    }
    fixture.assert_recovered().await;
}

/// `quorum_releases_acquired_only`: a grant of a server that comes after the release of the lock stays.
#[tokio::test]
async fn a_server_that_answers_after_the_unlock_of_a_red_lock_keeps_nothing() {
    let servers = Servers::start().await;
    let gate = Gate::new();
    servers.proxies[0].on(acquire(), Action::HoldReply(gate.clone()));
    let guard = servers.lock().await;
    gate.wait_reached().await;
    let redis = &servers.redis[0];
    eventually(SOON, "it is granted there", async || {
        redis.exists(NAME).await
    })
    .await;
    let mut unlock = pin!(guard.unlock());
    // The release of the lock does not wait for this server.
    let unlocked = unlock.as_mut().now_or_never();
    for redis in &servers.redis[1..] {
        eventually(SOON, "it is given back", async || !redis.exists(NAME).await).await;
    }
    assert!(redis.exists(NAME).await, "its answer was not read");
    gate.open();
    eventually(SOON, "it is given back there too", async || {
        !redis.exists(NAME).await
    })
    .await;
    let unlocked = match unlocked {
        Some(unlocked) => unlocked,
        None => unlock.await,
    };
    assert_eq!(unlocked.unwrap(), Unlocked::Released);
}

/// `quorum_validity_from_reply`: the deadline counts from the answer that completed the quorum.
#[tokio::test]
async fn the_deadline_of_a_red_lock_counts_from_the_sending() {
    let servers = Servers::start().await;
    let asked = || -> usize {
        let counts = servers.proxies.iter().map(|proxy| proxy.count(acquire()));
        counts.sum()
    };
    let mut judged = 0;
    // On a busy machine a round may fail. Each round is judged separately.
    for _ in 0..10 {
        let gates = [Gate::new(), Gate::new(), Gate::new()];
        for (proxy, gate) in servers.proxies.iter().zip(&gates) {
            proxy.on(acquire(), Action::HoldReply(gate.clone()));
        }
        let before = asked();
        let late = async {
            for gate in &gates {
                gate.wait_reached().await;
            }
            // The commands were sent before the proxies received them.
            let latest = Instant::now() + LEASE - LEASE / 100;
            tokio::time::sleep(Duration::from_millis(250)).await;
            gates.iter().for_each(Gate::open);
            latest
        };
        let (guard, latest) = tokio::join!(servers.lock(), late);
        let deadline = Instant::now() + guard.remaining();
        if asked() == before + 3 {
            assert!(deadline <= latest, "{:?} too late", deadline - latest);
            judged += 1;
        }
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        for redis in &servers.redis {
            eventually(SOON, "it is given back", async || !redis.exists(NAME).await).await;
        }
        if judged == 2 {
            break;
        }
    }
    assert!(judged > 0, "no round was won in time");
}

/// Long enough that the client waits for each server during the whole test.
const LEASE: Duration = Duration::from_secs(100);

/// Three servers, each behind its own proxy, and a lock on all of them.
struct Servers {
    lock: RedLock,
    proxies: Vec<Proxy>,
    redis: Vec<Redis>,
    _servers: Vec<RedisServer>,
}

impl Servers {
    async fn start() -> Self {
        let (mut locks, mut proxies, mut redis) = (Vec::new(), Vec::new(), Vec::new());
        let mut servers = Vec::new();
        for _ in 0..3 {
            let server = RedisServer::start().await;
            let proxy = Proxy::start(&server).await;
            let direct = server.redis().await;
            load_scripts(&direct).await;
            let client = Client::builder().url(proxy.url()).watchdog_lease(LEASE);
            let client = client.command_timeout(SOON * 2).build().await;
            locks.push(client.expect("the server is reachable").lock(NAME));
            proxies.push(proxy);
            redis.push(direct);
            servers.push(server);
        }
        Self {
            lock: RedLock::new(locks),
            proxies,
            redis,
            _servers: servers,
        }
    }

    async fn lock(&self) -> Guard {
        self.lock.lock().lease(LEASE).await.expect("two answer")
    }
}
