//! A call outside a tokio runtime is an error and no panic.

use futures_util::FutureExt;
use lockdog::{Client, Error, MultiLock, Owner, RedLock, Result};

use crate::support::prelude::SOON;
use crate::support::{RedisServer, eventually};

#[test]
fn a_call_outside_a_runtime_is_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (server, client) = runtime.block_on(async {
        let server = RedisServer::start().await;
        let client = Client::connect(server.url()).await.unwrap();
        (server, client)
    });
    let locks = || ["a", "b", "c"].map(|name| client.lock(name));
    let (lock, multi, red) = (
        client.lock("l"),
        MultiLock::new(locks()),
        RedLock::new(locks()),
    );
    let guard = runtime.block_on(lock.lock().into_future()).unwrap();
    let quorum = runtime.block_on(red.lock().into_future()).unwrap();

    for (call, told) in [
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
        ("Guard::unlock", outside(guard.unlock())),
        ("Guard::unlock of a quorum", outside(quorum.unlock())),
    ] {
        let is_told = matches!(
            told,
            Error::Invalid {
                what: "runtime",
                ..
            }
        );
        assert!(is_told, "{call}: {told}");
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

/// Polls the call once, outside every runtime.
fn outside<T>(call: impl IntoFuture<Output = Result<T>>) -> Error {
    let outcome = call.into_future().now_or_never();
    let outcome = outcome.expect("it does not wait");
    outcome.err().expect("there is no runtime")
}
