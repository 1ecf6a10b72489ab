//! One command for each pair of lock and unlock, first in, first out.

use std::time::Instant;

use lockdog::Client;

use super::{Race, transfers, warm_up};
use crate::support::RedisServer;

/// At most 1.2 commands a pair, and two for each release to other clients. Each owner's share is within 10 % of
/// fair, and there is no message while no other waiter listens.
#[tokio::test]
async fn owners_of_one_client_take_turns_at_one_command_per_pair() {
    for owners in [2, 16] {
        let shares = take_turns(owners, 0).await;
        let fair = |share: &f64| (0.9..=1.1).contains(share);
        assert!(shares.iter().all(fair), "{shares:?}");
    }
}

/// The same with owners that run in parallel. Their threads lose turns to the machine's scheduler, so the
/// shares are not guaranteed, but no owner is left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_on_several_threads_take_turns_at_one_command_per_pair() {
    // On a busy machine an unlock may come before another owner waits again.
    let shares = take_turns(16, 40).await;
    assert!(shares.iter().all(|share| *share >= 0.2), "{shares:?}");
}

/// Returns the owners' shares; 1 is fair. `alone`: the number of 800 unlocks that may have no waiter.
async fn take_turns(owners: usize, alone: u64) -> Vec<f64> {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    warm_up(&client, &redis).await;
    let race = Race::of(800);
    let began = Instant::now();
    let pairs = race.run(&client.lock("l"), owners).await;
    // The client releases the lock for waiters that it cannot see every 250 ms, and at the end.
    let released = began.elapsed().as_millis() as u64 / 250;
    let free = released + 2 + alone;
    let stats = redis.commandstats().await;
    let calls = |name: &str| stats.get(name).copied().unwrap_or(0);
    let sent = calls("evalsha") + calls("eval");
    let handed = transfers(&redis).await;
    println!(
        "{owners} owners: {sent} commands, {handed} hand-overs, {} messages; {pairs:?}",
        calls("publish")
    );
    let most = race.done() * 12 / 10 + released * 2;
    assert!(sent <= most, "{sent} commands");
    assert!(calls("publish") <= free, "{} messages", calls("publish"));
    assert_eq!(calls("subscribe"), 0);
    race.assert_exclusive();
    redis.assert_clean().await;
    assert!(redis.keys().await.is_empty());
    let fair = race.done() as f64 / owners as f64;
    pairs.iter().map(|own| *own as f64 / fair).collect()
}
