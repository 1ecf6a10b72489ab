//! Lost, late and repeated commands.

use std::time::Duration;

use lockdog::report::Ttl;
use lockdog::{Client, Error, PermitId, PermitSemaphore};

use super::{Fixture, LONG, NAME, SOON, ms};
use crate::support::{Action, Gate, Proxy, eventually, until_ok};

/// A client behind a proxy. All scripts are loaded, so that a rule meets the first sending.
async fn behind_a_proxy(test: &Fixture) -> (Proxy, PermitSemaphore) {
    behind_a_proxy_for(test, ms(1_500)).await
}

/// A client with this command timeout.
async fn behind_a_proxy_for(test: &Fixture, patience: Duration) -> (Proxy, PermitSemaphore) {
    for script in [ACQUIRE, RELEASE, GIVE_BACK, UPDATE, ADD, SET] {
        test.redis.cmd(&["SCRIPT", "LOAD", script]).await;
    }
    let proxy = Proxy::start(&test.server).await;
    let client = Client::builder().url(proxy.url()).command_timeout(patience);
    let client = until_ok(SOON, async || client.clone().build().await).await;
    (proxy, client.permit_semaphore(NAME))
}

/// PE1 and PE3: a command whose reply is lost, or that runs twice, counts once.
#[tokio::test]
async fn a_repeated_command_counts_once() {
    let test = Fixture::with_permits(5).await;
    let (proxy, seats) = behind_a_proxy_for(&test, SOON).await;
    let messages = test.redis.messages("*").await;
    for action in [Action::ExecuteThenCut, Action::Twice] {
        let rule = proxy.on(is(ACQUIRE), action.clone());
        let two = seats.acquire_many(2).await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!((test.free().await, test.in_use().await.len()), (3, 2));
        let seen = messages.seen().len();
        let rule = proxy.on(is(RELEASE), action.clone());
        two.release().await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!((test.free().await, test.in_use().await.len()), (5, 0));
        eventually(SOON, "two messages came", async || {
            messages.seen().len() >= seen + 2
        })
        .await;
        let ids = seats.acquire_many(2).lease(LONG).await.unwrap().into_ids();
        let rule = proxy.on(is(GIVE_BACK), action.clone());
        seats.release(&ids).await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!((test.free().await, test.in_use().await.len()), (5, 0));
        let rule = proxy.on(is(UPDATE), action.clone());
        let endless = seats.acquire().forever().await.unwrap();
        rule.wait_hits(1).await;
        assert!(endless.is_valid());
        endless.release().await.unwrap();
        let rule = proxy.on(is(ADD), action.clone());
        seats.add_permits(3).await.unwrap();
        rule.wait_hits(1).await;
        assert_eq!(test.free().await, 8);
        let rule = proxy.on(is(SET), action);
        seats.set_permits(5).await.unwrap();
        rule.wait_hits(1).await;
        test.assert_total().await;
    }
    assert_eq!(test.free().await, 5);
}

/// A repetition after a later change of the number changes nothing.
#[tokio::test]
async fn a_late_repetition_of_a_set_changes_nothing() {
    let test = Fixture::with_permits(5).await;
    let (proxy, seats) = behind_a_proxy_for(&test, SOON).await;
    let repeated = || proxy.repeat_late(is(SET));
    let arrived = async |gate: Gate| {
        gate.let_pass().await;
        tokio::time::sleep(ms(200)).await;
    };
    let gate = repeated();
    seats.set_permits(6).await.unwrap();
    seats.set_permits(7).await.unwrap();
    arrived(gate).await;
    assert_eq!(test.free().await, 7);
    // A call that created the semaphore, and one that was refused.
    for was_made in [true, false] {
        if was_made {
            test.redis.cmd(&["DEL", NAME]).await;
        }
        let gate = repeated();
        assert_eq!(seats.try_set_permits(9).await.unwrap(), was_made);
        test.redis.cmd(&["DEL", NAME]).await;
        arrived(gate).await;
        assert!(!test.redis.exists(NAME).await);
        assert!(seats.try_set_permits(5).await.unwrap());
    }
}

