//! A caller whose runtime blocks or whose future is not polled any more. The lock is not lost, and no
//! other client is delayed.

use std::future::IntoFuture;
use std::time::Duration;

use lockdog::error::InstanceState;
use lockdog::report::Verdict;
use lockdog::{Client, Error, Guard, RedLock};
use tokio::runtime::{Builder, Runtime};

use super::fixture::{Fixture, give_back, take};
use super::is_acquire;
use crate::faults::poll::poll_n_times;
use crate::red_lock::{SOON, lock_of, ms};
use crate::support::{Action, Gate, Proxy, eventually};

use super::NAME;

/// Longer than any test lasts, so that no lease ends what is to be released.
const LONG: Duration = Duration::from_secs(100);

#[tokio::test]
async fn a_runtime_stopped_after_lock_loses_no_instance() {
    let test = Fixture::proxied(3).await;
    know_the_script(&test).await;
    let urls = urls(&test);
    let late = hold_reply(&test.proxies[2]);
    // The third server is asked again after three seconds, and at each regular extension: after ten.
    let (runtime, clients, guard) = stopped(move |runtime| {
        let clients = runtime.block_on(clients(urls, Duration::from_secs(30)));
        let lock = lock_of(&clients, NAME);
        let guard = runtime.block_on(lock.lock().into_future()).unwrap();
        assert_eq!(guard.margin(), 0, "the third server has not answered");
        (clients, guard)
    })
    .await;
    late.wait_reached().await;
    assert!(test.is_taken(2).await, "the third server granted it");
    late.open();
    // A busy machine may answer the first of these too late.
    eventually(SOON * 2, "the third server counts", async || {
        guard.margin() == 1
    })
    .await;
    assert!(guard.is_valid());
    assert_eq!(guard.verdict(), Verdict::Held);
    drop(guard);
    test.await_taken(0).await;
    end(runtime, clients).await;
}

#[tokio::test]
async fn a_runtime_stopped_after_a_busy_try_lock_leaves_no_instance_locked() {
    let test = Fixture::proxied(3).await;
    know_the_script(&test).await;
    for server in &test.servers[..2] {
        let redis = server.redis().await;
        redis.cmd(&["HSET", NAME, "other:1.1", "1"]).await;
    }
    let urls = urls(&test);
    let late = hold_reply(&test.proxies[2]);
    let (runtime, clients, ()) = stopped(move |runtime| {
        let clients = runtime.block_on(clients(urls, LONG));
        let lock = lock_of(&clients, NAME);
        let taken = runtime.block_on(lock.try_lock().into_future()).unwrap();
        assert!(taken.is_none(), "two servers have it for another");
        (clients, ())
    })
    .await;
    late.wait_reached().await;
    assert!(test.is_taken(2).await, "the third server granted it");
    late.open();
    eventually(SOON * 2, "the third server has it no more", async || {
        !test.is_taken(2).await
    })
    .await;
    end(runtime, clients).await;
}

#[tokio::test]
async fn an_unpolled_acquire_does_not_block_other_owners() {
    let test = Fixture::proxied(3).await;
    know_the_script(&test).await;
    let mine = test.clients_with(|it| it.watchdog_lease(LONG)).await;
    let (mine, yours) = (lock_of(&mine, NAME), test.direct_lock().await);
    let left = granted_after_its_last_poll(&test, &mine).await;
    let guard = take(&yours).await;
    give_back(guard).await;
    // When it is polled again it reports that the client gave the call up.
    assert!(!matches!(left.await, Ok(Some(_))));
    // The last hold of the other client may not be released yet.
    test.await_taken(0).await;
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 1).await;
    give_back(guard).await;
    test.await_taken(0).await;
}

#[tokio::test]
async fn abandoned_nested_acquires_do_not_harm_the_outer_hold() {
    let test = Fixture::proxied(3).await;
    let clients = test
        .clients_with(|it| it.watchdog_lease(Duration::from_secs(6)))
        .await;
    let lock = lock_of(&clients, NAME);
    let outer = take(&lock).await;
    eventually(SOON, "it has all", async || outer.margin() == 1).await;
    // A test in virtual time checks that no round fails because of them: `quorum` in
    // `crates/lockdog-test`.
    let (mut left, mut pending) = (Vec::new(), 0);
    for n in 0..100 {
        // Each needs it for longer than the one before, so that every instance is asked.
        let lease = Duration::from_secs(10) + ms(50) * n;
        let mut inner = Box::pin(lock.lock().lease(lease).into_future());
        // A thread that the machine stops during its first poll may find the answer there.
        if poll_n_times(&mut inner, 1, ms(0)).await.is_some() {
            continue;
        }
        pending += 1;
        tokio::time::sleep(ms(30)).await;
        if n % 10 == 0 {
            left.push(inner);
        } else {
            drop(inner);
        }
        assert_healthy(&outer);
    }
    assert!(pending > 50, "only {pending} acquires were dropped or left");
    // Beyond the lease and each of the longer ones.
    tokio::time::sleep(Duration::from_secs(7)).await;
    eventually(SOON, "it is held", async || {
        assert_healthy(&outer);
        outer.verdict() == Verdict::Held && outer.margin() == 1
    })
    .await;
    drop(left);
    give_back(outer).await;
    test.await_taken(0).await;
}

