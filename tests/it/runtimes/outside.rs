//! A call outside a tokio runtime is an error and no panic.

use futures_util::FutureExt;
use lockdog::{Client, Error, MultiLock, Owner, RedLock, Result};
use tokio::runtime::{Builder, Runtime};

use crate::support::prelude::SOON;
use crate::support::{RedisServer, eventually};

#[test]
fn a_call_outside_a_runtime_is_an_error() {
    let Fixture {
        runtime,
        server,
        client,
    } = Fixture::start();
    let locks = || ["a", "b", "c"].map(|name| client.lock(name));
    let (lock, multi, red) = (
        client.lock("l"),
        MultiLock::new(locks()),
        RedLock::new(locks()),
    );
    let guard = runtime.block_on(lock.lock().into_future()).unwrap();
    let quorum = runtime.block_on(red.lock().into_future()).unwrap();

    for (call, error) in [
        ("connect", outside(Client::connect(server.url()))),
        ("provision", outside(client.provision())),
        ("diagnose", outside(client.diagnose())),
        ("lock", outside(lock.lock())),
        (
            "lock with an owner",
            outside(lock.lock().owner(&Owner::new())),
        ),
        ("try_lock", outside(lock.try_lock())),
        ("try_lock with a wait", outside(lock.try_lock().wait(SOON))),
        ("with", outside(lock.with(|_| async {}))),
        ("unlock", outside(lock.unlock())),
        ("force_unlock", outside(lock.force_unlock())),
        ("is_locked", outside(lock.is_locked())),
        ("is_held", outside(lock.is_held())),
        ("hold_count", outside(lock.hold_count())),
        ("remaining_ttl", outside(lock.remaining_ttl())),
        ("holder", outside(lock.holder())),
        ("MultiLock::lock", outside(multi.lock())),
        ("MultiLock::try_lock", outside(multi.try_lock())),
        ("MultiLock::unlock", outside(multi.unlock())),
        ("MultiLock::is_held", outside(multi.is_held())),
        ("RedLock::lock", outside(red.lock())),
        ("RedLock::try_lock", outside(red.try_lock())),
        ("RedLock::unlock", outside(red.unlock())),
        ("Client::inspect", outside(client.inspect("l"))),
        ("Client::connections", outside(client.connections())),
        ("Locks::next", outside(client.locks("*").next())),
        ("Guard::extend", outside(guard.extend(SOON))),
        ("Guard::extend of a quorum", outside(quorum.extend(SOON))),
        ("Guard::unlock", outside(guard.unlock())),
        ("Guard::unlock of a quorum", outside(quorum.unlock())),
    ] {
        assert_no_runtime(call, &error);
    }
    // The background releases the locks of the guards.
    runtime.block_on(async {
        let redis = server.redis().await;
        for name in ["l", "a", "b", "c"] {
            eventually(SOON, "it is free", async || !redis.exists(name).await).await;
        }
        redis.assert_clean().await;
        client.shutdown().await;
    });
}