/// The calls that set a lease have no mark, so a repetition sets it once more, but only while the permit is in use.
#[tokio::test]
async fn a_late_repetition_sets_the_lease_of_a_permit_once_more() {
    let test = Fixture::with_permits(1).await;
    let (proxy, seats) = behind_a_proxy_for(&test, SOON).await;
    let id = seats.acquire().forever().await.unwrap().into_ids()[0];
    let gate = proxy.repeat_late(is(UPDATE));
    assert!(seats.update_lease(&id, LONG).await.unwrap());
    assert!(seats.remove_lease(&id).await.unwrap());
    let lease = seats.lease_of(&id).await.unwrap();
    assert!(matches!(lease, Some(Ttl::Persistent)), "{lease:?}");
    gate.let_pass().await;
    eventually(SOON, "the repetition runs", async || {
        let lease = seats.lease_of(&id).await.unwrap();
        matches!(lease, Some(Ttl::Expires(_)))
    })
    .await;
    let gate = proxy.repeat_late(is(UPDATE));
    assert!(seats.update_lease(&id, LONG).await.unwrap());
    seats.release(&[id]).await.unwrap();
    gate.let_pass().await;
    tokio::time::sleep(ms(200)).await;
    assert!(seats.lease_of(&id).await.unwrap().is_none());
    test.eventually_free().await;
}

/// The server knows a repetition by the mark of its call. Without the mark it runs the command once more.
#[tokio::test]
async fn a_late_repetition_without_its_mark_runs_once_more() {
    let test = Fixture::with_permits(5).await;
    let (proxy, seats) = behind_a_proxy_for(&test, SOON).await;
    let late = |script| proxy.repeat_late(is(script));
    let arrives_without_mark = async |gate: Gate| {
        test.redis.delete_marks(NAME).await;
        gate.let_pass().await;
    };
    let gate = late(ADD);
    seats.add_permits(3).await.unwrap();
    assert_eq!(test.free().await, 8);
    arrives_without_mark(gate).await;
    assert_eq!(test.free().await, 11);
    // The later number is lost.
    let gate = late(SET);
    seats.set_permits(6).await.unwrap();
    seats.set_permits(7).await.unwrap();
    arrives_without_mark(gate).await;
    assert_eq!(test.free().await, 6);
    // A semaphore that was deleted exists again.
    test.redis.cmd(&["DEL", NAME]).await;
    let gate = late(SET);
    assert!(seats.try_set_permits(9).await.unwrap());
    test.redis.cmd(&["DEL", NAME]).await;
    arrives_without_mark(gate).await;
    assert_eq!(test.free().await, 9);
    seats.set_permits(5).await.unwrap();
    test.eventually_free().await;
}

/// PE5: a repeated release by ids does not report the release of permits that are still in use.
#[tokio::test]
async fn a_repeated_release_of_ids_of_which_one_is_unknown_is_refused() {
    let test = Fixture::with_permits(3).await;
    let (proxy, seats) = behind_a_proxy_for(&test, SOON).await;
    let ours = seats.acquire().lease(LONG).await.unwrap().into_ids()[0];
    let unknown = PermitId::from_bytes([1; 16]);
    let rule = proxy.on(is(GIVE_BACK), Action::ExecuteThenCut);
    assert!(!seats.try_release(&[ours, unknown]).await.unwrap());
    rule.wait_hits(1).await;
    assert_eq!((test.free().await, test.in_use().await.len()), (2, 1));
    // The client cannot distinguish an earlier sending that released the permit from one that found
    // nothing.
    let rule = proxy.on(is(GIVE_BACK), Action::ExecuteThenCut);
    assert!(seats.try_release(&[ours]).await.unwrap());
    rule.wait_hits(1).await;
    assert_eq!((test.free().await, test.in_use().await.len()), (3, 0));
    assert!(!seats.try_release(&[ours]).await.unwrap());
}

#[tokio::test]
async fn an_acquire_without_an_answer_is_an_error_and_is_undone() {
    let test = Fixture::with_permits(3).await;
    for permits in [1, 3] {
        let (proxy, seats) = behind_a_proxy(&test).await;
        let rule = proxy.on(is(ACQUIRE), Action::DropReply);
        let error = seats.acquire_many(permits).await.unwrap_err();
        assert!(error.is_timeout() && error.may_be_held(), "{error}");
        rule.wait_hits(1).await;
        test.eventually_free().await;
    }
}

#[tokio::test]
async fn a_release_without_an_answer_is_unconfirmed_and_repeated() {
    let test = Fixture::with_permits(2).await;
    let (proxy, seats) = behind_a_proxy(&test).await;
    let both = seats.acquire_many(2).await.unwrap();
    let gate = Gate::new();
    let rule = proxy.on(is(RELEASE), Action::HoldRequest(gate.clone()));
    let error = both.release().await.unwrap_err();
    assert!(error.is_timeout() || error.may_be_held(), "{error}");
    // The background's release comes first, and the held one later: PE3.
    test.eventually_free().await;
    let next = seats.acquire_many(2).lease(LONG).await.unwrap();
    gate.open();
    rule.wait_hits(1).await;
    tokio::time::sleep(ms(200)).await;
    assert!(next.is_valid());
    assert_eq!((test.free().await, test.in_use().await.len()), (0, 2));
}

