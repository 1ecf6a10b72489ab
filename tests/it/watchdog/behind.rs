//! A service that fails over behind one address. The old master stays as a replica, and closes no connection.

use std::sync::atomic::{AtomicBool, Ordering};

use lockdog::{Client, Error, Guard, Semaphore};
use tokio::runtime::Builder;

use super::{LEASE, SAFETY, builder, connected, is_renewal};
use crate::support::prelude::{LONG, ms};
use crate::support::{Action, Proxy, Redis, Replicated, dead_port, eventually};
use crate::turn::{answered, renewed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_renewed_at_the_master_that_took_over() {
    let (all, address) = behind_an_address().await;
    let client = connected(builder(address.url()).watchdog_lease(LEASE * 2)).await;
    let guard = client.lock("a").lock().await.unwrap();
    let renewing = || {
        let sent = address.commands();
        let renewals = sent.iter().filter(|it| is_renewal(&it.args));
        renewals.map(|it| it.connection).collect::<Vec<u64>>()
    };
    renewed(&[&guard]).await;
    let last = *renewing().last().expect("it was renewed");
    let master = fail_over(&all, &address, all.replicas[0].port()).await;
    unlock_renewed(&master, guard).await;
    assert_ne!(renewing().last(), Some(&last));
    client.shutdown().await;
    master.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_lock_is_released_at_the_master_that_took_over() {
    let (all, address) = behind_an_address().await;
    let client = connected(builder(address.url())).await;
    open_own_connection(&client, &all).await;
    let guard = client.lock("a").lock().lease(LONG).await.unwrap();
    let master = fail_over(&all, &address, all.replicas[0].port()).await;
    drop(guard);
    master.eventually_gone("a").await;
    client.shutdown().await;
    master.assert_clean().await;
}

/// The old master answers a PING, so the pool would give its connections to the next caller again.
#[cfg(feature = "deadpool")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_only_a_pool_leaves_the_old_master() {
    let (all, address) = behind_an_address().await;
    let pool = deadpool_redis::Config::from_url(address.url());
    let pool = pool.builder().unwrap().max_size(4);
    let pool = pool.runtime(deadpool_redis::Runtime::Tokio1).build();
    let builder = Client::builder().pool(pool.unwrap());
    let client = connected(builder.watchdog_lease(LEASE * 2)).await;
    let guard = client.lock("a").lock().await.unwrap();
    renewed(&[&guard]).await;
    let master = fail_over(&all, &address, all.replicas[0].port()).await;
    unlock_renewed(&master, guard).await;
    client.shutdown().await;
    master.assert_clean().await;
}

/// It refuses each script while it has no link to the new master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_master_that_serves_no_old_data_is_left() {
    let (all, address) = behind_an_address().await;
    let serve = ["CONFIG", "SET", "replica-serve-stale-data", "no"];
    all.redis.cmd(&serve).await;
    let client = connected(builder(address.url()).watchdog_lease(LEASE * 2)).await;
    let guard = client.lock("a").lock().await.unwrap();
    renewed(&[&guard]).await;
    let master = fail_over(&all, &address, dead_port()).await;
    unlock_renewed(&master, guard).await;
    // Of the watchdog, and of the caller.
    assert!(all.redis.errorstats().await["MASTERDOWN"] >= 2);
    client.shutdown().await;
    master.assert_clean().await;
}

/// It refuses each script until it has loaded the data of the new master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_master_that_loads_is_left() {
    let (all, address) = behind_an_address().await;
    let client = connected(builder(address.url()).watchdog_lease(LEASE * 2)).await;
    open_own_connection(&client, &all).await;
    let master = fail_over(&all, &address, dead_port()).await;
    let loads = "-LOADING Redis is loading the dataset in memory".to_owned();
    let refused = address.on(is_renewal, Action::ReplyWith(loads));
    let guard = client.lock("a").lock().await.unwrap();
    refused.wait_hits(1).await;
    unlock_renewed(&master, guard).await;
    let sent = address.commands();
    let renewals = sent.iter().filter(|it| is_renewal(&it.args));
    let on: Vec<u64> = renewals.map(|it| it.connection).collect();
    assert!(!on[1..].contains(&on[0]), "{on:?}");
    client.shutdown().await;
    master.assert_clean().await;
}

/// The old master gets nothing from the new one, so it does not have the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_the_old_master_never_had_is_renewed_at_the_new_one() {
    let (all, address) = behind_an_address().await;
    let client = connected(builder(address.url()).watchdog_lease(LEASE * 2)).await;
    open_own_connection(&client, &all).await;
    let master = fail_over(&all, &address, dead_port()).await;
    let guard = client.lock("a").lock().await.unwrap();
    assert!(!all.redis.exists("a").await);
    unlock_renewed(&master, guard).await;
    client.shutdown().await;
    master.assert_clean().await;
}

