//! Answers that come late, or never, and connections that break in the middle of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockdog::Owner;

use super::crowd::Crowd;
use super::fixture::{
    Fixture, assert_busy, await_states, give_back, red_lock, states_as_letters, take,
};
use super::story::Watched;
use super::{LEASE, NAME, is_acquire, is_settlement};
use crate::red_lock::{SOON, lock_of, ms};
use crate::support::{Action, Direction, Gate, Proxy, eventually, named, timed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_takes_five_seconds_slows_no_call() {
    let test = Fixture::proxied(5).await;
    let lock = test.lock().await;
    let slow = Duration::from_secs(5);
    // New clients do not wait for the slow instance either, not even the time limit of an instance,
    // which is half a second.
    let mut fastest = slow;
    // On a busy machine some of them may take longer.
    for _ in 0..10 {
        if fastest < ms(500) {
            break;
        }
        let fresh = long(&test).await;
        test.proxies[0].delay(Direction::ToClient, slow);
        let request = fresh.try_lock().wait(SOON).lease(LONG);
        let (guard, waited) = timed(request.into_future()).await;
        fastest = fastest.min(waited);
        give_back(guard.unwrap().expect("it is free")).await;
        test.proxies[0].heal();
    }
    println!("the fastest took {fastest:?}");
    assert!(fastest < ms(500), "{fastest:?}");
    test.proxies[0].delay(Direction::ToClient, slow);
    let own = Owner::new();
    let mut pairs = Duration::MAX;
    // Again if a busy machine took longer.
    for _ in 0..3 {
        if pairs < slow {
            break;
        }
        let ((), took) = timed(async {
            for _ in 0..10 {
                let guard = lock.try_lock().wait(SOON).owner(&own).await.unwrap();
                give_back(guard.expect("it is free")).await;
            }
        })
        .await;
        println!("ten pairs took {took:?}");
        pairs = pairs.min(took);
    }
    assert!(pairs < slow, "{pairs:?}");
    assert!(test.proxies[0].counts().delayed > 0);
    let guard = take(&lock).await;
    let yours = test.direct_lock().await;
    let crowd = Crowd::start(&[yours]);
    let mut watched = Watched::new(guard);
    watched.stays_valid(LEASE * 3 / 2).await;
    await_states(watched.guard(), &test, "UAAAA").await;
    assert_eq!(
        crowd.visits(),
        0,
        "another owner acquired the lock while it was held"
    );
    give_back(watched.into_guard()).await;
    crowd.await_visits(5).await;
    crowd.end().await;
    test.proxies[0].heal();
    // The dropped clients may not have released their holds on the slow server.
    test.assert_nothing_stays_of(LONG).await;
}

/// The round trip of the third-fastest instance, not that of a slower one and not the sum of three.
#[tokio::test]
async fn an_acquire_on_five_takes_the_round_trip_of_the_third_fastest() {
    let test = Fixture::proxied(5).await;
    let lock = long(&test).await;
    warm_up(&test, &lock).await;
    let delays = [ms(60), ms(120), ms(180)];
    let (mut fastest, mut unawaited) = (LONG, 0);
    // On a busy machine some calls may take longer, or the client may consider an instance silent.
    for _ in 0..5 {
        for (proxy, delay) in test.proxies.iter().zip(delays) {
            proxy.delay(Direction::ToClient, delay);
        }
        // A call that waited for these would wait for their time limit and report them as late.
        let gates = [Gate::new(), Gate::new()];
        for (proxy, gate) in test.proxies[3..].iter().zip(&gates) {
            proxy.on(is_acquire, Action::HoldReply(gate.clone()));
        }
        let request = lock.try_lock().wait(SOON).lease(LONG);
        let (guard, took) = timed(request.into_future()).await;
        let guard = guard.unwrap().expect("it is free");
        let found = states_as_letters(&guard.instances(), &test);
        println!("{found} after {took:?}");
        assert!(took >= delays[2], "two answers are no quorum");
        unawaited += usize::from(found == "AAA--");
        fastest = fastest.min(took);
        gates.iter().for_each(Gate::open);
        test.proxies.iter().for_each(|proxy| proxy.heal());
        give_back(guard).await;
        test.await_taken(0).await;
    }
    assert!(unawaited > 0, "the fourth answer was waited for");
    let sum: Duration = delays.iter().sum();
    assert!(fastest < sum, "{fastest:?}");
    test.assert_nothing_stays().await;
}

/// The reply is lost. The connection still works, so the client releases at once.
#[tokio::test]
async fn a_grant_whose_reply_is_lost_is_released_long_before_its_lease_ends() {
    let test = Fixture::proxied(3).await;
    let lock = long(&test).await;
    warm_up(&test, &lock).await;
    let gate = Gate::new();
    let held = test.proxies[0].on(is_acquire, Action::HoldReply(gate.clone()));
    let taken = lock.try_lock().wait(SOON).lease(LONG).await;
    let guard = taken.unwrap().expect("it is free");
    held.wait_hits(1).await;
    assert!(test.is_taken(0).await, "it was granted there");
    // The client gives the command up and undoes its effect after the answer.
    await_states(&guard, &test, "UAA").await;
    give_back(guard).await;
    let redis = test.servers[0].redis().await;
    gate.open();
    let since = Instant::now();
    eventually(SOON, "it is released", async || !redis.exists(NAME).await).await;
    assert!(since.elapsed() < LONG / 2, "{:?}", since.elapsed());
    test.assert_nothing_stays().await;
}

/// The reply is lost, and the connection delivers no further ones.
#[tokio::test]
async fn a_grant_on_a_dead_connection_is_released_on_another() {
    let test = Fixture::proxied(3).await;
    let lock = long(&test).await;
    warm_up(&test, &lock).await;
    let dropped = test.proxies[0].on(is_acquire, Action::DropReply);
    let taken = lock.try_lock().wait(SOON).lease(LONG).await;
    let guard = taken.unwrap().expect("it is free");
    dropped.wait_hits(1).await;
    assert!(test.is_taken(0).await, "it was granted there");
    give_back(guard).await;
    let redis = test.servers[0].redis().await;
    let since = Instant::now();
    eventually(SOON, "it is released", async || !redis.exists(NAME).await).await;
    println!("given back after {:?}", since.elapsed());
    assert!(since.elapsed() < LONG / 2);
    let guard = take(&lock).await;
    eventually(SOON, "it has all", async || guard.margin() == 1).await;
    give_back(guard).await;
    test.assert_nothing_stays().await;
}

/// It arrives after its lock was released and its connection closed.
#[tokio::test]
async fn an_acquire_that_arrives_after_the_unlock_is_an_orphan_for_one_lease() {
    let test = Fixture::proxied(3).await;
    // Long enough for a busy machine to see the orphan.
    let lease = LEASE * 4;
    let mine = red_lock(&test.clients().await).max_lease(lease);
    let yours = test.direct_lock().await.max_lease(lease);
    warm_up(&test, &mine).await;
    let gate = Gate::new();
    test.proxies[0].on(is_acquire, Action::HoldRequest(gate.clone()));
    let before = test.proxies[0].count(is_acquire);
    let overtakes = Gate::new();
    test.proxies[0].on(is_settlement, Action::HoldReply(overtakes.clone()));
    eventually(SOON, "it was asked", async || {
        // On a busy machine the client may consider the instance silent.
        let taken = mine.try_lock().wait(SOON).lease(lease).await;
        let guard = taken.unwrap().expect("it is free");
        tokio::time::sleep(ms(20)).await;
        give_back(guard).await;
        test.proxies[0].count(is_acquire) > before
    })
    .await;
    gate.wait_reached().await;
    assert!(!test.is_taken(0).await, "it did not arrive");
    // The release uses another connection, because this one is closed. If it ran after the acquire it
    // would delete the orphan.
    overtakes.wait_reached().await;
    overtakes.open();
    let next = take(&yours).await;
    eventually(SOON, "it has all", async || next.margin() == 1).await;
    give_back(next).await;
    test.await_taken(0).await;
    gate.let_pass().await;
    test.await_taken(1).await;
    assert!(test.is_taken(0).await, "it arrived");
    // No client counts the orphan as a hold, and other clients can acquire the lock.
    let next = take(&yours).await;
    eventually(SOON, "two of three are enough", async || {
        // On a busy machine the orphan may be gone by then.
        ["HAA", "AAA"].contains(&&*states_as_letters(&next.instances(), &test))
    })
    .await;
    assert_busy(&mine).await;
    let mut watched = Watched::new(next);
    watched.stays_valid(lease).await;
    eventually(SOON, "it has all", async || watched.guard().margin() == 1).await;
    give_back(watched.into_guard()).await;
    test.assert_nothing_stays_of(lease).await;
}

/// Delays of 0 to 2 times the limit for one instance; connections are reset in the middle of an
/// answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delays_near_the_instance_timeout_and_broken_answers_keep_exclusion() {
    let test = Fixture::proxied(5).await;
    let crowd = Crowd::start(&[test.lock().await, test.lock().await]);
    crowd.await_visits(10).await;
    let patience = LEASE / 20;
    let before = crowd.visits();
    for step in 0.. {
        if step >= 24 && (crowd.visits() > before || step >= 240) {
            break;
        }
        let step: u32 = step;
        for (member, proxy) in (0_u32..).zip(&test.proxies) {
            // Two instances at a time are slow, by up to twice the time limit of an instance.
            let most = if (step / 4 + member) % 5 < 2 { 2 } else { 0 };
            let part = (step * 3 + member * 5) % 9;
            let direction = if (step + member).is_multiple_of(2) {
                Direction::ToClient
            } else {
                Direction::ToServer
            };
            proxy.delay(direction, patience * part * most / 8 + ms(1));
        }
        let broken = &test.proxies[step as usize % 5];
        broken.cut_after_bytes(Direction::ToClient, 7);
        tokio::time::sleep(patience).await;
        broken.reset_all();
        for proxy in &test.proxies {
            proxy.heal();
        }
    }
    let during = crowd.visits() - before;
    for proxy in &test.proxies {
        proxy.heal();
        let counts = proxy.counts();
        assert!(counts.delayed > 0 && counts.reset > 0, "{counts:?}");
    }
    let cut = test
        .proxies
        .iter()
        .map(|proxy| proxy.counts().cut_after_bytes);
    let cut: u64 = cut.sum();
    assert!(cut > 5, "{cut} answers were cut");
    println!("{during} visits with {cut} answers cut");
    assert!(during > 0, "no owner acquired the lock");
    crowd.await_visits(20).await;
    crowd.end().await;
    test.assert_nothing_stays().await;
}

