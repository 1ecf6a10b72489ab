//! Another server becomes the master while locks are held, waited for and contended.

use std::time::{Duration, Instant};

use lockdog::config::ReplicaAck;
use lockdog::error::LostReason;
use lockdog::{Client, Error, Owner, Unlocked};

use super::{SOON, ms};
use crate::crowd::Crowd;
use crate::support::sentinels::{MASTER, is_master};
use crate::support::{Direction, Proxy, RedisServer, Sentinels, eventually};
use crate::turn::turn;

/// The client checks every held lock at once after the switch, and renews those that are still
/// there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_survive_a_failover_and_are_unlocked_at_the_new_master() {
    let all = Sentinels::start().await;
    // The test is shorter than a third of this lease, so no regular renewal comes.
    let client = Client::builder().url(all.url()).watchdog_lease(SOON * 10);
    let client = client.build().await.unwrap();
    let watched = client.lock("watched").lock().await.unwrap();
    let before = Instant::now() + watched.remaining();
    let leased = client.lock("leased").lock().lease(SOON * 4).await.unwrap();
    let master = all.failover().await;
    let redis = master.redis().await;
    // The renewal comes long before a third of the lease, so the switch caused it.
    eventually(SOON, "it is renewed", async || {
        let deadline = Instant::now() + watched.remaining();
        deadline > before + ms(100) && redis.exists("watched").await
    })
    .await;
    assert!(watched.is_valid() && leased.is_valid());
    assert!(redis.exists("leased").await);
    assert!(matches!(
        watched.unlock().await.unwrap(),
        Unlocked::Released
    ));
    assert!(matches!(leased.unlock().await.unwrap(), Unlocked::Released));
    assert!(!redis.exists("watched").await && !redis.exists("leased").await);
    client.shutdown().await;
}

/// With a lease and under the watchdog, long before their deadlines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_missing_on_the_new_master_are_reported_lost() {
    let all = Sentinels::start().await;
    // Renewals of many holds are spread over an eighth of the lease, but not after a switch.
    let client = Client::builder().url(all.url()).watchdog_lease(SOON * 10);
    let client = client.build().await.unwrap();
    for replica in &all.servers[1..] {
        replica.pause();
    }
    // The replicas are disconnected, so that no further write waits in their sockets.
    let master = all.servers[0].redis().await;
    let cut = master.cut_replicas().await;
    assert_eq!(cut, 2);
    let mut guards = Vec::new();
    for number in 0..300 {
        let lock = client.lock(format!("watched {number}"));
        guards.push(lock.lock().owner(&Owner::new()).await.unwrap());
    }
    guards.push(client.lock("leased").lock().lease(SOON * 4).await.unwrap());
    all.servers[0].kill();
    for replica in &all.servers[1..] {
        replica.resume();
    }
    let master = all.await_switch_from(all.servers[0].port()).await;
    assert!(
        !master.redis().await.exists("leased").await,
        "it was replicated"
    );
    let notified = async {
        for guard in &guards {
            assert_eq!(guard.lost().await.reason(), LostReason::NotOurs);
        }
    };
    let notified = tokio::time::timeout(SOON, notified).await;
    notified.expect("the holders learn of the loss well within a third of their lease");
    drop(guards);
    // Another owner can acquire the lock.
    turn(&client.lock("leased")).await;
    client.shutdown().await;
}

