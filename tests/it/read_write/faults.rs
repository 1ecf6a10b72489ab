//! Lost, late and repeated commands, lost keys, and servers that refuse.

use std::time::Duration;

use lockdog::{Client, Error, Guard, Owner, ReadWriteLock};

use super::{
    ANNOUNCEMENT, Fixture, LEASE, LONG, NAME, SOON, may_read, may_write, ms, read, reader,
    within_soon, write, writer,
};
use crate::support::{Action, Gate, Proxy, eventually, until_ok};
use crate::turn::renewed;

/// A client behind a proxy. All scripts are loaded, so that a rule meets the first sending.
async fn behind_a_proxy(test: &Fixture) -> (Proxy, ReadWriteLock) {
    behind_a_proxy_for(test, ms(1_500)).await
}

/// A client with this command timeout.
async fn behind_a_proxy_for(test: &Fixture, patience: Duration) -> (Proxy, ReadWriteLock) {
    for script in [ACQUIRE, UNLOCK, RENEW] {
        test.redis.cmd(&["SCRIPT", "LOAD", script]).await;
    }
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(patience);
    let client = until_ok(SOON, async || client.clone().build().await).await;
    (proxy, client.read_write_lock(NAME))
}

/// A command whose reply is lost, or that runs twice, counts once.
#[tokio::test]
async fn a_repeated_command_counts_once() {
    let test = Fixture::new().await;
    let (proxy, rw) = behind_a_proxy_for(&test, SOON).await;
    let owner = Owner::new();
    for action in [Action::ExecuteThenCut, Action::Twice] {
        let faulty = async |script| {
            let rule = proxy.on(is(script), action.clone());
            move || async move { rule.wait_hits(1).await }
        };
        let hit = faulty(ACQUIRE).await;
        let one = rw.read().lock().owner(&owner).await.unwrap();
        hit().await;
        let hit = faulty(ACQUIRE).await;
        let two = rw.read().lock().owner(&owner).await.unwrap();
        hit().await;
        assert_eq!(count(&test).await, 2);
        let hit = faulty(UNLOCK).await;
        two.unlock().await.unwrap();
        hit().await;
        assert_eq!(count(&test).await, 1);
        let hit = faulty(ACQUIRE).await;
        let writes = one.upgrade().await.unwrap();
        hit().await;
        assert_eq!(test.mode().await, ("write".to_owned(), 2));
        let hit = faulty(UNLOCK).await;
        let reads = writes.downgrade().await.unwrap();
        hit().await;
        assert_eq!(test.mode().await, ("read".to_owned(), 1));
        let hit = faulty(UNLOCK).await;
        reads.unlock().await.unwrap();
        hit().await;
        let hit = faulty(ACQUIRE).await;
        let writes = rw.write().lock().owner(&owner).await.unwrap();
        hit().await;
        writes.unlock().await.unwrap();
        test.assert_clean().await;
    }
}

#[tokio::test]
async fn an_acquire_without_an_answer_is_an_error_and_is_undone() {
    let test = Fixture::new().await;
    let (proxy, rw) = behind_a_proxy(&test).await;
    let rule = proxy.on(is(ACQUIRE), Action::DropReply);
    let error = rw.read().lock().await.unwrap_err();
    assert!(error.is_timeout() && error.may_be_held(), "{error}");
    rule.wait_hits(1).await;
    test.assert_clean().await;
    let (proxy, rw) = behind_a_proxy(&test).await;
    let rule = proxy.on(is(ACQUIRE), Action::DropReply);
    let error = rw.write().try_lock().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    rule.wait_hits(1).await;
    test.assert_clean().await;
    let (proxy, rw) = behind_a_proxy(&test).await;
    let reads = rw.read().lock().await.unwrap();
    let rule = proxy.on(is(ACQUIRE), Action::DropReply);
    let error = reads.upgrade().await.unwrap_err();
    rule.wait_hits(1).await;
    assert!(error.error().is_some_and(Error::is_timeout), "{error:?}");
    // The read hold is kept, and the write hold is undone.
    let reads = error.into_guard().expect("it still reads");
    test.eventually_mode("read", 1).await;
    assert!(reads.is_valid());
    // The background undoes it, because this connection does not answer.
    drop(reads);
    test.assert_clean().await;
}

/// RW7: late commands of a hold do not change a later hold.
#[tokio::test]
async fn a_late_unlock_does_not_end_the_next_hold() {
    let test = Fixture::new().await;
    let (proxy, rw) = behind_a_proxy_for(&test, SOON).await;
    let owner = Owner::new();
    let outer = rw.read().lock().owner(&owner).await.unwrap();
    let writes = rw.write();
    drop(outer);
    test.assert_clean().await;
    let first = writes.lock().owner(&owner).await.unwrap();
    let gate = Gate::new();
    proxy.on(is(UNLOCK), Action::TwiceLate(gate.clone()));
    first.unlock().await.unwrap();
    let second = writes.lock().owner(&owner).await.unwrap();
    gate.open();
    gate.wait_passed().await;
    tokio::time::sleep(ms(100)).await;
    assert_eq!(test.mode().await, ("write".to_owned(), 1));
    second.unlock().await.unwrap();
    test.assert_clean().await;
}

