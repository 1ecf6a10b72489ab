//! Best effort: a lock waits for replicas if there are any.

use std::time::{Duration, Instant};

use lockdog::config::ReplicaAck;
use lockdog::{Client, Lock};

use super::{SLACK, SOON, TIMEOUT, best_effort, build, ms};
use crate::support::{Direction, Logs, Proxy, Replicated, Sentinels, eventually, logs, timed};
use crate::turn::turn;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_on_the_replica_when_it_is_granted() {
    let all = Replicated::start_behind(1, ms(30)).await;
    // A busy machine needs more time than a second.
    let ack = ReplicaAck::best_effort().timeout(SOON);
    let builder = Client::builder().url(all.master.url()).replica_ack(ack);
    let client = build(builder.command_timeout(SOON)).await;
    let replica = all.replicas[0].redis().await;
    for round in 0..10 {
        let name = format!("l{round}");
        let guard = client.lock(&name).lock().await.unwrap();
        assert!(replica.exists(&name).await, "{name}");
        guard.unlock().await.unwrap();
    }
}

/// A replica that does not acknowledge delays one acquire, not every one.
#[test]
fn a_frozen_replica_delays_few_acquires_and_is_logged_once() {
    logs::alone(
        "replicas::best_effort::a_frozen_replica_delays_few_acquires_and_is_logged_once",
        async {
            let logs = Logs::of_this_process();
            let all = Replicated::start(1).await;
            let client = best_effort(&all).await;
            let lock = client.lock("l");
            let logged = |text: &str| {
                let lines = logs.lines();
                lines.iter().filter(|line| line.text.contains(text)).count()
            };
            let silent = || logged("replicas do not acknowledge locks in time");
            let again = || logged("the replicas acknowledge again");
            // On a busy machine the first acknowledgements may be late.
            eventually(SOON * 2, "the replica acknowledges in time", async || {
                turn(&lock).await;
                silent() == again()
            })
            .await;
            let before = silent();
            all.replicas[0].pause();
            all.redis.reset_stats().await;
            let began = Instant::now();
            let mut rounds = 0;
            while began.elapsed() < ms(6000) {
                let (guard, took) = timed(async { lock.lock().await }).await;
                assert!(took < TIMEOUT + SLACK, "{took:?}");
                rounds += 1;
                guard.unwrap().unlock().await.unwrap();
            }
            // At once, perhaps again before it counts as silent, and after pauses that grow. On a busy machine
            // the last round may end seconds later.
            let [waits] = all.calls(["wait"]).await;
            println!("{waits} waits in {rounds} rounds");
            let most = began.elapsed().as_secs() - 1;
            assert!((1..=most).contains(&waits), "{waits} acquires waited");
            assert!(rounds >= waits * 4, "{waits} of {rounds} acquires waited");
            assert_eq!(silent(), before + 1);
            all.replicas[0].resume();
            let replica = all.replicas[0].redis().await;
            eventually(SOON * 2, "it is waited for again", async || {
                let guard = lock.lock().await.unwrap();
                let is_there = replica.exists("l").await;
                guard.unlock().await.unwrap();
                is_there && again() == silent()
            })
            .await;
        },
    );
}

/// Acquires without replicas cost no extra round trip, and replicas that come later are found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_does_not_wait_for_replicas_until_there_are_some() {
    let all = Replicated::start(1).await;
    all.cut_off(0).await;
    let client = best_effort(&all).await;
    let lock = client.lock("l");
    turn(&lock).await;
    all.redis.reset_stats().await;
    let began = Instant::now();
    for _ in 0..300 {
        turn(&lock).await;
    }
    let [waits, looks, scripts] = all.calls(["wait", "info", "evalsha"]).await;
    let seconds = began.elapsed().as_secs() + 1;
    assert_eq!(waits, 0);
    // On a busy machine the client repeats an unlock that takes a second.
    assert!((600..=620).contains(&scripts), "{scripts} scripts");
    // The test asks once itself.
    assert!(looks <= seconds + 1, "{looks} polls in {seconds} s");
    all.follow(0).await;
    eventually_awaits_replicas(&all, &lock).await;
}

