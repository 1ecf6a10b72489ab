//! A sentinel of another master with the same name, at an address that was one of this deployment.

use std::time::Duration;

use lockdog::Owner;

use super::{SOON, ms};
use crate::fixture::patient;
use crate::support::sentinels::{MASTER, Sentinel};
use crate::support::{Proxy, RedisServer, Sentinels, eventually};

/// Its number is larger than any of this deployment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_of_another_master_with_the_same_name_is_not_believed() {
    let (all, elsewhere) = tokio::join!(Sentinels::start(), RedisServer::start());
    let stranger = Sentinel::start_at(elsewhere.port(), 50).await;
    let line = Proxy::to_port(all.sentinels[0].port()).await;
    // The client waits for both: two of three would be enough without the slower one.
    let hosts = [line.port(), all.sentinels[1].port()];
    let hosts = hosts.map(|port| format!("127.0.0.1:{port}")).join(",");
    let url = format!("redis+sentinel://{hosts}/{MASTER}");
    // None of the calls below fails for lack of an answer in time.
    let [first, second] = [url.clone(), url].map(|url| patient(url).build());
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let guard = first.lock("l").lock().lease(LEASE).await.unwrap();
    let asked = |args: &[String]| args.first().is_some_and(|it| it == "SENTINEL");
    eventually(SOON, "our Sentinel is asked for the address", async || {
        line.count(asked) >= 4
    })
    .await;
    let before = line.commands().len();
    line.aim_at(stranger.port());
    line.cut_all();
    eventually(SOON, "the other Sentinel is asked", async || {
        let since = &line.commands()[before..];
        since.iter().filter(|seen| asked(&seen.args)).count() >= 12
    })
    .await;
    for _ in 0..30 {
        let had = second.lock("l").try_lock().owner(&Owner::new()).await;
        assert!(matches!(had, Ok(None)), "{had:?}");
        tokio::time::sleep(ms(50)).await;
    }
    let free = second.lock("free").lock().await.unwrap();
    assert!(elsewhere.redis().await.keys().await.is_empty());
    free.unlock().await.unwrap();
    // The client still follows a switch of its own master.
    let new = all.failover().await;
    eventually(SOON, "the new master is used", async || {
        let lock = second.lock("after");
        let guard = lock.lock().owner(&Owner::new()).await;
        let Ok(guard) = guard else { return false };
        let is_there = new.redis().await.exists("after").await;
        guard.unlock().await.is_ok() && is_there
    })
    .await;
    drop(guard);
    for client in [first, second] {
        client.shutdown().await;
    }
}

const LEASE: Duration = Duration::from_secs(120);
