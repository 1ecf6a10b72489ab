//! A slot gets another master while its locks are held, waited for and contended.

use std::time::{Duration, Instant};

use lockdog::config::ReplicaAck;
use lockdog::error::LostReason;
use lockdog::{Client, Guard, Owner, Unlocked};

use super::{LONG, SOON, ms, soon, waiter, without_polling};
use crate::crowd::Crowd;
use crate::support::cluster::slot;
use crate::support::{Cluster, Data, Direction, eventually, timed};
use crate::turn::turn;

/// The failover is planned (`CLUSTER FAILOVER`). The client checks every held lock right after the switch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_survive_a_failover_and_are_unlocked_at_the_new_master() {
    let cluster = Cluster::start(3, 1).await;
    let lease = ms(120_000);
    let client = Client::builder().url(cluster.url()).watchdog_lease(lease);
    let client = client.build().await.unwrap();
    let names = cluster.names_at(&cluster.nodes[0], "l", 2).await;
    let elsewhere = &cluster.names_at(&cluster.nodes[1], "l", 1).await[0];
    let watched = client.lock(&names[0]).lock().await.unwrap();
    let leased = client.lock(&names[1]).lock().lease(lease).await.unwrap();
    let untouched = client.lock(elsewhere).lock().await.unwrap();
    tokio::time::sleep(ms(2000)).await;
    let deadline = || Instant::now() + watched.remaining();
    let before = deadline();
    let new = cluster.fail_over(slot(&names[0])).await;
    let redis = new.redis().await;
    // The renewal comes long before a third of the lease is over, so the switch caused it.
    eventually(SOON, "it is renewed", async || {
        deadline() > before + ms(1000)
    })
    .await;
    assert!(redis.pttl(&names[0]).await > 110_000);
    assert!(watched.is_valid() && leased.is_valid() && untouched.is_valid());
    assert!(redis.exists(&names[1]).await);
    for guard in [watched, leased, untouched] {
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    }
    for name in &names {
        assert!(!redis.exists(name).await);
    }
    client.shutdown().await;
}

/// The master is killed. Guards report the missing locks as lost at once. Locks of other masters are not
/// affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_missing_on_the_new_master_are_reported_lost() {
    let cluster = Cluster::that_elects(3, 1).await;
    // The client spreads the renewals of many locks over an eighth of the lease, except for locks that may
    // be lost.
    let client = Client::builder()
        .url(cluster.url())
        .watchdog_lease(LONG * 2);
    let client = client.build().await.unwrap();
    let (master, replica) = (&cluster.nodes[0], &cluster.nodes[3]);
    let names = cluster.names_at(master, "lost", 101).await;
    let elsewhere = &cluster.names_at(&cluster.nodes[1], "l", 1).await[0];
    let kept = client.lock(elsewhere).lock().await.unwrap();
    replica.server.pause();
    // The master sends nothing more to the replica, so nothing waits in its socket.
    let redis = master.redis().await;
    let cut = redis.cut_replicas().await;
    assert_eq!(cut, 1);
    let mut guards = Vec::new();
    for name in &names[1..] {
        let lock = client.lock(name);
        guards.push(lock.lock().owner(&Owner::new()).await.unwrap());
    }
    guards.push(client.lock(&names[0]).lock().lease(LONG).await.unwrap());
    master.server.kill();
    replica.server.resume();
    let new = cluster.await_switch(slot(&names[0]), master).await;
    assert_eq!(new.id, replica.id);
    assert!(
        !new.redis().await.exists(&names[0]).await,
        "it was replicated"
    );
    soon("all guards report the loss", async {
        for guard in &guards {
            assert_eq!(guard.lost().await.reason(), LostReason::NotOurs);
        }
    })
    .await;
    assert!(kept.is_valid());
    drop(guards);
    // Another owner can acquire the lock.
    let lock = client.lock(&names[0]);
    turn(&lock).await;
    kept.unlock().await.unwrap();
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_locks_of_a_name_are_acquired_after_its_master_is_killed() {
    let cluster = Cluster::that_elects(3, 1).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let name = &cluster.names_at(&cluster.nodes[0], "l", 1).await[0];
    for turn in 0..30 {
        if turn == 10 {
            cluster.nodes[0].server.kill();
        }
        // On a busy machine a failover takes longer than on an idle one.
        let guard = client.lock(name).try_lock().wait(LONG).await.unwrap();
        guard.unwrap().unlock().await.unwrap();
    }
    client.shutdown().await;
}

