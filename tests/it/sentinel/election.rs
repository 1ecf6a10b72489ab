//! An election while another server becomes the master.

use lockdog::{Client, Owner};

use super::SOON;
use crate::support::{Sentinels, eventually};

/// LE1 and LE2: the leader continues or is notified, and the next leader has a later term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_leader_after_a_failover_has_a_later_term() {
    let all = Sentinels::start().await;
    let client = Client::connect(all.url()).await.unwrap();
    let another = Client::connect(all.url()).await.unwrap();
    let (ours, theirs) = (client.election("jobs"), another.election("jobs"));
    let lead = ours.campaign("a").await.unwrap();
    let term = lead.term();
    let mut leaders = theirs.observe();
    let first = leaders.next().await.unwrap().expect("it is the leader");
    assert_eq!(first.term, Some(term));
    let campaign = theirs.campaign("b").owner(&Owner::new()).wait(SOON * 4);
    let next = tokio::spawn(campaign.into_future());
    for server in &all.servers {
        let server = server.redis().await;
        eventually(SOON, "all is replicated", async || {
            let waiting: usize = server.ask(&["LLEN", QUEUE]).await;
            waiting == 1 && server.exists(LEADER_KEY).await
        })
        .await;
    }
    let master = all.failover().await.redis().await;
    // The hold is in the data of the new master, so it is kept.
    eventually(SOON, "the leader has set its value there", async || {
        lead.proclaim("still a").await.is_ok() && master.exists(LEADER_KEY).await
    })
    .await;
    lead.resign().await.unwrap();
    let next = tokio::time::timeout(SOON, next).await.expect("in time");
    let next = next.unwrap().unwrap().expect("it is first in the queue");
    assert!(next.term() > term);
    eventually(SOON, "the observer sees it", async || {
        let seen = tokio::time::timeout(SOON, leaders.next()).await;
        matches!(seen, Ok(Ok(Some(leader))) if leader.term == Some(next.term()))
    })
    .await;
    next.resign().await.unwrap();
    for client in [client, another] {
        client.shutdown().await;
    }
}

const QUEUE: &str = "redisson_lock_queue:{jobs}";
const LEADER_KEY: &str = "lockdog_leader:{jobs}";
