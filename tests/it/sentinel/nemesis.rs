//! Planned failovers and frozen masters in random order, while tasks contend for locks and permits.

use std::time::{Duration, Instant};

use super::ms;
use crate::crowd::{Crowd, CrowdKind, await_released};
use crate::support::{Dice, Sentinels};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_and_permits_exclude_and_recover_under_a_sentinel_nemesis() {
    let all = Sentinels::start().await;
    let objects = CrowdKind::ALL.map(|kind| (kind, kind.name()));
    let crowd = Crowd::of_kinds(&all.url(), &objects).await;
    let mut dice = Dice::from_environment();
    let began = Instant::now();
    let (mut failovers, mut freezes) = (0, 0);
    while began.elapsed() < LASTS || failovers == 0 || freezes == 0 {
        let master = all.master().await;
        // Both faults come, and then either.
        let fails_over = match (failovers, freezes) {
            (0, 1..) => true,
            (1.., 0) => false,
            _ => dice.roll(2) == 0,
        };
        if fails_over {
            println!("{:?}: a planned failover", began.elapsed());
            // Without it the old master would grant for a second after another one was named, to clients that
            // do not know that yet. That window is no promise of a lock.
            let redis = master.redis().await;
            redis.cmd(&["CLIENT", "PAUSE", "60000", "WRITE"]).await;
            all.failover().await;
            // All clients learn of it. The sentinels can demote the old master only after its pause.
            tokio::time::sleep(ms(1_000)).await;
            redis.try_cmd(&["CLIENT", "UNPAUSE"]).await.ok();
            all.await_demotion(master).await;
            failovers += 1;
        } else {
            // Sometimes long enough for the sentinels to name another master.
            let pause = ms(200 + dice.roll(5_000));
            println!("{:?}: the master is frozen for {pause:?}", began.elapsed());
            master.pause();
            tokio::time::sleep(pause).await;
            master.resume();
            freezes += 1;
        }
        println!("{:?}: done", began.elapsed());
        crowd.goes_on().await;
        // The next fault finds two replicas that have all data.
        all.await_replication().await;
    }
    println!("{failovers} failovers, {freezes} freezes");
    crowd.end().await;
    await_released(&objects, async |_| all.master().await.redis().await).await;
}

const LASTS: Duration = Duration::from_secs(20);
