//! The ledger is lost: deleted, evicted, or flushed with all keys.

use lockdog::{Client, Permit};

use super::{Fixture, LEDGER, NAME, SOON, ms};
use crate::support::{Action, Dice, Proxy, eventually};

/// SE1: each holder returns its permits once, until a new ledger exists.
#[tokio::test]
async fn permits_are_released_once_after_the_ledger_was_deleted() {
    let test = Fixture::with_permits(6).await;
    let another = test.another().await;
    for begins_again in [false, true] {
        let mut three = test.seats.acquire_many(3).await.unwrap();
        let one = test.seats.acquire().await.unwrap();
        let theirs = another.acquire().await.unwrap();
        test.redis.cmd(&["DEL", LEDGER]).await;
        let two = three.split(2).unwrap();
        two.release().await.unwrap();
        assert_eq!((test.free().await, test.shares().await), (3, vec![1]));
        drop(one);
        eventually(SOON, "it is released", async || test.free().await == 4).await;
        if begins_again {
            another.acquire().await.unwrap().release().await.unwrap();
            // Permits that are not in the new ledger are lost and not returned twice.
            let error = theirs.release().await.unwrap_err();
            assert!(error.is_lost(), "{error}");
            test.seats.add_permits(1).await.unwrap();
        } else {
            theirs.release().await.unwrap();
        }
        three.release().await.unwrap();
        test.eventually_free().await;
    }
}

