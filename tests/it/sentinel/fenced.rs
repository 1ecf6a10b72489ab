//! The tokens of a fenced lock while another server becomes the master. FE1 and FE2 are invariants of
//! `docs/design.md`.

use lockdog::error::LostReason;
use lockdog::{Client, Guard, Lock, Owner};

use super::SOON;
use crate::kinds::{FENCED, FENCED_FROM_ONE, Kind};
use crate::support::prelude::LONG;
use crate::support::{Sentinels, eventually};

/// FE1 and FE2. Tokens from one grow only if the new master has the counter: no clock makes them grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_continue_at_the_new_master_and_a_hold_keeps_its_token() {
    let all = Sentinels::start().await;
    let clients = [connect(&all).await, connect(&all).await];
    let mut through = Vec::new();
    for kind in [&FENCED, &FENCED_FROM_ONE] {
        let [lock, other] = [0, 1].map(|client: usize| kind.lock(&clients[client], kind.object));
        let mut given = Vec::new();
        for lock in [&lock, &other, &lock] {
            given.push(next_token(lock).await);
        }
        let held = lock.lock().await.unwrap();
        given.push(token(&held));
        let waiting = other.try_lock().owner(&Owner::new()).wait(LONG);
        let waiting = tokio::spawn(waiting.into_future());
        through.push((lock, other, given, held, waiting));
    }
    let old = &all.servers[0];
    let redis = old.redis().await;
    eventually(SOON, "both waiters listen", async || {
        let channels = redis.channels().await;
        let of = |kind: &Kind| format!("redisson_lock__channel:{{{}}}", kind.object);
        channels.contains(&of(&FENCED)) && channels.contains(&of(&FENCED_FROM_ONE))
    })
    .await;
    let new = all.failover().await;
    assert_ne!(new.port(), old.port());
    // It grants nothing any more.
    all.await_demotion(old).await;
    for (lock, other, mut given, held, waiting) in through {
        let nested = lock.lock().await.unwrap();
        assert_eq!(token(&nested), token(&held));
        // The nested acquire has left the counter as it was.
        assert_eq!(other.last_token().await.unwrap(), Some(token(&held)));
        nested.unlock().await.unwrap();
        assert!(held.is_valid() && !waiting.is_finished());
        held.unlock().await.unwrap();
        let next = tokio::time::timeout(SOON, waiting).await.expect("in time");
        let next = next.unwrap().unwrap().expect("it is free");
        given.push(token(&next));
        next.unlock().await.unwrap();
        for lock in [&lock, &other] {
            given.push(next_token(lock).await);
        }
        assert!(given.is_sorted_by(|one, next| one < next), "{given:?}");
        assert_eq!(other.last_token().await.unwrap().as_ref(), given.last());
    }
    for client in clients {
        client.shutdown().await;
    }
}

/// FE1 while the servers' clocks agree: no replica has the last tokens when the master dies. Tokens from one are given
/// again, so the counter is behind, and only the clock makes the others grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_token_is_larger_though_the_new_master_does_not_know_the_last_ones() {
    let all = Sentinels::start().await;
    let clients = [connect(&all).await, connect(&all).await];
    let [lock, other] = [0, 1].map(|client: usize| clients[client].fenced_lock("orders"));
    let from_one = clients[1].fenced_lock_from_one("rows");
    // Both clients have connected to this server before.
    let mut given = vec![next_token(&lock).await, next_token(&other).await];
    assert_eq!(next_token(&from_one).await, 1);
    all.await_replication().await;
    for replica in &all.servers[1..] {
        replica.pause();
    }
    // The replicas are disconnected, so that no further write waits in their sockets.
    let old = &all.servers[0];
    let cut = old.redis().await.cut_replicas().await;
    assert_eq!(cut, 2);
    given.push(next_token(&other).await);
    assert_eq!(next_token(&from_one).await, 2);
    let held = lock.lock().await.unwrap();
    let last = token(&held);
    given.push(last);
    old.kill();
    for replica in &all.servers[1..] {
        replica.resume();
    }
    let new = all.await_switch_from(old.port()).await;
    assert_ne!(new.port(), old.port());
    let counter = "redisson_lock_token:{orders}";
    let known: Option<u64> = new.redis().await.ask(&["GET", counter]).await;
    assert_eq!(known, Some(given[1]), "of {given:?}");
    let lost = tokio::time::timeout(SOON, held.lost()).await;
    let lost = lost.expect("the holder learns of the loss well within a third of its lease");
    assert_eq!(lost.reason(), LostReason::NotOurs);
    // A resource that has seen the next token refuses its late write.
    assert_eq!(token(&held), last);
    drop(held);
    for lock in [&other, &lock] {
        given.push(next_token(lock).await);
    }
    assert!(given.is_sorted_by(|one, next| one < next), "{given:?}");
    assert_eq!(next_token(&from_one).await, 2);
    for client in clients {
        client.shutdown().await;
    }
}

/// The test is shorter than a third of the lease, so no regular renewal comes. Each command waits for the switch.
async fn connect(all: &Sentinels) -> Client {
    let client = Client::builder().url(all.url()).watchdog_lease(SOON * 10);
    client.command_timeout(SOON).build().await.unwrap()
}

/// Acquires a lock that is free or will be soon, and releases it.
async fn next_token(lock: &Lock) -> u64 {
    let guard = lock.lock().await.unwrap();
    let token = token(&guard);
    guard.unlock().await.unwrap();
    token
}

fn token(guard: &Guard) -> u64 {
    guard.token().expect("a fenced lock issues tokens")
}
