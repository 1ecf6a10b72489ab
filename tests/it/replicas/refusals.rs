//! Servers, proxies and users that refuse commands, and settings that a deployment cannot satisfy.

use std::time::Duration;

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::{Client, Error};

use super::{SLACK, SOON, TIMEOUT, acquired, build, ms, not_replicated};
use crate::support::{Action, Direction, Proxy, Replicated, eventually, named, timed};
use crate::turn::turn;

fn require(timeout: Duration) -> ReplicaAck {
    ReplicaAck::require(Replicas::Count(1)).timeout(timeout)
}

const EFFORT: ReplicaAck = ReplicaAck::best_effort().timeout(TIMEOUT);

/// The server does not know WAIT. The client sends it once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_wait_is_probed_once_and_is_an_error_if_required() {
    let all = Replicated::start(1).await;
    // The refusal comes in time, also on a busy machine.
    for ack in [require(SOON), EFFORT] {
        let proxy = Proxy::start(&all.master).await;
        let unknown = "-ERR unknown command 'WAIT', with args beginning with: '1'".to_owned();
        proxy.on(named("WAIT"), Action::ReplyWith(unknown)).always();
        let builder = Client::builder().url(proxy.url()).replica_ack(ack);
        let client = build(builder.command_timeout(SOON)).await;
        all.redis.reset_stats().await;
        for _ in 0..10 {
            let outcome = client.lock("l").try_lock().await;
            if ack == EFFORT {
                outcome.unwrap().unwrap().unlock().await.unwrap();
            } else {
                let error = outcome.unwrap_err();
                assert!(
                    error.to_string().contains("unknown command 'WAIT'"),
                    "{error}"
                );
                assert!(!error.is_retriable() && !error.may_be_held());
            }
            assert!(!all.redis.exists("l").await);
        }
        assert_eq!(proxy.count(named("WAIT")), 1);
        if ack != EFFORT {
            // The client acquires nothing that it would have to release.
            assert!(all.calls(["hincrby"]).await[0] <= 2);
        }
        client.shutdown().await;
        // The client still exists, with what it knows of the server.
        eventually(SOON, "it closes all connections", async || {
            proxy.connections() == 0
        })
        .await;
    }
}

/// The permission may be given later, and counts from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_permission_for_wait_is_named_if_required() {
    let all = Replicated::start(1).await;
    let user = "ACL SETUSER app on >secret ~* &* +@all -wait";
    all.redis.cmd(&user.split(' ').collect::<Vec<_>>()).await;
    let url = all.master.url().replace("redis://", "redis://app:secret@");
    let client = build(Client::builder().url(&url).replica_ack(EFFORT)).await;
    for _ in 0..3 {
        turn(&client.lock("l")).await;
    }
    let client = build(Client::builder().url(&url).replica_ack(require(TIMEOUT))).await;
    for _ in 0..3 {
        let error = client.lock("l").lock().await.unwrap_err();
        assert!(
            matches!(&error, Error::Refused { code, .. } if code == "NOPERM"),
            "{error:?}"
        );
        assert!(!all.redis.exists("l").await);
    }
    all.redis.cmd(&["ACL", "SETUSER", "app", "+wait"]).await;
    acquired(&client.lock("l")).await.unlock().await.unwrap();
}

/// The reply of WAIT is lost after the command ran. The connection is opened again,
/// or the acquire is undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_whose_answer_is_lost_is_repeated_or_the_acquire_is_undone() {
    let all = Replicated::start(1).await;
    let proxy = Proxy::start(&all.master).await;
    let client = Client::builder().url(proxy.url());
    let client = build(client.replica_ack(require(TIMEOUT))).await;
    for _ in 0..5 {
        let lost = proxy.on(named("WAIT"), Action::ExecuteThenCut);
        let guard = acquired(&client.lock("l")).await;
        lost.wait_hits(1).await;
        assert_eq!(
            all.redis.hash("l").await.values().collect::<Vec<_>>(),
            ["1"]
        );
        guard.unlock().await.unwrap();
        assert!(!all.redis.exists("l").await);
    }
    proxy.on(named("WAIT"), Action::DropReply).always();
    for _ in 0..3 {
        let (outcome, took) = timed(async { client.lock("l").try_lock().await }).await;
        assert!(not_replicated(outcome).is_undone());
        assert!(took < TIMEOUT + SLACK, "{took:?}");
        assert!(!all.redis.exists("l").await);
    }
}

