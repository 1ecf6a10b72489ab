//! Leaderships on a healthy server.

use lockdog::error::LostReason;

use super::*;
use crate::support::until_ok;

#[tokio::test]
async fn a_leader_has_a_term_and_a_value_until_it_resigns() {
    let test = Fixture::start().await;
    assert!(test.election.leader().await.unwrap().is_none());
    let lead = test.election.campaign("10.0.0.7:9000").await.unwrap();
    assert!(lead.is_valid() && lead.remaining() > Duration::ZERO);
    let leader = test.election.leader().await.unwrap().expect("it leads");
    assert_eq!(leader.term, Some(lead.term()));
    assert_eq!(leader.value.as_deref(), Some("10.0.0.7:9000"));
    assert!(leader.holder.ours && leader.holder.is_lockdog());
    assert_eq!(leader.holder.client_id(), Some(test.client.id()));
    let theirs = test.another().await.leader().await.unwrap().unwrap();
    assert!(!theirs.holder.ours);
    assert_eq!(theirs.term, leader.term);
    lead.proclaim("10.0.0.7:9001 now").await.unwrap();
    assert_eq!(test.value().await.as_deref(), Some("10.0.0.7:9001 now"));
    lead.proclaim("").await.unwrap();
    assert_eq!(test.value().await.as_deref(), Some(""));
    let leading = lead.leading();
    lead.resign().await.unwrap();
    assert!(!leading.is_valid());
    assert!(test.election.leader().await.unwrap().is_none());
    assert!(test.published_value().await.is_none());
    let error = leading.proclaim("too late").await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(test.published_value().await.is_none());
    test.eventually_over().await;
}

/// LE1 for hand-overs within a client, for messages between clients, and after the counter is deleted.
#[tokio::test]
async fn terms_increase_from_leadership_to_leadership() {
    let test = Fixture::start().await;
    let other = test.another().await;
    let lead = test.election.campaign("first").await.unwrap();
    let mut last = lead.term();
    let mut campaigns = Vec::new();
    for number in 0..6 {
        let election = [&test.election, &test.election, &other][number % 3];
        campaigns.push(test.queued(election, &number.to_string()).await);
    }
    lead.resign().await.unwrap();
    for (number, campaign) in campaigns.into_iter().enumerate() {
        let lead = in_time(campaign).await;
        assert!(lead.term() > last, "{} after {last}", lead.term());
        last = lead.term();
        assert_eq!(test.value().await, Some(number.to_string()));
        if number == 3 {
            test.redis.cmd(&["DEL", COUNTER]).await;
        }
        lead.resign().await.unwrap();
    }
    // A counter that is ahead of the clock is increased.
    test.redis.cmd(&["SET", COUNTER, "9000000000000000"]).await;
    let lead = test.election.campaign("ahead").await.unwrap();
    assert_eq!(lead.term(), 9_000_000_000_000_001);
    lead.resign().await.unwrap();
    test.eventually_over().await;
}

/// Candidates lead in the order of the queue, and a hand-over within a client is one command for both.
#[tokio::test]
async fn the_first_in_the_queue_leads_next() {
    let test = Fixture::start().await;
    let lead = test.election.campaign("a").await.unwrap();
    let second = test.queued(&test.election, "b").await;
    let third = test.queued(&test.another().await, "c").await;
    // It does not enter the queue.
    let tried = test.another().await.campaign("d").wait(Duration::ZERO);
    assert!(tried.await.unwrap().is_none());
    let another = test.another().await;
    let waited = until_ok(SOON, async || another.campaign("e").wait(ms(200)).await);
    assert!(waited.await.is_none());
    drop(lead);
    let lead = in_time(second).await;
    assert_eq!(test.value().await.as_deref(), Some("b"));
    drop(lead);
    let lead = in_time(third).await;
    assert_eq!(test.value().await.as_deref(), Some("c"));
    drop(lead);
    test.eventually_over().await;
}

/// Only the given leader loses the leadership. It learns of that at its next renewal.
#[tokio::test]
async fn a_leader_that_is_forced_to_resign_is_notified_and_the_next_one_leads() {
    let test = Fixture::with(|builder| builder.watchdog_lease(ms(9_000))).await;
    let other = test.another().await;
    assert!(!other.force_resign().await.unwrap(), "no client leads");
    let lead = test.election.campaign("a").await.unwrap();
    let next = test.queued(&other, "b").await;
    let leader = other.leader().await.unwrap().expect("it leads");
    let of_nobody = other.force_resign().expecting_field("nobody");
    assert!(!of_nobody.await.unwrap());
    assert_eq!(test.value().await.as_deref(), Some("a"));

    let forced = other.force_resign().expecting(&leader.holder);
    assert!(forced.clone().await.unwrap());
    let next = in_time(next).await;
    assert!(next.term() > lead.term());
    assert_eq!(test.value().await.as_deref(), Some("b"));
    let lost = tokio::time::timeout(LONG, lead.lost()).await;
    let lost = lost.expect("a renewal finds it");
    assert_eq!(lost.reason(), LostReason::NotOurs);

    assert!(!forced.await.unwrap(), "the earlier leader does not lead");
    assert_eq!(test.value().await.as_deref(), Some("b"));
    next.resign().await.unwrap();
    drop(lead);
    test.eventually_over().await;
}

