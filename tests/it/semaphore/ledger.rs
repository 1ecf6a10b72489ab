//! The ledger is lost: deleted, evicted, or flushed with everything else.

use lockdog::Client;

use super::{Fixture, LEDGER, NAME, SOON, ms};
use crate::support::{Action, Proxy, eventually};

/// SE1: each holder knows what it has, and gives that back once.
#[tokio::test]
async fn permits_are_given_back_once_after_the_ledger_was_deleted() {
    let test = Fixture::of(6).await;
    let another = test.another().await;
    let mut three = test.seats.acquire_many(3).await.unwrap();
    let one = test.seats.acquire().await.unwrap();
    let theirs = another.acquire().await.unwrap();
    test.redis.cmd(&["DEL", LEDGER]).await;
    let two = three.split(2).unwrap();
    two.release().await.unwrap();
    assert_eq!((test.free().await, test.shares().await), (3, vec![1]));
    // A new era of the ledger begins.
    another.acquire().await.unwrap().release().await.unwrap();
    drop(one);
    theirs.release().await.unwrap();
    three.release().await.unwrap();
    test.eventually_free().await;
}

/// A release that runs twice gives back once, with the ledger gone, too.
#[tokio::test]
async fn a_repeated_release_counts_once_without_the_ledger() {
    let test = Fixture::of(4).await;
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder()
        .url(proxy.url())
        .command_timeout(ms(1_500));
    let seats = client.build().await.unwrap().semaphore(NAME);
    // The scripts are loaded.
    seats.acquire().await.unwrap().release().await.unwrap();
    let text = include_str!("../../../lua/semaphore/release.lua");
    let digest = redis::Script::new(text).get_hash().to_owned();
    for action in [Action::Twice, Action::ExecuteThenCut] {
        let two = seats.acquire_many(2).await.unwrap();
        test.redis.cmd(&["DEL", LEDGER]).await;
        let digest = digest.clone();
        let rule = proxy.on(move |args: &[String]| args.get(1) == Some(&digest), action);
        two.release().await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!(test.free().await, 4);
    }
    test.eventually_free().await;
}

/// A ledger that is lost between two sendings of one release: the second one knows no number, so nothing
/// is given back twice.
#[tokio::test]
async fn the_second_sending_of_a_release_gives_nothing_back_without_the_ledger() {
    let test = Fixture::of(4).await;
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder()
        .url(proxy.url())
        .command_timeout(ms(3_000));
    let seats = client.build().await.unwrap().semaphore(NAME);
    seats.acquire().await.unwrap().release().await.unwrap();
    let text = include_str!("../../../lua/semaphore/release.lua");
    let digest = redis::Script::new(text).get_hash().to_owned();
    let release = move |args: &[String]| args.get(1) == Some(&digest);
    let two = seats.acquire_many(2).await.unwrap();
    let first = proxy.on(release.clone(), Action::ExecuteThenCut);
    let gate = crate::support::Gate::new();
    let releasing = tokio::spawn(two.release());
    first.wait_hits(1).await;
    proxy.on(release, Action::HoldRequest(gate.clone()));
    eventually(SOON, "the first one has run", async || {
        test.free().await == 4
    })
    .await;
    test.redis.cmd(&["DEL", LEDGER]).await;
    gate.open();
    // Its outcome may well be unknown.
    let _ = releasing.await.unwrap();
    tokio::time::sleep(ms(300)).await;
    assert_eq!(test.free().await, 4);
}

#[tokio::test]
async fn nothing_is_made_after_a_flush() {
    let test = Fixture::of(3).await;
    let (one, two) = (
        test.seats.acquire().await.unwrap(),
        test.seats.acquire_many(2).await.unwrap(),
    );
    test.redis.cmd(&["FLUSHALL"]).await;
    let error = one.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    drop(two);
    eventually(SOON, "nothing is held", async || {
        test.client.holds().is_empty()
    })
    .await;
    tokio::time::sleep(ms(200)).await;
    assert!(!test.redis.exists(NAME).await);
    assert!(test.seats.try_set_permits(3).await.unwrap());
    let all = test.seats.acquire_many(3).await.unwrap();
    all.release().await.unwrap();
    test.eventually_free().await;
}

/// A server that is out of memory refuses acquires, and no release.
#[tokio::test]
async fn permits_are_given_back_to_a_server_without_memory() {
    let test = Fixture::of(5).await;
    let mut three = test.seats.acquire_many(3).await.unwrap();
    let one = test.seats.acquire().await.unwrap();
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = test.seats.try_acquire().await.unwrap_err();
    assert!(
        matches!(&error, lockdog::Error::Refused { code, .. } if code == "OOM"),
        "{error}"
    );
    three.split(1).unwrap().release().await.unwrap();
    assert_eq!((test.free().await, test.shares().await), (2, vec![1, 2]));
    three.release().await.unwrap();
    drop(one);
    test.eventually_free().await;
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    test.seats
        .acquire_many(5)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