/// Locks with a least time: left before the failover, left by a command that no replica got, unlocked
/// after the failover, and lost in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_with_a_least_time_stay_for_the_rest_of_it_through_a_failover() {
    let all = Sentinels::start().await;
    // The lease is far longer than the least time, so the TTL shows which of them applies.
    let client = Client::builder().url(all.url()).watchdog_lease(LEAST * 2);
    let client = client.build().await.unwrap();
    let take = async |name| {
        let request = client.lock(name).lock().hold_at_least(LEAST);
        request.await.unwrap()
    };
    let keeps = |unlocked| {
        assert!(
            matches!(unlocked, Ok(Unlocked::Kept { .. })),
            "{unlocked:?}"
        )
    };
    let stays_for_the_rest = async |server: &RedisServer, names: &[&str]| {
        let redis = server.redis().await;
        for name in names {
            eventually(SOON, "it ends after the rest", async || {
                (1..=LEAST.as_millis() as i64 + 1).contains(&redis.pttl(name).await)
            })
            .await;
        }
    };
    let (early, late, held) = (take("early").await, take("late").await, take("held").await);
    keeps(early.unlock().await);
    for replica in &all.servers[1..] {
        stays_for_the_rest(replica, &["early"]).await;
        let redis = replica.redis().await;
        assert!(redis.exists("late").await && redis.exists("held").await);
        replica.pause();
    }
    // The replicas are disconnected, so that no further write waits in their sockets.
    let old = &all.servers[0];
    let cut = old.redis().await.cut_replicas().await;
    assert_eq!(cut, 2);
    keeps(late.unlock().await);
    let lost = take("lost").await;
    old.kill();
    for replica in &all.servers[1..] {
        replica.resume();
    }
    let master = all.await_switch_from(old.port()).await;
    stays_for_the_rest(master, &["early", "late"]).await;
    keeps(held.unlock().await);
    stays_for_the_rest(master, &["held"]).await;
    let unlocked = lost.unlock().await;
    assert!(matches!(unlocked, Err(Error::Lost(_))), "{unlocked:?}");
    let other = Client::connect(all.url()).await.unwrap();
    for name in ["early", "late", "held"] {
        let tried = other.lock(name).try_lock().await.unwrap();
        assert!(tried.is_none(), "{name}");
    }
    turn(&other.lock("lost")).await;
    other.shutdown().await;
    client.shutdown().await;
}

/// With 50 contending tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contending_tasks_continue_after_the_master_is_killed() {
    let all = Sentinels::start().await;
    let crowd = Crowd::start(&all.url(), &["l"]).await;
    let old = &all.servers[0];
    old.kill();
    all.await_switch_from(old.port()).await;
    crowd.goes_on_within(WITHIN).await;
    crowd.end().await;
    is_free(&all).await;
}

/// When the old master is back, the client neither trusts it nor writes to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contending_tasks_continue_after_the_master_freezes_and_returns() {
    let all = Sentinels::start().await;
    let crowd = Crowd::start(&all.url(), &["l"]).await;
    let old = &all.servers[0];
    let before = scripts_run_at(old).await;
    old.pause();
    all.await_switch_from(old.port()).await;
    crowd.goes_on_within(WITHIN).await;
    old.resume();
    let began = Instant::now();
    // The server reads the data in its open sockets before a new connection.
    let late = scripts_run_at(old).await;
    println!("{} scripts run late and just before", late - before);
    eventually(SOON * 4, "the old master is a replica", async || {
        is_master(old).await == Some(false)
    })
    .await;
    println!("two masters for {:?}", began.elapsed());
    let more = ms(2000).saturating_sub(began.elapsed());
    tokio::time::sleep(more).await;
    crowd.goes_on_within(WITHIN).await;
    let sent = scripts_run_at(old).await - late;
    assert_eq!(sent, 0, "scripts were sent to it after the switch");
    crowd.end().await;
    is_free(&all).await;
}

/// Invariant 15. The resumed old master first reads and grants the commands that were sent before the
/// freeze. A client that does not know of the failover queries the sentinels before the grant counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_a_returned_old_master_does_not_count() {
    let all = Sentinels::start().await;
    let mut proxies = Vec::new();
    for sentinel in &all.sentinels {
        proxies.push(Proxy::to_port(sentinel.port()).await);
    }
    let hosts = proxies.iter().map(|it| format!("127.0.0.1:{}", it.port()));
    let hosts: Vec<_> = hosts.collect();
    let url = format!("redis+sentinel://{}/{MASTER}", hosts.join(","));
    let ack = ReplicaAck::best_effort().timeout(SOON);
    let client = Client::builder().url(url).watchdog_lease(SOON * 4);
    let client = client.command_timeout(SOON).replica_ack(ack);
    let client = client.build().await.unwrap();
    let lock = client.lock("l");
    turn(&lock).await;
    let old = &all.servers[0];
    let before = scripts_run_at(old).await;
    for proxy in &proxies {
        proxy.blackhole(Direction::ToClient);
    }
    old.pause();
    let waiting = tokio::spawn(async move { lock.lock().await });
    let new = all.await_switch_from(old.port()).await;
    old.resume();
    eventually(SOON, "the old master grants", async || {
        scripts_run_at(old).await > before
    })
    .await;
    tokio::time::sleep(ms(500)).await;
    assert!(!waiting.is_finished(), "it was granted");
    for proxy in &proxies {
        proxy.heal();
    }
    let guard = waiting.await.unwrap().unwrap();
    assert!(new.redis().await.exists("l").await);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    client.shutdown().await;
}