/// No `WAIT` is sent without replicas, so only the question for replicas can detect that its connection broke.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_found_after_the_connection_for_wait_broke() {
    let all = Replicated::start(1).await;
    all.cut_off(0).await;
    let ack = ReplicaAck::best_effort().timeout(TIMEOUT);
    let builder = Client::builder().url(all.master.url()).replica_ack(ack);
    let client = build(builder.client_name("idle")).await;
    let lock = client.lock("l");
    turn(&lock).await;
    let killed = all.redis.kill_named("idle").await;
    assert!(killed >= 2, "{killed}: that of callers, and that for WAIT");
    // The connection of callers is opened again before the replica is there, because that counts the replicas too.
    turn(&lock).await;
    all.redis.reset_stats().await;
    all.follow(0).await;
    eventually_awaits_replicas(&all, &lock).await;
}

/// Opening the connection takes two or three round trips. So with one of these limits the first question has less than
/// one left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replicas_of_a_distant_master_are_found() {
    for limit in [ms(250), ms(350)] {
        let all = Replicated::start(1).await;
        all.cut_off(0).await;
        let distant = Proxy::start(&all.master).await;
        distant.delay(Direction::ToClient, ms(100));
        let ack = ReplicaAck::best_effort().timeout(limit);
        let client = build(Client::builder().url(distant.url()).replica_ack(ack)).await;
        let lock = client.lock("l");
        turn(&lock).await;
        all.follow(0).await;
        eventually_awaits_replicas(&all, &lock).await;
    }
}

/// With two replicas, the client still waits for the other when one is frozen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_does_not_end_the_wait_for_the_other() {
    let all = Replicated::start(2).await;
    // On a busy machine the other replica may need more than a second.
    let ack = ReplicaAck::best_effort().timeout(PATIENCE);
    let client = Client::builder().url(all.master.url()).replica_ack(ack);
    let client = build(client.command_timeout(SOON)).await;
    let lock = client.lock("l");
    turn(&lock).await;
    all.replicas[0].pause();
    turn(&lock).await;
    all.redis.reset_stats().await;
    let replica = all.replicas[1].redis().await;
    let began = Instant::now();
    let rounds = 20;
    for _ in 0..rounds {
        let guard = lock.lock().await.unwrap();
        assert!(replica.exists("l").await);
        guard.unlock().await.unwrap();
    }
    let took = began.elapsed();
    assert!(
        took < PATIENCE * (rounds / 2),
        "{rounds} rounds in {took:?}"
    );
    assert!(all.calls(["wait"]).await[0] >= u64::from(rounds));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn best_effort_is_the_default_with_sentinels_and_off_with_one_server() {
    let all = Sentinels::start().await;
    let redis = all.servers[0].redis().await;
    let waits = async || redis.commandstats().await.get("wait").copied();
    let one = Client::connect(all.servers[0].url()).await.unwrap();
    let off = Client::builder()
        .url(all.url())
        .replica_ack(ReplicaAck::Off);
    for client in [one, build(off).await] {
        turn(&client.lock("l")).await;
        assert_eq!(waits().await, None);
    }
    let client = Client::connect(all.url()).await.unwrap();
    let guard = client.lock("l").lock().await.unwrap();
    assert!(waits().await.is_some());
    for replica in &all.servers[1..] {
        let replica = replica.redis().await;
        eventually(SOON, "the replica has it", async || {
            replica.exists("l").await
        })
        .await;
    }
    guard.unlock().await.unwrap();
}

/// Waits until an acquire waits for the replicas.
async fn eventually_awaits_replicas(all: &Replicated, lock: &Lock) {
    let before = all.calls(["wait"]).await[0];
    eventually(SOON, "the replica is waited for", async || {
        turn(lock).await;
        all.calls(["wait"]).await[0] > before
    })
    .await;
}

/// Longer than a stall of a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