#[test]
fn a_call_for_permits_a_latch_or_an_election_outside_a_runtime_is_an_error() {
    let Fixture {
        runtime,
        server: _server,
        client,
    } = Fixture::start();
    let leased = client.permit_semaphore("leased");
    let plain = client.semaphore("plain");
    let latch = client.count_down_latch("latch");
    let election = client.election("election");
    let rw = client.read_write_lock("rw");
    let (leased_permit, permit, leadership, reader) = runtime.block_on(async {
        leased.set_permits(2).await.unwrap();
        assert!(plain.try_set_permits(2).await.unwrap());
        assert!(latch.try_set_count(1).await.unwrap());
        (
            leased.acquire().await.unwrap(),
            plain.acquire().await.unwrap(),
            election.campaign("here").await.unwrap(),
            rw.read().lock().await.unwrap(),
        )
    });
    let upgraded = reader.upgrade().into_future().now_or_never();
    let upgraded = upgraded.expect("it does not wait").err();
    let upgraded = upgraded.and_then(|error| error.error().cloned());

    for (call, error) in [
        ("PermitSemaphore::acquire", outside(leased.acquire())),
        (
            "PermitSemaphore::try_acquire",
            outside(leased.try_acquire()),
        ),
        (
            "PermitSemaphore::try_acquire with a wait",
            outside(leased.try_acquire().wait(SOON)),
        ),
        ("PermitSemaphore::available", outside(leased.available())),
        (
            "PermitSemaphore::set_permits",
            outside(leased.set_permits(3)),
        ),
        (
            "PermitSemaphore::add_permits",
            outside(leased.add_permits(1)),
        ),
        ("LeasedPermit::extend", outside(leased_permit.extend(SOON))),
        ("LeasedPermit::release", outside(leased_permit.release())),
        ("Semaphore::acquire", outside(plain.acquire())),
        ("Semaphore::acquire_many", outside(plain.acquire_many(0))),
        ("Semaphore::try_acquire", outside(plain.try_acquire())),
        ("Semaphore::drain", outside(plain.drain())),
        ("Semaphore::available", outside(plain.available())),
        ("Semaphore::holders", outside(plain.holders())),
        ("Semaphore::release", outside(plain.release(1))),
        ("Semaphore::add_permits", outside(plain.add_permits(1))),
        ("Permit::release", outside(permit.release())),
        ("CountDownLatch::count", outside(latch.count())),
        (
            "CountDownLatch::try_set_count",
            outside(latch.try_set_count(2)),
        ),
        ("CountDownLatch::count_down", outside(latch.count_down())),
        ("CountDownLatch::wait_zero", outside(latch.wait_zero())),
        (
            "CountDownLatch::wait_zero_within",
            outside(latch.wait_zero_within(SOON)),
        ),
        ("CountDownLatch::delete", outside(latch.delete())),
        ("Election::campaign", outside(election.campaign("there"))),
        (
            "Election::campaign with a wait",
            outside(election.campaign("there").wait(SOON)),
        ),
        (
            "Election::run",
            outside(election.run("there", |_| async {})),
        ),
        ("Election::leader", outside(election.leader())),
        ("Election::force_resign", outside(election.force_resign())),
        ("Leaders::next", outside(election.observe().next())),
        (
            "Leadership::proclaim",
            outside(leadership.proclaim("there")),
        ),
        ("Leadership::resign", outside(leadership.resign())),
        ("ReadWriteLock::holders", outside(rw.holders())),
        (
            "ReadGuard::upgrade",
            upgraded.expect("the client has an error"),
        ),
    ] {
        assert_no_runtime(call, &error);
    }
    // No call had an effect, and the background releases what the values held.
    runtime.block_on(async {
        eventually(SOON, "the permits are free", async || {
            leased.available().await.unwrap() == 2 && plain.available().await.unwrap() == 2
        })
        .await;
        eventually(SOON, "no client leads", async || {
            election.leader().await.unwrap().is_none()
        })
        .await;
        eventually(SOON, "no owner reads", async || {
            rw.holders().await.unwrap().is_empty()
        })
        .await;
        assert_eq!(latch.count().await.unwrap(), 1);
        client.shutdown().await;
    });
}

/// A client that was connected in a runtime, which then runs only in `block_on`.
struct Fixture {
    runtime: Runtime,
    server: RedisServer,
    client: Client,
}

impl Fixture {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (server, client) = runtime.block_on(async {
            let server = RedisServer::start().await;
            let client = Client::connect(server.url()).await.unwrap();
            (server, client)
        });
        Self {
            runtime,
            server,
            client,
        }
    }
}

fn assert_no_runtime(call: &str, error: &Error) {
    let is_no_runtime = matches!(
        error,
        Error::Invalid {
            what: "runtime",
            ..
        }
    );
    assert!(is_no_runtime, "{call}: {error}");
}

/// Polls the call once, outside every runtime.
fn outside<T>(call: impl IntoFuture<Output = Result<T>>) -> Error {
    let outcome = call.into_future().now_or_never();
    let outcome = outcome.expect("it does not wait");
    outcome.err().expect("there is no runtime")
}