/// By `SENTINEL FAILOVER`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contending_tasks_continue_through_a_planned_failover() {
    let all = Sentinels::start().await;
    let crowd = Crowd::start(&all.url(), &["l"]).await;
    all.failover().await;
    crowd.goes_on_within(WITHIN).await;
    crowd.end().await;
    is_free(&all).await;
}

/// A renewal counts only if a sentinel named this master within the last lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_sentinels_a_lock_ends_at_its_deadline() {
    let all = Sentinels::start().await;
    // On a busy machine a renewal may be seconds late.
    let lease = ms(6000);
    let client = Client::builder().url(all.url()).watchdog_lease(lease);
    let client = client.build().await.unwrap();
    let guard = client.lock("l").lock().await.unwrap();
    tokio::time::sleep(lease * 3 / 2).await;
    assert!(guard.is_valid(), "it is renewed");
    let began = Instant::now();
    let deadline = began + guard.remaining();
    for sentinel in &all.sentinels {
        sentinel.kill();
    }
    let lost = tokio::time::timeout(SOON, guard.lost()).await;
    let lost = lost.expect("it is notified of the loss");
    assert_eq!(lost.reason(), LostReason::Deadline);
    // Renewals continue for at most a lease after the sentinels are gone, and the last renewal adds
    // another lease.
    println!("lost after {:?}", began.elapsed());
    assert!(Instant::now() + ms(10) >= deadline, "{:?}", began.elapsed());
    assert!(all.servers[0].is_running());
    client.shutdown().await;
}

/// Waits until the crowd's lock is free.
async fn is_free(all: &Sentinels) {
    let redis = all.master().await.redis().await;
    eventually(SOON, "the lock is free", async || !redis.exists("l").await).await;
}

/// The number of scripts that clients ran on this server. Replication does not run scripts.
async fn scripts_run_at(server: &RedisServer) -> u64 {
    let stats = server.redis().await.commandstats().await;
    let run = ["eval", "evalsha"].map(|name| stats.get(name).copied().unwrap_or(0));
    run.iter().sum()
}

/// No test lasts for so long.
const LEAST: Duration = Duration::from_secs(300);
/// The time limit for waiters after the switch.
const WITHIN: Duration = Duration::from_secs(20);

/// The master may have been replaced, and the new one may not have the longer lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reentry_does_not_lengthen_a_hold_on_a_master_without_recent_confirmation() {
    let all = Sentinels::start().await;
    let client = Client::connect(all.url()).await.unwrap();
    let lock = client.lock("l");
    // A busy machine needs some seconds for what comes after each of these times.
    let first = Duration::from_secs(26);
    let guard = lock.lock().lease(first).await.unwrap();
    for sentinel in &all.sentinels {
        sentinel.pause();
    }
    let left = Duration::from_secs(11);
    eventually(SOON, "less of the lease is left", async || {
        guard.remaining() < left
    })
    .await;
    let longer = Duration::from_secs(13);
    let nested = lock.try_lock().lease(longer).await;
    let error = nested.expect_err("no sentinel has named the master for longer than the lease");
    assert!(error.is_retriable(), "{error:?}");
    assert!(guard.remaining() < left && guard.is_valid());
    // A lease that ends before the hold's own needs no command.
    let short = Duration::from_secs(1);
    let nested = lock.try_lock().lease(short).await.unwrap().unwrap();
    assert!(guard.remaining() < left);
    nested.unlock().await.unwrap();
    for sentinel in &all.sentinels {
        sentinel.resume();
    }
    eventually(SOON, "the sentinels name it again", async || {
        lock.try_lock()
            .lease(longer)
            .await
            .is_ok_and(|nested| nested.is_some())
    })
    .await;
    drop(guard);
    client.shutdown().await;
}