/// Fifty tasks contend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contending_tasks_continue_after_a_master_is_killed() {
    let cluster = Cluster::that_elects(3, 1).await;
    let (names, crowd) = crowd(&cluster).await;
    let held = Held::take(&cluster).await;
    let old = cluster.nodes[0].clone();
    old.server.kill();
    cluster.await_successor(slot(&names[0]), &old).await;
    crowd.goes_on_within(WITHIN).await;
    held.end_kept_or_lost(&cluster).await;
    // The old master returns without data, as a replica of its successor.
    old.server.restart(Data::Lost).await;
    crowd.goes_on().await;
    crowd.end().await;
    are_free(&cluster, &names).await;
}

/// When the old master is back, the client neither trusts its replies nor writes to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contending_tasks_continue_after_a_master_freezes_and_returns() {
    let cluster = Cluster::that_elects(3, 1).await;
    let (names, crowd) = crowd(&cluster).await;
    let held = Held::take(&cluster).await;
    let old = cluster.nodes[0].clone();
    old.server.pause();
    cluster.await_successor(slot(&names[0]), &old).await;
    crowd.goes_on_within(WITHIN).await;
    old.server.resume();
    let began = Instant::now();
    eventually(SOON * 3, "the old master is a replica", async || {
        let replication: Option<String> = old.try_ask("INFO replication").await;
        replication.is_some_and(|it| it.contains("role:slave"))
    })
    .await;
    println!("two masters for {:?}", began.elapsed());
    crowd.goes_on_within(WITHIN).await;
    held.end_kept_or_lost(&cluster).await;
    crowd.end().await;
    are_free(&cluster, &names).await;
}

/// Two planned failovers (`CLUSTER FAILOVER`): to the replica and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contending_tasks_continue_through_planned_failovers() {
    let cluster = Cluster::start(3, 1).await;
    let (names, crowd) = crowd(&cluster).await;
    let held = Held::take(&cluster).await;
    for _ in 0..2 {
        cluster.fail_over(slot(&names[0])).await;
        crowd.goes_on_within(WITHIN).await;
    }
    held.end_kept_or_lost(&cluster).await;
    crowd.end().await;
    are_free(&cluster, &names).await;
}

/// The client settles an acquire without an answer at the master that granted it. The next two masters have
/// received only the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_at_the_old_master_is_repeated_at_the_next_masters() {
    let cluster = Cluster::builder(3, 1).announce_proxies().start().await;
    let old = cluster.nodes[0].clone();
    let name = &cluster.names_at(&old, "l", 1).await[0];
    let client = Client::builder()
        .url(cluster.url())
        .watchdog_lease(LONG)
        .command_timeout(ms(5000))
        .replica_ack(ReplicaAck::Off);
    let client = client.build().await.unwrap();
    turn(&client.lock(name)).await;
    let redis = old.redis().await;
    old.proxy().blackhole(Direction::ToClient);
    let lock = client.lock(name);
    let trying = tokio::spawn(async move { lock.try_lock().await });
    let mut granted = redis.hash(name).await;
    eventually(SOON, "the server granted it", async || {
        granted = redis.hash(name).await;
        !granted.is_empty()
    })
    .await;
    assert!(
        trying.await.unwrap().is_err(),
        "the client received the answer"
    );
    assert!(old.proxy().counts().blackholed > 0);
    old.proxy().heal();
    old.proxy().cut_all();
    eventually(SOON, "it is settled", async || {
        !redis.exists(name).await && format!("{client:#?}").contains("holds: 0")
    })
    .await;
    for _ in 0..2 {
        // The state of a master that did not receive the settlement in time.
        let redis = cluster.owner_of(name).await.redis().await;
        for (field, count) in &granted {
            redis.cmd(&["HSET", name, field, count]).await;
        }
        redis.cmd(&["PEXPIRE", name, "120000"]).await;
        let next = cluster.fail_over(slot(name)).await.redis().await;
        next.eventually_gone(name).await;
    }
    client.shutdown().await;
}