/// As with a firewall that dropped its connection state: open connections carry nothing, and new ones
/// work.
#[tokio::test]
async fn connections_that_fall_silent_on_a_working_network_lose_no_lock() {
    let (lease, test) = (ms(8_000), Fixture::proxied(3).await);
    let settings =
        |builder: lockdog::ClientBuilder| builder.watchdog_lease(lease).command_timeout(lease);
    let clients = test.clients_with(settings).await;
    let guard = take(&red_lock(&clients).max_lease(lease)).await;
    test.await_taken(3).await;
    // The next scripts are the first extensions, on the connections of the clients' own threads.
    let silent = |proxy: &Proxy| proxy.on(named("EVALSHA"), Action::DropReply);
    let rules: Vec<_> = test.proxies.iter().map(silent).collect();
    for rule in &rules {
        rule.wait_hits(1).await;
    }
    let until = Instant::now() + lease * 2;
    while Instant::now() < until {
        assert!(guard.is_valid(), "{:?}", guard.instances());
        tokio::time::sleep(ms(5)).await;
    }
    give_back(guard).await;
    test.assert_nothing_stays_of(lease).await;
}

/// The other callers get timeouts from every server repeatedly. No client sends a command to a server
/// that has not answered its probe. An extension waits for the probe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_leases_do_not_disturb_a_long_lease() {
    let (lease, test) = (ms(5_000), Fixture::proxied(3).await);
    let settings = |builder: lockdog::ClientBuilder| builder.watchdog_lease(lease);
    let clients = test.clients_with(settings).await;
    let guard = take(&red_lock(&clients).max_lease(lease)).await;
    // The connections that extend it are open before they are slow.
    let renewed = |proxy: &Proxy| proxy.count(named("EVALSHA")) >= 2;
    eventually(SOON, "it is extended", async || {
        test.proxies.iter().all(renewed)
    })
    .await;
    for proxy in &test.proxies {
        // Longer than a lease of 200 ms gives an instance, and far less than this one does.
        proxy.delay(Direction::ToClient, ms(60));
    }
    let mut hasty = tokio::task::JoinSet::new();
    let unanswered = Arc::new(AtomicU64::new(0));
    for n in 0..3 {
        let lock = lock_of(&clients, &format!("other-{n}"));
        let unanswered = unanswered.clone();
        hasty.spawn(async move {
            loop {
                let taken = lock.try_lock().lease(ms(200)).wait(ms(1_000)).await;
                let is_taken = matches!(taken, Ok(Some(_)));
                unanswered.fetch_add(u64::from(!is_taken), Ordering::Relaxed);
            }
        });
    }
    let until = Instant::now() + lease * 3;
    while Instant::now() < until {
        assert!(guard.is_valid(), "{:?}", guard.instances());
        tokio::time::sleep(ms(5)).await;
    }
    assert!(hasty.try_join_next().is_none());
    hasty.shutdown().await;
    let unanswered = unanswered.load(Ordering::Relaxed);
    assert!(
        unanswered >= 10,
        "only {unanswered} calls were not answered in time"
    );
    give_back(guard).await;
}

/// Every server knows the script, so that a rule on it meets its first sending.
async fn warm_up(test: &Fixture, lock: &lockdog::RedLock) {
    let guard = take(lock).await;
    test.await_taken(test.servers.len()).await;
    give_back(guard).await;
    test.await_taken(0).await;
}

async fn long(test: &Fixture) -> lockdog::RedLock {
    red_lock(&test.clients().await).max_lease(LONG)
}

/// Far longer than anything takes.
const LONG: Duration = Duration::from_secs(30);