/// A late acquire of a hold that ended is an orphan of one lease.
#[tokio::test]
async fn a_late_repetition_of_an_acquire_ends_with_its_lease() {
    let test = Fixture::new().await;
    let (proxy, rw) = behind_a_proxy(&test).await;
    let gate = Gate::new();
    proxy.on(is(ACQUIRE), Action::TwiceLate(gate.clone()));
    let reads = rw.read().lock().lease(ms(8_000)).await.unwrap();
    reads.unlock().await.unwrap();
    gate.open();
    gate.wait_passed().await;
    test.eventually_mode("read", 1).await;
    assert!(!may_write(&test.rw).await);
    drop(within_soon(writer(&test.rw)).await);
    test.assert_clean().await;
}

/// Cancelled at each of its awaits, a call leaves nothing: no hold, no announcement.
#[tokio::test]
async fn a_cancelled_call_leaves_nothing_behind() {
    let test = Fixture::new().await;
    let (proxy, rw) = behind_a_proxy(&test).await;
    for reads in [true, false] {
        for hold_reply in [true, false] {
            let gate = Gate::new();
            let action = match hold_reply {
                true => Action::HoldReply(gate.clone()),
                false => Action::HoldRequest(gate.clone()),
            };
            let rule = proxy.on(is(ACQUIRE), action);
            let abort = match reads {
                true => reader(&rw).abort_handle(),
                false => writer(&rw).abort_handle(),
            };
            gate.wait_reached().await;
            abort.abort();
            gate.open();
            rule.wait_hits(1).await;
            test.assert_clean().await;
        }
    }
    // While they wait.
    let other = write(&test.rw).await;
    let waiting = [reader(&rw).abort_handle(), writer(&rw).abort_handle()];
    test.somebody_waits().await;
    waiting.iter().for_each(|it| it.abort());
    other.unlock().await.unwrap();
    let other = read(&test.rw).await;
    let waits = writer(&rw);
    eventually(SOON, "it is announced", async || test.announced().await).await;
    waits.abort();
    eventually(SOON, "it is not announced", async || {
        !test.announced().await
    })
    .await;
    other.unlock().await.unwrap();
    test.assert_clean().await;
    // During a downgrade: at its read, and at the end of the write.
    for script in [ACQUIRE, UNLOCK] {
        let writes = write(&rw).await;
        let gate = Gate::new();
        let rule = proxy.on(is(script), Action::HoldReply(gate.clone()));
        let downgrade = tokio::spawn(writes.downgrade());
        gate.wait_reached().await;
        downgrade.abort();
        gate.open();
        rule.wait_hits(1).await;
        test.assert_clean().await;
    }
}

/// The announcement may be lost at any time: it provides fairness, not exclusion.
#[tokio::test]
async fn a_deleted_announcement_is_set_again_and_harms_nothing() {
    let test = Fixture::with(|it| it.poll_cap(ms(300))).await;
    let reads = read(&test.rw).await;
    let waits = writer(&test.rw);
    for _ in 0..2 {
        eventually(SOON, "it is announced", async || test.announced().await).await;
        test.redis.cmd(&["DEL", ANNOUNCEMENT]).await;
    }
    assert!(!waits.is_finished() && !may_write(&test.another().await).await);
    reads.unlock().await.unwrap();
    drop(within_soon(waits).await);
    test.assert_clean().await;
}

/// The timeout key of a watched read hold comes back with its next renewal.
#[tokio::test]
async fn a_deleted_timeout_key_is_written_again() {
    let test = Fixture::with(|it| it.watchdog_lease(LEASE)).await;
    let reads = read(&test.rw).await;
    let keys = test.redis.keys().await;
    let timeout = keys
        .iter()
        .find(|it| it.ends_with(":1"))
        .expect("it has one");
    test.redis.cmd(&["DEL", timeout]).await;
    eventually(SOON, "it is there again", async || {
        test.redis.exists(timeout).await
    })
    .await;
    assert!(reads.is_valid());
    reads.unlock().await.unwrap();
    test.assert_clean().await;
}

