//! Elections on a cluster.

use lockdog::Error;

use super::*;
use crate::support::Cluster;

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
        // A message tells the observer, of the end or of the next one.
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