/// The second command, which makes permits endless, gets no answer: the client releases the permits.
#[tokio::test]
async fn an_endless_permit_without_an_answer_is_released() {
    let test = Fixture::with_permits(1).await;
    let (proxy, seats) = behind_a_proxy(&test).await;
    let rule = proxy.on(is(UPDATE), Action::DropReply).always();
    let error = seats.acquire().forever().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    rule.wait_hits(1).await;
    rule.remove();
    test.eventually_free().await;
    // The same if the caller gives up first.
    let request = seats.acquire().forever().into_future();
    let gate = Gate::new();
    proxy.on(is(UPDATE), Action::HoldReply(gate.clone()));
    let task = tokio::spawn(request);
    gate.wait_reached().await;
    task.abort();
    gate.open();
    test.eventually_free().await;
}

/// A late acquire after its release is an orphan of one lease.
#[tokio::test]
async fn a_late_repetition_of_an_acquire_ends_with_its_lease() {
    let test = Fixture::with_permits(2).await;
    let (proxy, seats) = behind_a_proxy_for(&test, SOON).await;
    let gate = proxy.repeat_late(is(ACQUIRE));
    let both = seats.acquire_many(2).lease(ms(10_000)).await.unwrap();
    let mut both = both;
    let one = both.split(1).unwrap();
    both.release().await.unwrap();
    gate.let_pass().await;
    // PE1: the permit that is still in use was not granted a second time.
    assert_eq!((test.free().await, test.in_use().await.len()), (0, 2));
    assert!(one.is_valid());
    one.release().await.unwrap();
    test.assert_total().await;
    let all = seats.try_acquire_many(2).wait(SOON).await.unwrap();
    assert!(all.is_some(), "the orphan ends with its lease");
}

/// Holders keep their permits and can release them. Only an acquire needs memory.
#[tokio::test]
async fn without_memory_only_acquires_are_refused() {
    let test = Fixture::with(5, |client| client.watchdog_lease(ms(6_000))).await;
    let watched = test.seats.acquire().await.unwrap();
    let leased = test.seats.acquire().lease(LONG).await.unwrap();
    let handed = test.seats.acquire().lease(LONG).await.unwrap().into_ids();
    let before = test.in_use().await;
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = test.seats.acquire().await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "OOM"),
        "{error}"
    );
    assert!(test.seats.try_acquire_many(2).await.is_err());
    // One of the permits may be renewed already.
    let ids = |in_use: &[(PermitId, f64)]| in_use.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(ids(&test.in_use().await), ids(&before));

    eventually(SOON, "it was renewed twice", async || {
        let ends = test.in_use().await;
        let of = |ends: &[(PermitId, f64)]| {
            ends.iter()
                .find(|(id, _)| *id == watched.ids()[0])
                .unwrap()
                .1
        };
        of(&ends) > of(&before) + 3_000.0
    })
    .await;
    assert!(watched.is_valid() && leased.is_valid());

    watched.release().await.unwrap();
    drop(leased);
    test.seats.release(&handed).await.unwrap();
    test.eventually_free().await;
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let all = test.seats.acquire_many(5).await.unwrap();
    all.release().await.unwrap();
}

/// A contender for several permits that is not polled any more: the client releases all of them
/// together.
#[tokio::test]
async fn an_abandoned_acquire_of_several_permits_is_undone() {
    let test = Fixture::with_permits(3).await;
    // So long that the watchdog does not release any of them before.
    let (proxy, seats) = behind_a_proxy_for(&test, LONG).await;
    let gate = Gate::new();
    proxy.on(is(ACQUIRE), Action::HoldReply(gate.clone()));
    let mut request = seats.acquire_many(3).into_future();
    tokio::select! {
        biased;
        granted = &mut request => panic!("{granted:?}"),
        () = gate.wait_reached() => {}
    }
    // The grant is never read.
    gate.open();
    let next = tokio::time::timeout(SOON, seats.acquire_many(3).into_future()).await;
    let next = next.expect("the abandoned ones are released").unwrap();
    assert!(next.is_valid());
    test.assert_total().await;
}

fn is(script: &'static str) -> impl Fn(&[String]) -> bool + Clone + Send + Sync + 'static {
    let digest = redis::Script::new(script).get_hash().to_owned();
    move |args: &[String]| args.get(1) == Some(&digest)
}

const ACQUIRE: &str = include_str!("../../../lua/permit/acquire.lua");
const RELEASE: &str = include_str!("../../../lua/permit/release.lua");
const GIVE_BACK: &str = include_str!("../../../lua/permit/give_back.lua");
const UPDATE: &str = include_str!("../../../lua/permit/update.lua");
const ADD: &str = include_str!("../../../lua/permit/add.lua");
const SET: &str = include_str!("../../../lua/permit/set.lua");
