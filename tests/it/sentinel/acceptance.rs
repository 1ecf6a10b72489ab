//! What Redisson's own failover tests check, in less time: only expected errors during the failover,
//! and success at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockdog::{Client, Error, Lock, Owner, Result, Unlocked};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::{SOON, ms};
use crate::support::{RedisServer, Sentinels, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn periodic_locks_recover_from_a_killed_master_and_a_new_replica() {
    let all = Sentinels::start().await;
    let client = Client::connect(all.url()).await.unwrap();
    let timers = Timers::start(&client, None);
    sleep(BEFORE).await;
    let old = &all.servers[0];
    old.kill();
    let master = all.await_switch_from(old.port()).await;
    let switched = Instant::now();
    sleep(BEFORE).await;

    let soon = ["CONFIG", "SET", "repl-diskless-sync-delay", "0"];
    master.redis().await.cmd(&soon).await;
    let replica = RedisServer::start().await;
    let redis = replica.redis().await;
    let port = master.port().to_string();
    redis.cmd(&["REPLICAOF", "127.0.0.1", &port]).await;
    let held = client.lock("held").lock().owner(&Owner::new()).await;
    let held = held.unwrap();
    eventually(SOON, "the new replica has the lock", async || {
        redis.exists("held").await
    })
    .await;
    sleep(BEFORE).await;
    timers.end(switched).await;
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn periodic_subscriptions_recover_from_a_killed_master() {
    let all = Sentinels::start().await;
    // Only a message wakes a waiter during the test.
    let client = Client::builder().url(all.url()).poll_cap(SOON * 10);
    let client = client.build().await.unwrap();
    let holder = Client::connect(all.url()).await.unwrap();
    let held = holder.lock("busy").lock().lease(SOON * 10).await.unwrap();
    let timers = Timers::start(&client, Some(&client.lock("busy")));
    let old = &all.servers[0];
    let redis = old.redis().await;
    sleep(BEFORE).await;
    eventually(SOON, "they subscribe", async || {
        let subscribed = redis.commandstats().await.get("subscribe").copied();
        subscribed >= Some(10)
    })
    .await;
    old.kill();
    let master = all.await_switch_from(old.port()).await;
    let switched = Instant::now();
    sleep(BEFORE).await;
    timers.end(switched).await;

    let redis = master.redis().await;
    redis.assert_clean().await;
    let request = client.lock("busy").lock();
    let waiting = tokio::spawn(request.into_future());
    eventually(SOON, "the waiter listens at the new master", async || {
        redis.channels().await == ["redisson_lock__channel:{busy}"]
    })
    .await;
    sleep(ms(200)).await;
    assert!(!waiting.is_finished());
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    let got = timeout(SOON, waiting).await;
    let got = got.expect("the message woke it").unwrap().unwrap();
    got.unlock().await.unwrap();
    client.shutdown().await;
    holder.shutdown().await;
}

/// Five tasks, each twenty times a second, on a hundred names.
struct Timers {
    over: Arc<AtomicBool>,
    turns: Arc<[AtomicU64; TIMERS]>,
    tasks: JoinSet<Vec<(Instant, Result<()>)>>,
}

impl Timers {
    /// Between a lock and the next they wait for `busy` without success, if it is given.
    fn start(client: &Client, busy: Option<&Lock>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let turns: Arc<[AtomicU64; TIMERS]> = Arc::default();
        let mut tasks = JoinSet::new();
        for timer in 0..TIMERS {
            let (client, busy, over) = (client.clone(), busy.cloned(), over.clone());
            let turns = turns.clone();
            tasks.spawn(async move {
                let mut ticks = interval(ms(50));
                ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
                let mut outcomes = Vec::new();
                for round in 0_u64.. {
                    ticks.tick().await;
                    let name = format!("lock {}", (round * 37 + timer as u64 * 53) % 100);
                    let turn = async {
                        lock_and_unlock(&client, &name).await?;
                        match &busy {
                            Some(busy) => wait_in_vain(busy).await,
                            None => Ok(()),
                        }
                    };
                    let outcome = timeout(SOON, turn).await.expect("no call hangs");
                    outcomes.push((Instant::now(), outcome));
                    let is_well = outcomes.last().is_some_and(|(_, last)| last.is_ok());
                    turns[timer].fetch_add(1, Ordering::SeqCst);
                    // A busy machine may be too slow for a single turn.
                    if is_well && over.load(Ordering::SeqCst) {
                        break;
                    }
                }
                outcomes
            });
        }
        Self { over, turns, tasks }
    }

    /// Checks that each task had only errors that a failover explains, and succeeded again long ago.
    async fn end(mut self, switched: Instant) {
        let turns = || self.turns.iter().map(|it| it.load(Ordering::SeqCst));
        let before: Vec<u64> = turns().collect();
        eventually(SOON, "each continues", async || {
            turns().zip(&before).all(|(now, before)| now >= before + 10)
        })
        .await;
        self.over.store(true, Ordering::SeqCst);
        while let Some(outcomes) = timeout(SOON, self.tasks.join_next())
            .await
            .expect("each has a turn without an error")
        {
            let outcomes = outcomes.unwrap();
            let failed = outcomes
                .iter()
                .filter(|(_, outcome)| outcome.is_err())
                .count();
            let since = outcomes.iter().filter(|(at, _)| *at > switched).count();
            println!(
                "{} turns, {failed} failed, {since} since the switch",
                outcomes.len()
            );
            assert!(since >= 10, "only {since} turns since the switch");
            let mut well_since = None;
            for (at, outcome) in outcomes {
                let Err(error) = outcome else {
                    well_since = well_since.or(Some(at));
                    continue;
                };
                well_since = None;
                let is_expected = error.is_retriable()
                    || error.is_lost()
                    || matches!(error, Error::UnlockUnconfirmed(_));
                assert!(is_expected, "{error:?}");
            }
            let well_since = well_since.expect("its last turn had no error");
            let after = well_since.saturating_duration_since(switched);
            assert!(
                after < RECOVERED_WITHIN,
                "without errors only {after:?} after the switch"
            );
        }
    }
}

async fn lock_and_unlock(client: &Client, name: &str) -> Result<()> {
    let lock = client.lock(name);
    let guard = lock.lock().lease(Duration::from_secs(10)).await?;
    guard.unlock().await?;
    Ok(())
}

async fn wait_in_vain(busy: &Lock) -> Result<()> {
    match busy.try_lock().wait(ms(20)).await {
        Ok(Some(_)) => panic!("two have it"),
        Ok(None) => Ok(()),
        // On a busy machine the first answer may come later than that.
        Err(error) if error.is_timeout() => Ok(()),
        Err(error) => Err(error),
    }
}

const TIMERS: usize = 5;
const BEFORE: Duration = Duration::from_secs(2);
/// A command timeout, for what was sent to the killed master, and some time for a busy machine.
const RECOVERED_WITHIN: Duration = Duration::from_secs(40);