/// LE2: no two leaders work at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_leaderships_never_overlap() {
    let test = Fixture::start().await;
    let cell = crate::support::Cell::new();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..3 {
        let election = test.another().await;
        for task in 0..3 {
            let (election, cell) = (election.clone(), cell.clone());
            let name = format!("{client}.{task}");
            tasks.spawn(async move {
                for _ in 0..5 {
                    let lead = election.campaign(&*name).owner(&Owner::new());
                    let lead = lead.await.unwrap();
                    cell.bump_as(&name, ms(2)).await;
                    lead.resign().await.unwrap();
                }
            });
        }
    }
    tasks.join_all().await;
    cell.assert_exclusive(45);
    test.eventually_over().await;
}

#[tokio::test]
async fn a_cancelled_campaign_leaves_nothing_behind() {
    let test = Fixture::start().await;
    let lead = test.election.campaign("a").await.unwrap();
    for polls in 1..5 {
        let mut campaign = test.election.campaign("b").owner(&Owner::new());
        campaign = campaign.lease(LONG);
        let mut future = campaign.into_future();
        for _ in 0..polls {
            drop(poll_once(future.as_mut()).await);
            tokio::time::sleep(ms(5)).await;
        }
        drop(future);
    }
    eventually(SOON, "none is in the queue", async || {
        test.redis.ask::<usize>(&["LLEN", QUEUE]).await == 0
    })
    .await;
    lead.resign().await.unwrap();
    // The first command elects the candidate, and the second would publish its value.
    for polls in 1..4 {
        let mut future = test.election.campaign("c").into_future();
        for _ in 0..polls {
            drop(poll_once(future.as_mut()).await);
            tokio::time::sleep(ms(20)).await;
        }
        drop(future);
        eventually(SOON, "none leads", async || {
            test.election.leader().await.unwrap().is_none()
        })
        .await;
    }
    test.eventually_over().await;
}

/// LE3: a holder of another kind is shown without a value and a term.
#[tokio::test]
async fn a_lock_of_another_kind_excludes_an_election_and_has_no_value() {
    let test = Fixture::start().await;
    let held = test.client.fair_lock(NAME).lock().await.unwrap();
    let leader = test.election.leader().await.unwrap().unwrap();
    assert!(leader.term.is_none() && leader.value.is_none());
    let election = &test.election;
    let none = until_ok(SOON, async || election.campaign("a").wait(ms(100)).await);
    assert!(none.await.is_none());
    held.unlock().await.unwrap();
    // LE3: a value of a former leader is not shown as the value of the next holder.
    let gone = test.election.campaign("gone").await.unwrap();
    assert!(test.redis.ask::<bool>(&["DEL", NAME]).await);
    let held = test.client.fair_lock(NAME).lock().await.unwrap();
    assert!(test.published_value().await.is_some());
    let leader = test.election.leader().await.unwrap().unwrap();
    assert!(leader.term.is_none() && leader.value.is_none());
    assert!(gone.resign().await.unwrap_err().is_lost());
    held.unlock().await.unwrap();
    let lead = test.election.campaign("a").await.unwrap();
    for lock in [test.client.lock(NAME), test.client.fair_lock(NAME)] {
        let other = lock.try_lock().owner(&Owner::new()).await.unwrap();
        assert!(other.is_none());
    }
    let holder = test.client.lock(NAME).holder().await.unwrap().unwrap();
    assert_eq!(
        Some(holder.field().to_owned()),
        test.election
            .leader()
            .await
            .unwrap()
            .map(|leader| leader.holder.field().to_owned())
    );
    // The mode field in the hash of a read/write lock is not a leader.
    lead.resign().await.unwrap();
    let _reader = test.client.read_write_lock(NAME).read().lock().await;
    let leader = test.election.leader().await.unwrap().unwrap();
    let hash = test.redis.hash(NAME).await;
    assert!(hash.contains_key(leader.holder.field()) && hash.contains_key("mode"));
    assert_ne!(leader.holder.field(), "mode");
}

/// W15: ten candidates of ten clients. A resignation and the next leader's publication take three commands.
#[tokio::test]
async fn the_next_of_ten_clients_leads_after_three_commands() {
    let test = Fixture::start().await;
    let mut lead = test.election.campaign("first").await.unwrap();
    test.redis.reset_stats().await;
    let mut campaigns = Vec::new();
    for number in 0..10 {
        let election = test.another_with(|builder| builder.poll_cap(LONG)).await;
        campaigns.push(test.queued(&election, &number.to_string()).await);
    }
    eventually(SOON, "all listen", async || {
        let channels = test.redis.channels().await;
        let own = |it: &&String| it.starts_with("redisson_lock__channel:{scheduler}:");
        channels.iter().filter(own).count() == 10
    })
    .await;
    // Each candidate enters the queue, and queries once more after its subscription.
    eventually(SOON, "all have queried", async || {
        let stats = test.redis.commandstats().await;
        stats.get("evalsha").is_some_and(|sent| *sent >= 20)
    })
    .await;
    tokio::time::sleep(ms(300)).await;
    for campaign in campaigns {
        test.redis.reset_stats().await;
        lead.resign().await.unwrap();
        lead = in_time(campaign).await;
        let stats = test.redis.commandstats().await;
        assert_eq!(stats.get("evalsha"), Some(&3), "{stats:?}");
    }
    lead.resign().await.unwrap();
    test.eventually_over().await;
}

#[tokio::test]
async fn a_campaign_costs_two_commands_and_a_resignation_one() {
    let test = Fixture::start().await;
    for _ in 0..2 {
        // From the second round on the server knows the scripts.
        test.redis.reset_stats().await;
        let lead = test.election.campaign("a").await.unwrap();
        lead.resign().await.unwrap();
    }
    let stats = test.redis.commandstats().await;
    assert_eq!(stats.get("evalsha"), Some(&3), "{stats:?}");
    assert!(!stats.contains_key("eval"), "{stats:?}");
}