/// A server out of memory grants nothing new and keeps no partial hold. Held locks can be released.
#[tokio::test]
async fn a_server_out_of_memory_grants_nothing_and_releases_everything() {
    let test = Fixture::new().await;
    let reads = read(&test.rw).await;
    let other = test.client.read_write_lock("other");
    let writes = write(&other).await;
    let inner = other.read().lock().owner(&writes.owner()).await.unwrap();
    let before = test.redis.all_keys().await;
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let is_refused = |error: Error| match error {
        Error::Refused { code, .. } => assert_eq!(code, "OOM"),
        other => panic!("{other}"),
    };
    let stranger = Owner::new();
    is_refused(
        test.rw
            .read()
            .try_lock()
            .owner(&stranger)
            .await
            .unwrap_err(),
    );
    let fresh = test.client.read_write_lock("fresh");
    is_refused(fresh.write().try_lock().await.unwrap_err());
    is_refused(fresh.read().try_lock().await.unwrap_err());
    // A waiting writer cannot be announced and waits without an announcement.
    let waits = test.rw.write().try_lock().owner(&stranger).wait(ms(200));
    let waited = until_ok(SOON, async || waits.clone().await).await;
    assert!(waited.is_none());
    assert_eq!(test.redis.all_keys().await.len(), before.len());
    writes.unlock().await.unwrap();
    inner.unlock().await.unwrap();
    reads.unlock().await.unwrap();
    assert!(test.redis.keys().await.is_empty());
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    test.assert_clean().await;
}

/// Readers keep the lock for longer than their leases while the server is out of memory.
#[tokio::test]
async fn a_server_out_of_memory_renews_readers() {
    let test = Fixture::with(|it| it.watchdog_lease(LEASE)).await;
    let reads = read(&test.rw).await;
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = test.rw.read().try_lock().owner(&Owner::new()).await;
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("OOM"), "{refused}");
    let held: &Guard = &reads;
    // The server may have executed the first renewal before.
    for _ in 0..2 {
        renewed(&[held]).await;
    }
    assert!(reads.is_valid());
    reads.unlock().await.unwrap();
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    test.assert_clean().await;
}

/// A user that may not write one of the keys of a grant gets none: nothing is left, and nothing without a TTL.
#[tokio::test]
async fn a_grant_that_is_refused_half_way_is_undone() {
    for denied in ["-set", "-pexpire", "-hset"] {
        let test = Fixture::new().await;
        let rules = [
            "ACL", "SETUSER", "half", "on", ">pw", "~*", "&*", "+@all", denied,
        ];
        test.redis.cmd(&rules).await;
        let url = test.server.url().replace("redis://", "redis://half:pw@");
        let client = Client::builder().url(url).build().await.unwrap();
        let rw = client.read_write_lock(NAME);
        let error = rw.read().try_lock().await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(test.redis.keys().await.is_empty(), "{denied}");
        if denied != "-set" {
            let error = rw.write().try_lock().await.unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error}");
        }
        assert!(test.redis.keys().await.is_empty(), "{denied}");
        // Beside another reader, too.
        let other = read(&test.rw).await;
        let keys = test.redis.all_keys().await.len();
        rw.read().try_lock().lease(LONG).await.unwrap_err();
        assert_eq!(test.redis.all_keys().await.len(), keys, "{denied}");
        assert!(
            test.redis.pttl(NAME).await < 40_000 || denied == "-hset",
            "{denied}"
        );
        other.unlock().await.unwrap();
    }
}

/// A future that was polled once and abandoned does not block the next waiters of its client.
#[tokio::test]
async fn a_contender_that_is_not_polled_loses_its_turn() {
    let test = Fixture::with(|it| it.poll_cap(ms(500))).await;
    let other = write(&test.another().await).await;
    let mut left = test.rw.write().lock().owner(&Owner::new()).into_future();
    assert!(super::poll_once(&mut left).await.is_none());
    let mut left_reader = test.rw.read().lock().owner(&Owner::new()).into_future();
    assert!(super::poll_once(&mut left_reader).await.is_none());
    let waiting = [reader(&test.rw), reader(&test.rw)];
    test.somebody_waits().await;
    other.unlock().await.unwrap();
    for waiting in waiting {
        drop(within_soon(waiting).await);
    }
    assert!(may_read(&test.another().await).await || test.announced().await);
    drop((left, left_reader));
    test.assert_clean().await;
}

async fn count(test: &Fixture) -> u32 {
    let hash = test.hash().await;
    let counts = hash.values().filter_map(|it| it.parse::<u32>().ok());
    counts.sum()
}

fn is(script: &'static str) -> impl Fn(&[String]) -> bool + Clone + Send + Sync + 'static {
    let digest = redis::Script::new(script).get_hash().to_owned();
    move |args: &[String]| args.get(1) == Some(&digest)
}

const ACQUIRE: &str = include_str!("../../../lua/read_write/acquire.lua");
const UNLOCK: &str = include_str!("../../../lua/read_write/unlock.lua");
const RENEW: &str = include_str!("../../../lua/read_write/renew.lua");