/// A release that runs twice adds its permits once, also without the ledger.
#[tokio::test]
async fn a_repeated_release_counts_once_without_the_ledger() {
    let test = Fixture::with_permits(4).await;
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(SOON);
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

/// Permits that were reclaimed after a new ledger had a part of them.
#[tokio::test]
async fn reclaimed_permits_are_not_released_again_after_the_ledger_was_deleted() {
    let test = Fixture::with_permits(4).await;
    let another = test.another().await;
    let mut three = test.seats.acquire_many(3).await.unwrap();
    test.redis.cmd(&["DEL", LEDGER]).await;
    three.split(1).unwrap().release().await.unwrap();
    assert_eq!((test.free().await, test.shares().await), (2, vec![2]));
    assert_eq!(another.reclaim(test.client.id()).await.unwrap(), 2);
    // The client may release after hours: the ledger lasts as long as the number, and what it says of the request is
    // no old end.
    let ttl: i64 = test.redis.ask(&["PTTL", LEDGER]).await;
    assert_eq!(ttl, -1);
    let now: u64 = test.redis.ask::<(u64, u64)>(&["TIME"]).await.0 * 1000;
    let old: i64 = test
        .redis
        .ask(&["ZCOUNT", LEDGER, "2147483648", &now.to_string()])
        .await;
    assert_eq!(old, 0);
    let error = three.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    test.eventually_free().await;
}

/// The ledger is lost between two sendings of one release: the second sending has no number, so nothing
/// is returned twice.
#[tokio::test]
async fn the_second_sending_of_a_release_adds_nothing_without_the_ledger() {
    let test = Fixture::with_permits(4).await;
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
    proxy.on(release, Action::HoldRequest(gate.clone()));
    let releasing = tokio::spawn(two.release());
    first.wait_hits(1).await;
    gate.wait_reached().await;
    assert_eq!(test.free().await, 4, "the first one has run");
    test.redis.cmd(&["DEL", LEDGER]).await;
    gate.let_pass().await;
    // The outcome may be unknown.
    let _ = releasing.await.unwrap();
    tokio::time::sleep(ms(300)).await;
    assert_eq!(test.free().await, 4);
}

#[tokio::test]
async fn nothing_is_made_after_a_flush() {
    let test = Fixture::with_permits(3).await;
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

/// SE1: permits of an expired number are no permits of the next one.
#[tokio::test]
async fn a_number_that_is_set_again_knows_no_permits_of_before() {
    let test = Fixture::with_permits(3).await;
    let another = test.another().await;
    for (ways, is_used) in [(0, false), (1, false), (2, false), (0, true), (1, true)] {
        for command in [&["DEL", NAME][..], &["FLUSHALL"]] {
            let two = test.seats.acquire_many(2).await.unwrap();
            let one = another.acquire().await.unwrap();
            test.redis.cmd(command).await;
            match ways {
                0 => assert!(another.try_set_permits(3).await.unwrap()),
                1 => another.add_permits(3).await.unwrap(),
                _ => another.release(3).await.unwrap(),
            }
            // The new number has a ledger by then.
            let used = match is_used {
                true => Some(another.acquire_many(2).await.unwrap()),
                false => None,
            };
            let error = two.release().await.unwrap_err();
            assert!(error.is_lost(), "{error}");
            drop(one);
            if let Some(used) = used {
                used.release().await.unwrap();
            }
            test.eventually_without_holds().await;
            assert_eq!((test.free().await, test.shares().await), (3, vec![]));
        }
    }
}

/// Redisson sets the number again after an acquire of lockdog has found that there is none.
#[tokio::test]
async fn an_acquire_that_finds_no_number_ends_the_permits_of_before() {
    let test = Fixture::with_permits(3).await;
    let two = test.seats.acquire_many(2).await.unwrap();
    test.redis.cmd(&["DEL", NAME]).await;
    assert!(test.another().await.try_acquire().await.unwrap().is_none());
    assert!(test.seats.holders().await.unwrap().is_empty());
    test.redis.cmd(&["SET", NAME, "3"]).await;
    let error = two.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(test.free().await, 3);
}

/// The ledger lasts as long as the number, so that it always knows which permits were returned.
#[tokio::test]
async fn the_ledger_does_not_end_before_the_number() {
    let test = Fixture::with_permits(3).await;
    let ttl = async || test.redis.ask::<i64>(&["PTTL", LEDGER]).await;
    assert_eq!(ttl().await, -1);
    test.seats.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(ttl().await, -1);
    let another = test.another().await;
    let permit = another.acquire().await.unwrap();
    let holder = test.seats.holders().await.unwrap().remove(0);
    let client = holder.client_id().expect("it is one of lockdog");
    assert_eq!(test.seats.reclaim(client).await.unwrap(), 1);
    assert_eq!(ttl().await, -1);
    let error = permit.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!((test.free().await, ttl().await), (3, -1));
    // It outlives a number that ends.
    let limited = test.client.semaphore("limited");
    let hour = std::time::Duration::from_secs(3_600);
    assert!(limited.try_set_permits_for(3, hour).await.unwrap());
    let left = || async {
        test.redis
            .ask::<i64>(&["PTTL", "lockdog_ledger:{limited}"])
            .await
    };
    assert!(left().await > 3_600_000);
    limited.acquire().await.unwrap().release().await.unwrap();
    assert!(left().await > 3_600_000);
    // Without a number it ends.
    let permit = test.seats.acquire().await.unwrap();
    test.redis.cmd(&["DEL", NAME]).await;
    permit.release().await.unwrap();
    assert!((1..=3_600_000).contains(&ttl().await));
}

/// SE1 and SE2, for calls one after the other: permits are taken, released and reclaimed, the ledger is
/// deleted, and the number ends and is set again. All of it in a random order.
#[tokio::test]
async fn random_losses_make_no_permit() {
    let mut dice = Dice::from_environment();
    let test = Fixture::with_permits(TOTAL).await;
    let (mut clients, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let client = Client::connect(test.server.url()).await.unwrap();
        clients.push(client.semaphore(NAME));
        ids.push(client.id());
    }
    let mut held: Vec<Held> = Vec::new();
    let (mut number, mut is_whole, mut losses) = (0, true, 0);
    for _ in 0..400 {
        let client = dice.roll(2) as usize;
        let seats = &clients[client];
        match dice.roll(16) {
            0 => {
                // The known limitation: only the ledger knows which permits were reclaimed or belong to
                // an earlier number.
                let is_unknown = |held: &mut Held| held.number != number || held.is_reclaimed;
                for held in held.extract_if(.., is_unknown) {
                    // The permit may be lost.
                    let _ = held.permit.release().await;
                }
                test.redis.cmd(&["DEL", LEDGER]).await;
                is_whole &= held.is_empty();
                losses += 1;
            }
            1 => {
                test.redis.cmd(&["DEL", NAME]).await;
                match dice.roll(3) {
                    0 => assert!(seats.try_set_permits(TOTAL).await.unwrap()),
                    1 => seats.add_permits(TOTAL as i32).await.unwrap(),
                    _ => seats.release(TOTAL).await.unwrap(),
                }
                (number, is_whole) = (number + 1, true);
                losses += 1;
            }
            2 => {
                let held = held.iter_mut().filter(|held| held.client == client);
                held.for_each(|held| held.is_reclaimed = true);
                test.seats.reclaim(ids[client]).await.unwrap();
            }
            3..=8 => {
                let permits = 1 + dice.roll(3) as u32;
                let granted = seats.try_acquire_many(permits).await.unwrap();
                held.extend(granted.map(|permit| Held {
                    permit,
                    client,
                    number,
                    is_reclaimed: false,
                }));
            }
            _ if held.is_empty() => {}
            9..=10 => {
                let at = dice.roll(held.len() as u64) as usize;
                if let Some(permit) = held[at].permit.split(1) {
                    held.push(Held { permit, ..held[at] });
                }
            }
            _ => {
                let at = dice.roll(held.len() as u64) as usize;
                // The permit may be lost.
                let _ = held.swap_remove(at).permit.release().await;
            }
        }
        let known: u32 = test.shares().await.iter().sum();
        let sum = test.free().await + i64::from(known);
        assert!(sum <= i64::from(TOTAL), "{sum} permits");
        assert!(!is_whole || sum == i64::from(TOTAL), "{sum} permits");
    }
    for held in held {
        let _ = held.permit.release().await;
    }
    assert!(losses > 10);
    let free = test.free().await;
    assert!(
        free == i64::from(TOTAL) || !is_whole && free < i64::from(TOTAL),
        "{free}"
    );
}

struct Held {
    permit: Permit,
    client: usize,
    /// The number to which the permit belongs.
    number: u32,
    is_reclaimed: bool,
}

const TOTAL: u32 = 6;

/// A server that is out of memory refuses acquires but no releases.
#[tokio::test]
async fn permits_are_released_on_a_server_without_memory() {
    let test = Fixture::with_permits(5).await;
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
