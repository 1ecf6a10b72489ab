//! Elections on a cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lockdog::Error;
use lockdog::error::LostReason;
use tokio::task::JoinSet;

use super::nemesis::{LEASE, Run, contend};
use super::*;
use crate::support::cluster::{names, slot};
use crate::support::{Cluster, Dice};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_its_slot_has_an_election() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    for master in &cluster.nodes[..3] {
        let name = &cluster.names_at(master, "leader", 1).await[0];
        let lead = client.election(name).campaign("a").await.unwrap();
        let mut leaders = another.election(name).observe();
        let first = leaders.next().await.unwrap().expect("it leads");
        assert_eq!(first.value.as_deref(), Some("a"));
        let watching = tokio::spawn(async move { leaders.next().await });
        let waiting = campaigner(&another.election(name), "b");
        let redis = master.redis().await;
        let queue = format!("redisson_lock_queue:{{{name}}}");
        eventually(SOON, "both listen", async || {
            let entries: Vec<String> = redis.ask(&["LRANGE", &queue, "0", "-1"]).await;
            let [entry] = &entries[..] else {
                return false;
            };
            let channels = redis.channels().await;
            let news = format!("lockdog_leader:{{{name}}}");
            channels.contains(&news) && channels.iter().any(|it| it.ends_with(entry))
        })
        .await;
        tokio::time::sleep(ms(100)).await;
        lead.resign().await.unwrap();
        let next = in_time(waiting).await;
        assert!(next.term() > first.term.unwrap());
        // A message notifies the observer of the end, or of the next leader.
        let seen = in_time(watching).await.unwrap();
        assert!(seen.is_none_or(|leader| leader.holder.field() != first.holder.field()));
        next.resign().await.unwrap();
        assert!(!redis.exists(&queue).await && !redis.exists(name).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_whose_keys_are_in_several_slots_is_refused() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    for name in ["{}leader", "lea}der", "leader{", "}{"] {
        let election = client.election(name);
        for error in [
            election.campaign("a").await.map(drop).unwrap_err(),
            election.leader().await.map(drop).unwrap_err(),
            election.observe().next().await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
        }
    }
    for node in &cluster.nodes {
        assert!(node.redis().await.keys().await.is_empty());
    }
}

/// LE1 and LE4: the nodes answer with TRYAGAIN while the keys of one election are on both. The leader
/// resigns meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_leads_a_later_term_after_its_slot_moved_key_by_key() {
    const SLOT: u16 = 42;
    let cluster = Cluster::start(3, 0).await;
    let to = &cluster.nodes[2];
    let name = &names("leader", 1, |it| it == SLOT)[0];
    let connect = async || {
        let client = Client::builder().url(cluster.url()).poll_cap(ms(200));
        client.build().await.unwrap().election(name)
    };
    let (ours, theirs) = (connect().await, connect().await);
    let lead = ours.campaign("a").await.unwrap();
    let term = lead.term();
    let migration = cluster.migrate(SLOT, to).await;
    // The counter is on one node, and the lock on the other.
    let counter = format!("redisson_lock_token:{{{name}}}");
    assert!(migration.move_key(&counter).await);
    let campaign = theirs.campaign("b").owner(&Owner::new()).wait(LONG);
    let next = tokio::spawn(campaign.into_future());
    let resigning = tokio::spawn(lead.resign());
    eventually(SOON, "both commands were refused", async || {
        migration.refused().await >= 2
    })
    .await;
    assert!(!next.is_finished());
    migration.move_keys().await;
    migration.finish().await;
    // The call may have failed before. The client repeats the release.
    let _ = resigning.await.unwrap();
    let next = tokio::time::timeout(SOON, next).await.expect("in time");
    let next = next.unwrap().unwrap().expect("it is its turn");
    assert!(next.term() > term);
    let redis = to.redis().await;
    assert_eq!(redis.ask::<u64>(&["GET", &counter]).await, next.term());
    assert_eq!(redis.hash(name).await.len(), 1);
    next.resign().await.unwrap();
    assert!(!redis.exists(name).await);
}

/// LE1 and LE4: the leader's hold was not replicated, and its master dies. No later leader has its term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_the_next_master_does_not_know_is_notified_and_the_next_term_is_later() {
    let cluster = Cluster::start(3, 1).await;
    let (master, replica) = (&cluster.nodes[0], &cluster.nodes[3]);
    let name = &cluster.names_at(master, "leader", 1).await[0];
    // The lease does not end before the switch is over.
    let connect = async || {
        let client = Client::builder().url(cluster.url()).poll_cap(ms(200));
        let client = client.watchdog_lease(LONG).build().await.unwrap();
        client.election(name)
    };
    let (ours, theirs) = (connect().await, connect().await);
    ours.campaign("first")
        .await
        .unwrap()
        .resign()
        .await
        .unwrap();
    replica.server.pause();
    // The master sends nothing more to the replica, so nothing waits in its socket.
    let redis = master.redis().await;
    let cut = redis.cut_replicas().await;
    assert_eq!(cut, 1);
    let lead = ours.campaign("a").await.unwrap();
    let campaign = theirs.campaign("b").owner(&Owner::new()).wait(LONG);
    let next = tokio::spawn(campaign.into_future());
    let queue = format!("redisson_lock_queue:{{{name}}}");
    eventually(SOON, "it is in the queue", async || {
        redis.ask::<usize>(&["LLEN", &queue]).await == 1
    })
    .await;
    master.server.kill();
    replica.server.resume();
    cluster.take_over(slot(name), replica).await;
    let lost = tokio::time::timeout(SOON, lead.lost()).await;
    assert_eq!(
        lost.expect("the leader learns of the loss").reason(),
        LostReason::NotOurs
    );
    let next = tokio::time::timeout(SOON, next).await.expect("in time");
    let next = next.unwrap().unwrap().expect("none else campaigns");
    assert!(next.term() > lead.term());
    let seen = ours.leader().await.unwrap().expect("it leads");
    assert_eq!(seen.term, Some(next.term()));
    assert!(lead.resign().await.unwrap_err().is_lost());
    next.resign().await.unwrap();
}

/// LE1, LE2 and LE4 with candidates of two clients that lead in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_continues_while_its_slot_fails_over_and_moves() {
    let cluster = Cluster::start(3, 1).await;
    let home = cluster.nodes[0].clone();
    let name = &cluster.names_at(&home, "leader", 1).await[0];
    let mut dice = Dice::from_environment();
    let run = Arc::new(Run::default());
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let client = Client::builder().url(cluster.url()).watchdog_lease(LEASE);
        let client = client.poll_cap(ms(200)).fair_absence(ms(800));
        let client = client.build().await.unwrap();
        for _ in 0..2 {
            let dice = Dice::of(dice.roll(u64::MAX) | 1);
            tasks.spawn(contend(client.election(name), run.clone(), dice));
        }
    }
    let goes_on = async || {
        let before = run.leaderships();
        eventually(LONG, "there are new leaders", async || {
            run.leaderships() >= before + 4
        })
        .await;
    };
    goes_on().await;
    let successor = cluster.fail_over(slot(name)).await;
    assert_ne!(successor.id, home.id);
    goes_on().await;
    for to in [&cluster.nodes[1], &successor] {
        cluster.move_slot(slot(name), to).await;
        goes_on().await;
    }
    run.is_over.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.expect("none panics");
    }
    run.assert_one_led_at_a_time();
}
