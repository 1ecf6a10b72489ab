//! A cluster as one instance of a fenced RedLock. Its master lost the token register. The client judges the
//! register by the server that answers, whichever server has the slot then.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockdog::{Client, RedLock};

use super::red_lock::{Clusters, lock, shut_down};
use super::{LONG, ms, soon};
use crate::support::cluster::{Node, slot};
use crate::support::eventually;

/// Two instances know the latest token. One of them is paused. The other one lost it: its slot moved from
/// the master that took over. The tokens are ahead of all clocks, so a clock cannot replace the lost token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_register_is_not_believed_after_its_slot_moved() {
    let clusters = Clusters::start().await;
    let [failing, knowing, ignorant] = &clusters.all[..] else {
        panic!("there are three");
    };
    let clients = clusters.clients_with(|it| it.watchdog_lease(LEASE)).await;
    let others = clusters.clients_with(|it| it.watchdog_lease(LEASE)).await;
    let mine = fenced(&clients);
    mine.lock().await.unwrap().unlock().await.unwrap();
    for cluster in &clusters.all {
        let owner = cluster.owner_of(NAME).await;
        put_ahead(&owner).await;
    }
    // The master's replica receives nothing more.
    let old = failing.owner_of(NAME).await;
    let replica = failing.replica_of(&old).await;
    let has_it = async || {
        register(&replica)
            .await
            .is_some_and(|it| it.starts_with(AHEAD))
    };
    eventually(LONG, "the replica has the register", async || {
        has_it().await
    })
    .await;
    replica.server.pause();
    let redis = old.redis().await;
    let cut = redis.cut_replicas().await;
    assert_eq!(cut, 1);

    ignorant.nodes[0].server.pause();
    let latest = soon("the other clients acquire it", has_token(&fenced(&others))).await;
    ignorant.nodes[0].server.resume();
    assert!(latest > AHEAD.parse().unwrap());
    for cluster in [failing, knowing] {
        let owner = cluster.owner_of(NAME).await;
        let register = register(&owner).await.expect("the register exists");
        assert!(register.starts_with(&latest.to_string()), "{register}");
    }
    let register_there = register(&ignorant.nodes[0]).await.unwrap();
    assert!(register_there.starts_with(AHEAD), "{register_there}");

    old.server.kill();
    replica.server.resume();
    let successor = failing.await_switch(slot(NAME), &old).await;
    let seen = Instant::now();
    let mut masters = failing.nodes[..3].iter();
    let to = masters.find(|it| it.id != old.id && it.id != successor.id);
    let to = to.expect("there are three");
    failing.move_slot(slot(NAME), to).await;
    let forgotten = register(to)
        .await
        .expect("the register moved with the slot");
    assert!(forgotten.starts_with(AHEAD), "{forgotten}");
    knowing.nodes[0].server.pause();
    // The quarantine ends meanwhile. The instance counts again, but its register does not.
    let mut tries = 0;
    while seen.elapsed() < LEASE * 2 || tries < 3 {
        match mine.try_lock().await {
            Ok(Some(guard)) => {
                let token = guard.token().expect("it is fenced");
                assert!(
                    token > latest,
                    "{token} is not newer, after {:?}",
                    seen.elapsed()
                );
                guard.unlock().await.unwrap();
            }
            Ok(None) => {}
            Err(error) => assert!(error.is_retriable(), "{error:?}"),
        }
        tries += 1;
        tokio::time::sleep(ms(50)).await;
    }
    println!("{tries} tries");
    knowing.nodes[0].server.resume();
    let next = soon("it is acquired again", has_token(&mine)).await;
    assert!(next > latest, "{next} after {latest}");
    shut_down(clients.into_iter().chain(others)).await;
}

fn fenced(clients: &[Client]) -> RedLock {
    lock(clients).max_lease(LEASE).fenced()
}

/// Acquires the lock once, as soon as possible, and returns its token.
async fn has_token(lock: &RedLock) -> u64 {
    loop {
        if let Ok(guard) = lock.lock().await {
            let token = guard.token().expect("it is fenced");
            guard.unlock().await.unwrap();
            return token;
        }
        tokio::time::sleep(ms(20)).await;
    }
}

/// Stores a token that is ahead of all clocks.
async fn put_ahead(node: &Node) {
    let written = SystemTime::now().duration_since(UNIX_EPOCH);
    let written = written.expect("it is later").as_millis();
    // The first holder may have stored its token on two of the three instances only.
    let register = format!("{AHEAD} {written} somebody");
    let redis = node.redis().await;
    redis.cmd(&["SET", REGISTER, &register]).await;
}

/// The stored register of a node, which may be a replica.
async fn register(node: &Node) -> Option<String> {
    let redis = node.redis().await;
    redis.cmd(&["READONLY"]).await;
    redis.ask(&["GET", REGISTER]).await
}

const NAME: &str = "l";
const REGISTER: &str = "lockdog_token:{l}";
const LEASE: Duration = Duration::from_secs(8);
/// In microseconds since 1970, some hundred years from now, below 2^53.
const AHEAD: &str = "5000000000000000";
