//! No client starves beside a client that hands the lock over.

use lockdog::Client;
use tokio::task::JoinSet;

use super::{Race, SOON, ms, transfers};
use crate::support::redisson::Redisson;
use crate::support::{RedisServer, eventually};

/// No client starves, and a pair costs at most three commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_with_equally_many_owners_share_a_lock() {
    share(2).await;
}

/// No client starves, and a pair costs at most three commands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_clients_with_equally_many_owners_share_a_lock() {
    share(4).await;
}

/// The benchmarks measure how fair the shares are: the pause in which a client lets others in is some
/// milliseconds, and a busy machine sleeps through many of them. Here each client gets some rows of
/// hand-overs while the other clients contend all the time.
async fn share(clients: u64) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let race = Race::until_all_have(SOME, clients, MOST * clients);
    let mut crowds = JoinSet::new();
    for _ in 0..clients {
        // The count of hand-overs ends a row, however slow the machine is.
        let client = Client::builder().url(server.url());
        let client = client.max_hand_over_time(ms(1_000));
        let client = client.build().await.unwrap();
        let race = race.clone();
        crowds.spawn(async move {
            let pairs = race.run(&client.lock("l"), 4).await;
            pairs.iter().sum::<u64>()
        });
    }
    let pairs = crowds.join_all().await;
    let stats = redis.commandstats().await;
    let sent = stats["evalsha"] + stats.get("eval").copied().unwrap_or(0);
    let handed = transfers(&redis).await;
    println!(
        "pairs {pairs:?}; {handed} hand-overs, {:.2} commands a pair",
        sent as f64 / race.done() as f64
    );
    assert!(handed > race.done() / 2, "{handed} hand-overs");
    assert!(sent <= race.done() * 3, "{sent} commands");
    race.assert_exclusive();
    redis.assert_clean().await;
    assert!(
        pairs.iter().all(|pairs| *pairs >= SOME),
        "a client starves: {pairs:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_gets_the_lock_after_each_streak_of_hand_overs() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let client = Client::connect(server.url()).await.unwrap();
    let race = Race::of(u64::MAX);
    let ours = {
        let (race, lock) = (race.clone(), client.lock("l"));
        tokio::spawn(async move { race.run(&lock, 4).await })
    };
    eventually(SOON, "our owners contend", async || race.done() > 100).await;
    let before = race.done();
    let mut threads = JoinSet::new();
    for number in 0..THREADS {
        let (thread, race) = (java.thread(&format!("t{number}")), race.clone());
        threads.spawn(async move {
            for _ in 0..ROUNDS {
                thread.lock_for("l", SOON * 10).await;
                race.cell.bump_at_once().await;
                race.done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                thread.unlock("l").await.unwrap();
            }
        });
    }
    let all = tokio::time::timeout(SOON * 4, threads.join_all()).await;
    assert!(all.is_ok(), "Redisson starves");
    let theirs = THREADS * ROUNDS;
    let meanwhile = race.done() - before - theirs;
    println!("Redisson {theirs}, ours {meanwhile}");
    ours.abort();
    let _ = ours.await;
    drop(client);
    eventually(SOON, "the lock is free", async || !redis.exists("l").await).await;
    // A row of 16 and the acquire before it, and many more rows during which Redisson was not scheduled.
    assert!(
        meanwhile <= theirs * 17 * 60,
        "ours came in {meanwhile} times"
    );
}

#[tokio::test]
async fn a_client_without_hand_overs_releases_every_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::builder().url(server.url()).max_hand_overs(0);
    let client = client.build().await.unwrap();
    let race = Race::of(300);
    race.run(&client.lock("l"), 4).await;
    let stats = redis.commandstats().await;
    assert_eq!(transfers(&redis).await, 0);
    assert!(stats["publish"] >= race.done(), "{stats:?}");
    race.assert_exclusive();
    redis.assert_clean().await;
}

/// More than two rows, and the average number of pairs at which a client without these has starved.
const SOME: u64 = 40;
const MOST: u64 = 20_000;

const THREADS: u64 = 4;
const ROUNDS: u64 = 20;