/// The client undoes the grants of such a call soon, also with a long poll cap.
#[tokio::test]
async fn an_abandoned_acquire_locks_nothing_for_a_poll_cap() {
    let test = Fixture::proxied(3).await;
    know_the_script(&test).await;
    let mine = test
        .clients_with(|it| it.watchdog_lease(LONG).poll_cap(LONG))
        .await;
    let (mine, yours) = (lock_of(&mine, NAME), test.direct_lock().await);
    let left = granted_after_its_last_poll(&test, &mine).await;
    eventually(SOON, "another client acquires it", async || {
        // Where the machine is too busy, too few instances answer in time.
        match yours.try_lock().await {
            Ok(Some(guard)) => {
                give_back(guard).await;
                true
            }
            Ok(None) | Err(Error::NoQuorum(_)) => false,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    drop(left);
}

/// One instance is busy, two did not answer before the background ended the call.
#[tokio::test]
async fn an_abandoned_try_lock_reports_the_missing_answers_and_not_a_busy_lock() {
    let test = Fixture::proxied(3).await;
    know_the_script(&test).await;
    let redis = test.servers[0].redis().await;
    redis.cmd(&["HSET", NAME, "other:1.1", "1"]).await;
    let mine = test.clients_with(|it| it.watchdog_lease(LONG)).await;
    let mine = lock_of(&mine, NAME);
    let replies: Vec<Gate> = test.proxies[1..].iter().map(hold_reply).collect();
    let mut left = Box::pin(mine.try_lock().into_future());
    // It is polled until the busy answer was read.
    let early = tokio::time::timeout(ms(150), &mut left).await;
    assert!(early.is_err(), "{early:?}");
    for gate in &replies {
        gate.wait_reached().await;
    }
    // The background ends it after twice the time limit of an instance.
    tokio::time::sleep(ms(1_500)).await;
    for gate in replies {
        gate.open();
    }
    let error = left
        .await
        .expect_err("two of three instances did not answer");
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
}

fn assert_healthy(guard: &Guard) {
    assert!(guard.is_valid(), "{:?}", guard.verdict());
    for instance in guard.instances() {
        let is_refused = matches!(
            &instance.state,
            InstanceState::Unreachable { cause, .. } if matches!(cause, Error::Closed)
        );
        assert!(!is_refused, "no client was shut down: {instance}");
    }
}

/// Does work on a runtime of one thread, which is frozen from then on.
async fn stopped<T: Send + 'static>(
    work: impl FnOnce(&Runtime) -> (Vec<Client>, T) + Send + 'static,
) -> (Runtime, Vec<Client>, T) {
    let work = move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (clients, done) = work(&runtime);
        (runtime, clients, done)
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// The held back reply is that of an executed acquire.
async fn know_the_script(test: &Fixture) {
    let lock = test.direct_lock().await;
    give_back(take(&lock).await).await;
    test.await_taken(0).await;
}

async fn end(runtime: Runtime, clients: Vec<Client>) {
    for client in clients {
        client.shutdown().await;
    }
    runtime.shutdown_background();
}

fn urls(test: &Fixture) -> Vec<String> {
    let proxies = test.proxies.iter();
    proxies.map(|proxy| proxy.url().to_owned()).collect()
}

async fn clients(urls: Vec<String>, lease: Duration) -> Vec<Client> {
    let mut clients = Vec::new();
    for url in urls {
        let client = Client::builder().url(url).watchdog_lease(lease).build();
        clients.push(client.await.unwrap());
    }
    clients
}

/// An acquire that was polled once, and that every server granted afterwards.
async fn granted_after_its_last_poll(
    test: &Fixture,
    lock: &RedLock,
) -> impl Future<Output = lockdog::Result<Option<Guard>>> + use<> {
    let replies: Vec<Gate> = test.proxies.iter().map(hold_reply).collect();
    let mut left = Box::pin(lock.try_lock().into_future());
    assert!(poll_n_times(&mut left, 1, ms(0)).await.is_none());
    for gate in replies {
        // The server has granted it.
        gate.wait_reached().await;
        gate.open();
    }
    left
}

/// Holds back the reply to the next acquire.
fn hold_reply(proxy: &Proxy) -> Gate {
    let gate = Gate::new();
    proxy.on(is_acquire, Action::HoldReply(gate.clone()));
    gate
}
