//! An election in whose queue Java threads wait for a fair lock.

use std::sync::{Arc, Mutex};

use lockdog::Owner;
use lockdog::report::Ttl;

use super::{NEVER, SAFETY, java_at, ours_at};
use crate::support::redisson::JavaLock;
use crate::support::{RedisServer, eventually};

fn java_lock() -> JavaLock {
    JavaLock::from_getter("getFairLock", NAME)
}

/// A Java thread leads without a value, and all waiters lead in the order of arrival.
#[tokio::test]
async fn a_java_thread_with_a_fair_lock_waits_in_the_same_queue() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let client = ours_at(&server).build().await.unwrap();
    let election = client.election(NAME);
    let t1 = java.thread("t1");
    t1.lock_for(java_lock(), NEVER).await;
    let leader = election.leader().await.unwrap().expect("Java leads");
    assert!(leader.term.is_none() && leader.value.is_none());
    assert_eq!(leader.holder.field(), t1.field().await);
    assert!(!leader.holder.is_lockdog() && !leader.holder.ours);
    assert!(matches!(leader.holder.ttl, Ttl::Expires(ttl) if ttl <= NEVER));

    let order = Arc::new(Mutex::new(Vec::new()));
    let terms = Arc::new(Mutex::new(Vec::new()));
    let mut turns = Vec::new();
    for number in 0..WAITERS {
        let order = order.clone();
        turns.push(if number % 2 == 0 {
            let (election, terms) = (election.clone(), terms.clone());
            tokio::spawn(async move {
                let campaign = election.campaign(number.to_string()).owner(&Owner::new());
                let lead = campaign.await.unwrap();
                order.lock().unwrap().push(number);
                terms.lock().unwrap().push(lead.term());
                let leader = election.leader().await.unwrap().unwrap();
                assert_eq!(leader.value, Some(number.to_string()));
                lead.resign().await.unwrap();
            })
        } else {
            let thread = java.thread(&format!("w{number}"));
            let waiting = thread.start_lock(java_lock());
            tokio::spawn(async move {
                waiting.value().await;
                order.lock().unwrap().push(number);
                thread.unlock(java_lock()).await.unwrap();
            })
        });
        eventually(SAFETY, "it is in the queue", async || {
            redis.ask::<usize>(&["LLEN", QUEUE]).await == number + 1
        })
        .await;
    }
    t1.unlock(java_lock()).await.unwrap();
    for turn in turns {
        tokio::time::timeout(SAFETY, turn)
            .await
            .expect("in time")
            .unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
    let terms = terms.lock().unwrap().clone();
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    eventually(SAFETY, "nothing but the counter is left", async || {
        let keys = redis.keys().await;
        keys.iter().all(|key| key == COUNTER || key == PRESENCE)
    })
    .await;
}

/// Java sees a lockdog leader as the holder of a fair lock.
#[tokio::test]
async fn java_sees_a_leader_as_the_holder_of_a_fair_lock() {
    let server = RedisServer::start().await;
    let java = java_at(&server).start().await;
    let client = ours_at(&server).build().await.unwrap();
    let lead = client.election(NAME).campaign("ours").lease(NEVER);
    let lead = lead.await.unwrap();
    let t1 = java.thread("t1");
    assert!(t1.is_locked(java_lock()).await && !t1.is_held(java_lock()).await);
    assert_eq!(t1.hold_count(java_lock()).await, 0);
    let ttl = t1.remaining_ttl_ms(java_lock()).await;
    let longest = NEVER.as_millis() as i64;
    assert!((longest / 2..=longest).contains(&ttl), "{ttl}");
    assert!(!t1.try_lock(java_lock()).await);
    assert!(t1.unlock(java_lock()).await.unwrap_err().is_not_owner());
    lead.resign().await.unwrap();
    assert!(!t1.is_locked(java_lock()).await);
}

const NAME: &str = "scheduler";
const QUEUE: &str = "redisson_lock_queue:{scheduler}";
const COUNTER: &str = "redisson_lock_token:{scheduler}";
const PRESENCE: &str = "lockdog_fair:{scheduler}";
const WAITERS: usize = 8;