/// Waiters that only messages wake receive the messages of the new master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_listen_at_the_new_master() {
    let cluster = Cluster::that_elects(3, 1).await;
    // No renewal is due before the failovers are over.
    let holder = Client::builder().url(cluster.url()).watchdog_lease(LONG);
    let holder = holder.build().await.unwrap();
    let waiting = without_polling(&cluster).await;
    let old = cluster.nodes[0].clone();
    let name = &cluster.names_at(&old, "l", 1).await[0];
    for planned in [true, false] {
        println!("planned: {planned}");
        let guard = holder.lock(name).lock().await.unwrap();
        let waiter = waiter(&waiting.lock(name));
        let old = cluster.owner_of(name).await;
        let redis = old.redis().await;
        eventually(SOON, "it listens", async || {
            !redis.channels().await.is_empty()
        })
        .await;
        // The waiter's second attempt, after its subscription, is over.
        tokio::time::sleep(ms(200)).await;
        let new = if planned {
            cluster.fail_over(slot(name)).await
        } else {
            old.server.kill();
            cluster.await_switch(slot(name), &old).await
        };
        let redis = new.redis().await;
        let (_, took) = timed(eventually(SOON * 3, "it listens there", async || {
            !redis.channels().await.is_empty()
        }))
        .await;
        println!("listens after {took:?}");
        tokio::time::sleep(ms(100)).await;
        assert!(guard.is_valid() && !waiter.is_finished(), "two have it");
        guard.unlock().await.unwrap();
        let (guard, took) = timed(soon("it is woken", waiter)).await;
        println!("woken after {took:?}");
        guard.unwrap().unlock().await.unwrap();
    }
    for client in [holder, waiting] {
        client.shutdown().await;
    }
}

/// A renewal counts only if another node named this master within the last lease. The same holds with
/// sentinels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_no_other_node_confirms_extends_no_lease() {
    let cluster = Cluster::start(3, 0).await;
    let lease = ms(6000);
    let client = Client::builder().url(cluster.url()).watchdog_lease(lease);
    let client = client.build().await.unwrap();
    let [master, others @ ..] = &cluster.nodes[..] else {
        panic!("there are three");
    };
    // The master keeps serving, although it cannot reach the other nodes.
    for node in &cluster.nodes {
        node.cmd("CONFIG SET cluster-node-timeout 600000").await;
    }
    let name = &cluster.names_at(master, "l", 1).await[0];
    let guard = client.lock(name).lock().await.unwrap();
    tokio::time::sleep(lease * 2).await;
    assert!(guard.is_valid(), "it is renewed");
    for other in others {
        other.server.pause();
    }
    let began = Instant::now();
    let lost = soon("the guard reports the loss", guard.lost()).await;
    assert_eq!(lost.reason(), LostReason::Deadline);
    println!("lost after {:?}", began.elapsed());
    assert!(began.elapsed() >= lease / 2, "{:?}", began.elapsed());
    for other in others {
        other.server.resume();
    }
    client.shutdown().await;
}

/// Contending tasks at a lock of the master that fails, and at a lock of another master.
async fn crowd(cluster: &Cluster) -> (Vec<String>, Crowd) {
    let mut names = cluster.names_at(&cluster.nodes[0], "crowd", 1).await;
    names.extend(cluster.names_at(&cluster.nodes[1], "crowd", 1).await);
    let locks: Vec<&str> = names.iter().map(String::as_str).collect();
    let crowd = Crowd::start(&cluster.url(), &locks).await;
    (names, crowd)
}

async fn are_free(cluster: &Cluster, names: &[String]) {
    for name in names {
        let redis = cluster.owner_of(name).await.redis().await;
        eventually(SOON, "the lock is free", async || !redis.exists(name).await).await;
    }
}

/// Locks of the first master that are held during its failure.
struct Held {
    client: Client,
    guards: Vec<Guard>,
}

impl Held {
    async fn take(cluster: &Cluster) -> Self {
        let client = Client::connect(cluster.url()).await.unwrap();
        let mut guards = Vec::new();
        for name in cluster.names_at(&cluster.nodes[0], "held", 20).await {
            let lock = client.lock(&name);
            guards.push(lock.lock().owner(&Owner::new()).await.unwrap());
        }
        Self { client, guards }
    }

    /// Each guard either has its lock on the new master or reports the loss by its deadline.
    async fn end_kept_or_lost(self, cluster: &Cluster) {
        // The client has checked every hold.
        eventually(SOON, "each hold was checked", async || {
            let renewed = |guard: &Guard| !guard.is_valid() || guard.remaining() > ms(20_000);
            self.guards.iter().all(renewed)
        })
        .await;
        let mut lost = 0;
        for guard in self.guards {
            let name = guard.name().to_owned();
            let redis = cluster.owner_of(&name).await.redis().await;
            eventually(
                SOON,
                "it is there, or its guard says that it is lost",
                async || !guard.is_valid() || redis.exists(&name).await,
            )
            .await;
            if !guard.is_valid() {
                lost += 1;
                continue;
            }
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
            assert!(!redis.exists(&name).await, "{name} is still there");
        }
        println!("{lost} of 20 locks were lost");
        self.client.shutdown().await;
    }
}

/// How soon waiters get the lock after the switch.
const WITHIN: Duration = Duration::from_secs(20);