/// The client closes a half-open connection and uses another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_abandoned() {
    let all = Replicated::start(1).await;
    let proxy = Proxy::start(&all.master).await;
    let client = Client::builder().url(proxy.url());
    let client = build(client.replica_ack(require(TIMEOUT))).await;
    proxy.on(named("WAIT"), Action::DropReply);
    eventually(SOON, "it is granted again", async || {
        match client.lock("l").try_lock().await {
            Ok(guard) => {
                guard.unwrap().unlock().await.unwrap();
                true
            }
            outcome => {
                not_replicated(outcome);
                false
            }
        }
    })
    .await;
}

/// A frozen master does not answer, and the acquire still ends in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_falls_silent_during_a_wait_is_reported_and_settled_later() {
    let all = Replicated::start(1).await;
    let proxy = Proxy::start(&all.master).await;
    let client = Client::builder().url(proxy.url());
    // On a busy machine the test may see the grant seconds later.
    let limit = ms(5_000);
    let client = client.command_timeout(limit);
    let client = build(client.replica_ack(require(limit))).await;
    turn(&client.lock("l")).await;
    all.replicas[0].pause();
    let lock = client.lock("l");
    let asking = tokio::spawn(async move { timed(async { lock.try_lock().await }).await });
    eventually(SOON, "it is granted", async || all.redis.exists("l").await).await;
    proxy.blackhole(Direction::ToServer);
    let (outcome, took) = asking.await.unwrap();
    let failed = not_replicated(outcome);
    assert!(!failed.is_undone() && Error::from(failed).may_be_held());
    assert!(took < limit * 2 + SLACK, "{took:?}");
    assert!(all.redis.exists("l").await);
    proxy.heal();
    eventually(SOON, "it is undone", async || !all.redis.exists("l").await).await;
}

/// A master that requires replicas for writes refuses the acquire with `NOREPLICAS`. If it begins to do
/// so after the grant, it also refuses to undo the acquire. The client undoes it when the replicas are
/// back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_refused_without_replicas_is_undone_when_they_are_back() {
    let all = Replicated::start_with(1, |server| {
        let server = server.arg("--min-replicas-to-write", "1");
        server.arg("--min-replicas-max-lag", "4")
    })
    .await;
    // The master counts lag in whole seconds and checks it once a second. This limit is longer.
    let limit = ms(8_000);
    let client = Client::builder()
        .url(all.master.url())
        .command_timeout(limit);
    let client = build(client.replica_ack(require(ms(7_900)))).await;
    acquired(&client.lock("l")).await.unlock().await.unwrap();
    all.replicas[0].pause();
    let (outcome, took) = timed(async { client.lock("l").try_lock().await }).await;
    let failed = not_replicated(outcome);
    assert!(
        !failed.is_undone() && took < limit + SLACK,
        "{failed:?} {took:?}"
    );
    // The master still has the hold that the client could not release, and grants nothing.
    assert!(all.redis.exists("l").await);
    let error = client
        .lock("m")
        .try_lock()
        .wait(ms(2_500))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "NOREPLICAS"),
        "{error:?}"
    );
    all.replicas[0].resume();
    eventually(SOON, "it is undone", async || !all.redis.exists("l").await).await;
    acquired(&client.lock("l")).await.unlock().await.unwrap();
}

#[tokio::test]
async fn settings_that_cannot_be_met_are_refused() {
    let of = |ack| {
        let builder = Client::builder().url("redis://127.0.0.1:1").lazy(true);
        builder.command_timeout(ms(1000)).replica_ack(ack)
    };
    let count = |count, timeout| ReplicaAck::require(Replicas::Count(count)).timeout(timeout);
    let zero = Duration::ZERO;
    for (ack, why) in [
        (ReplicaAck::best_effort().timeout(zero), "at least 1ms"),
        (count(1, zero), "at least 1ms"),
        (count(1, ms(1001)), "command_timeout=1s"),
        (count(0, ms(1000)), "ReplicaAck::Off"),
    ] {
        let error = of(ack).build().await.unwrap_err();
        assert!(matches!(&error, Error::Invalid { what, .. } if *what == "replica_ack"));
        assert!(error.to_string().contains(why), "{error}");
    }
    of(count(1, ms(1000))).build().await.unwrap();
}