/// The old master answers that it does not have the lock. Its connection ends before it says that it is a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_not_lost_if_the_connection_ends_after_the_answer_of_the_old_master() {
    let (all, address) = behind_an_address().await;
    let client = connected(builder(address.url()).watchdog_lease(LEASE * 2)).await;
    open_own_connection(&client, &all).await;
    let master = fail_over(&all, &address, dead_port()).await;
    let was_renewal = AtomicBool::new(false);
    let is_question = move |args: &[String]| {
        let follows = was_renewal.swap(is_renewal(args), Ordering::Relaxed);
        follows && args == ["INFO", "replication"]
    };
    let question = address.on(is_question, Action::ExecuteThenCut);
    let guard = client.lock("a").lock().await.unwrap();
    assert!(!all.redis.exists("a").await);
    question.wait_hits(1).await;
    unlock_renewed(&master, guard).await;
    client.shutdown().await;
    master.assert_clean().await;
}

/// Without a lease, nothing else would ever free the permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_the_old_master_never_had_is_released_at_the_new_one() {
    let (all, address) = behind_an_address().await;
    let client = connected(builder(address.url())).await;
    let seats = used_semaphore(&client).await;
    let master = fail_over(&all, &address, dead_port()).await;
    let permit = seats.acquire().await.unwrap();
    assert_eq!(all.redis.ask::<i64>(&["GET", "s"]).await, 1);
    assert_eq!(master.ask::<i64>(&["GET", "s"]).await, 0);
    drop(permit);
    eventually_free(&seats).await;
    client.shutdown().await;
}

/// The permit was acquired on another runtime, whose connection leads to the new master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_the_old_master_answers_is_repeated_at_the_new_one() {
    let (all, address) = behind_an_address().await;
    let client = connected(builder(address.url())).await;
    let seats = used_semaphore(&client).await;
    let master = fail_over(&all, &address, dead_port()).await;
    let acquire = seats.acquire();
    let elsewhere = move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(acquire.into_future()).unwrap()
    };
    let permit = tokio::task::spawn_blocking(elsewhere).await.unwrap();
    assert_eq!(master.ask::<i64>(&["GET", "s"]).await, 0);
    let error = permit.release().await.unwrap_err();
    assert!(matches!(error, Error::UnlockUnconfirmed(_)), "{error}");
    eventually(SAFETY, "the second permit is free", async || {
        master.ask::<i64>(&["GET", "s"]).await == 1
    })
    .await;
    client.shutdown().await;
}

/// A latch without a count is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_the_old_master_never_had_is_not_open() {
    let (all, address) = behind_an_address().await;
    let client = connected(builder(address.url())).await;
    open_own_connection(&client, &all).await;
    let master = fail_over(&all, &address, dead_port()).await;
    let latch = client.count_down_latch("gate");
    assert!(latch.try_set_count(1).await.unwrap());
    assert!(!all.redis.exists("gate").await && master.exists("gate").await);
    let is_open = answered(async || latch.wait_zero_within(ms(2_000)).await).await;
    assert!(!is_open);
    latch.count_down().await.unwrap();
    assert!(answered(async || latch.wait_zero_within(SAFETY).await).await);
    client.shutdown().await;
}

/// A master with a replica, and the address at which clients reach the master.
async fn behind_an_address() -> (Replicated, Proxy) {
    let all = Replicated::start(1).await;
    let address = Proxy::start(&all.master).await;
    (all, address)
}

/// The client's own thread opens its connection, for a release.
async fn open_own_connection(client: &Client, all: &Replicated) {
    drop(client.lock("before").lock().lease(LONG).await.unwrap());
    all.redis.eventually_gone("before").await;
}

/// A semaphore of one permit. This runtime opens its connection, and the client's own thread opens one for a release.
async fn used_semaphore(client: &Client) -> Semaphore {
    let seats = client.semaphore("s");
    assert!(seats.try_set_permits(1).await.unwrap());
    drop(seats.acquire().await.unwrap());
    eventually_free(&seats).await;
    seats
}

async fn eventually_free(seats: &Semaphore) {
    eventually(SAFETY, "the permit is free", async || {
        seats.available().await.unwrap() == 1
    })
    .await;
}

/// The lock "a" is renewed, and this master has it until it is unlocked.
async fn unlock_renewed(master: &Redis, guard: Guard) {
    renewed(&[&guard]).await;
    assert!(guard.is_valid() && master.exists("a").await);
    guard.unlock().await.unwrap();
}

/// The replica becomes the master at the address of the clients. The old master becomes a replica of the server at this
/// port.
async fn fail_over(all: &Replicated, address: &Proxy, followed: u16) -> Redis {
    let replica = &all.replicas[0];
    let master = replica.redis().await;
    // What was written before this is at the replica then.
    all.redis.cmd(&["SET", "last", "1"]).await;
    eventually(SAFETY, "the replica has everything", async || {
        master.exists("last").await
    })
    .await;
    master.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    master.cmd(&["DEL", "last"]).await;
    address.aim_at(replica.port());
    let port = followed.to_string();
    all.redis.cmd(&["REPLICAOF", "127.0.0.1", &port]).await;
    let info: String = all.redis.ask(&["INFO", "replication"]).await;
    assert!(info.contains("role:slave"), "{info}");
    assert!(address.connections() >= 2, "they stay open");
    master
}
