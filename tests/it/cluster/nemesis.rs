//! Everything that operators do, in any order, under a crowd.

use std::time::{Duration, Instant};

use super::{SOON, ms};
use crate::crowd::Crowd;
use crate::support::cluster::{names, slot};
use crate::support::{Cluster, eventually};

/// Catalogue, last list: 1 and 12. Failovers, freezes and migrations of the slots that a crowd wants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exclusion_holds_under_a_nemesis_of_a_cluster_and_everybody_recovers() {
    let cluster = Cluster::start(3, 1).await;
    let locks = names("crowd", 3, |_| true);
    let refs: Vec<&str> = locks.iter().map(String::as_str).collect();
    let crowd = Crowd::start(&cluster.url(), &refs).await;
    let seed = std::collections::hash_map::RandomState::new();
    let mut dice = std::hash::BuildHasher::hash_one(&seed, 0) | 1;
    println!("the nemesis has the seed {dice}");
    let mut roll = |faces: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % faces
    };
    let began = Instant::now();
    while began.elapsed() < LASTS {
        let slot = slot(&locks[roll(3) as usize]);
        match roll(3) {
            0 => {
                println!("{:?}: slot {slot} fails over", began.elapsed());
                cluster.fail_over(slot).await;
            }
            1 => {
                let owner = cluster.owner(slot).await;
                let pause = ms(200 + roll(5000));
                println!(
                    "{:?}: the owner of slot {slot} stands still for {pause:?}",
                    began.elapsed()
                );
                owner.server.pause();
                tokio::time::sleep(pause).await;
                owner.server.resume();
            }
            _ => {
                let owner = cluster.owner(slot).await;
                // Another master that has slots.
                let to = cluster.owner((slot + 5461) % 16_384).await;
                if to.id != owner.id {
                    println!("{:?}: slot {slot} moves", began.elapsed());
                    cluster.move_slot(slot, &to).await;
                }
            }
        }
        cluster.await_health().await;
        crowd.goes_on().await;
    }
    crowd.end().await;
    for name in &locks {
        let redis = cluster.owner_of(name).await.redis().await;
        eventually(SOON, "the lock is free", async || !redis.exists(name).await).await;
    }
}

const LASTS: Duration = Duration::from_secs(20);
