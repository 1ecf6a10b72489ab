//! Failovers, freezes and migrations in random order, while tasks contend.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::ms;
use crate::crowd::{Crowd, CrowdKind, await_released};
use crate::support::cluster::{names, slot};
use crate::support::logs::{self, Recent};
use crate::support::{Cluster, Dice};

/// Failovers, freezes and migrations of the slots that a crowd uses.
#[test]
fn exclusion_holds_and_all_clients_recover_under_a_cluster_nemesis() {
    logs::alone(
        "cluster::nemesis::exclusion_holds_and_all_clients_recover_under_a_cluster_nemesis",
        under_a_nemesis(&[CrowdKind::Plain; 3]),
    );
}

/// The same for a fair lock, a read/write lock and a permit, too: queues, timeouts of readers and permits move with
/// their slots.
#[test]
fn locks_and_permits_exclude_and_recover_under_a_cluster_nemesis() {
    logs::alone(
        "cluster::nemesis::locks_and_permits_exclude_and_recover_under_a_cluster_nemesis",
        under_a_nemesis(&CrowdKind::ALL),
    );
}

async fn under_a_nemesis(kinds: &[CrowdKind]) {
    let recent = Recent::of_this_process();
    let cluster = Cluster::that_elects(3, 1).await;
    let names = names("crowd", kinds.len(), |_| true);
    let objects = kinds.iter().copied().zip(names.iter().map(String::as_str));
    let objects: Vec<_> = objects.collect();
    let crowd = Crowd::of_kinds(&cluster.url(), &objects).await;
    let (clients, task_states) = crowd.shown();
    let injection = AssertUnwindSafe(inject_faults(&cluster, &objects, crowd, &recent));
    let Err(failure) = injection.catch_unwind().await else {
        return;
    };
    println!("failed {:?} after the recording began", recent.elapsed());
    for node in &cluster.nodes {
        println!("{}", node.shown().await);
    }
    for (number, client) in clients.iter().enumerate() {
        println!("client {number}: {client:#?}");
        println!("client {number} holds {:#?}", client.holds());
    }
    println!("{}", task_states.lines().join("\n"));
    println!("{}", recent.lines().join("\n"));
    resume_unwind(failure);
}

async fn inject_faults(
    cluster: &Cluster,
    objects: &[(CrowdKind, &str)],
    crowd: Crowd,
    recent: &Recent,
) {
    let mut dice = Dice::from_environment();
    let began = Instant::now();
    let (mut failovers, mut frozen, mut moves) = (0, 0, 0);
    while began.elapsed() < LASTS || [failovers, frozen, moves].contains(&0) {
        let (_, name) = objects[dice.roll(objects.len() as u64) as usize];
        let slot = slot(name);
        match dice.roll(3) {
            0 => {
                println!("{:?}: slot {slot} fails over", recent.elapsed());
                cluster.fail_over(slot).await;
                failovers += 1;
            }
            1 => {
                let owner = cluster.owner(slot).await;
                let pause = ms(200 + dice.roll(5000));
                println!(
                    "{:?}: the owner {} of slot {slot} is frozen for {pause:?}",
                    recent.elapsed(),
                    owner.port()
                );
                owner.server.pause();
                tokio::time::sleep(pause).await;
                owner.server.resume();
                frozen += 1;
            }
            _ => {
                let owner = cluster.owner(slot).await;
                // Another master with slots.
                let to = cluster.owner((slot + 5461) % 16_384).await;
                if to.id != owner.id {
                    println!("{:?}: slot {slot} moves", recent.elapsed());
                    cluster.move_slot(slot, &to).await;
                    moves += 1;
                }
            }
        }
        println!("{:?}: done", recent.elapsed());
        cluster.await_health().await;
        crowd.goes_on().await;
    }
    println!("{failovers} failovers, {frozen} freezes, {moves} moves");
    crowd.end().await;
    await_released(objects, async |name| {
        cluster.owner_of(name).await.redis().await
    })
    .await;
}

const LASTS: Duration = Duration::from_secs(20);
