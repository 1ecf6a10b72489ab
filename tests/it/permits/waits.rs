//! Which waiter gets permits, when, and with how many commands.

use lockdog::{LeasedPermit, PermitSemaphore};
use tokio::task::JoinHandle;

use super::{Fixture, LONG, SOON, ms};
use crate::support::{Action, Gate, Proxy, eventually, timed, until_ok};
use crate::turn::answered;

/// Starts a task that waits for permits.
fn waiter(seats: &PermitSemaphore, permits: u32) -> JoinHandle<LeasedPermit> {
    let request = seats.acquire_many(permits);
    tokio::spawn(async move { request.await.expect("nothing is wrong with the server") })
}

async fn within_soon(waiter: JoinHandle<LeasedPermit>) -> LeasedPermit {
    let permit = tokio::time::timeout(SOON, waiter).await;
    permit.expect("it is woken").unwrap()
}

#[tokio::test]
async fn a_message_wakes_a_waiter_of_another_client() {
    let test = Fixture::with_permits(1).await;
    for released in [true, false] {
        let held = test.seats.acquire().lease(LONG).await.unwrap();
        let waiting = waiter(&test.another().await, 1);
        test.a_waiter_listens().await;
        match released {
            true => held.release().await.unwrap(),
            false => drop(held),
        }
        within_soon(waiting).await.release().await.unwrap();
    }
    test.redis.eventually_gone("{seats}:timeout").await;
}

#[tokio::test]
async fn the_end_of_a_lease_wakes_a_waiter_without_a_message() {
    let test = Fixture::with_permits(2).await;
    let endless = test.seats.acquire().forever().await.unwrap();
    let leased = until_ok(SOON, async || test.seats.acquire().lease(ms(2_000)).await).await;
    let ids = leased.into_ids();
    let messages = test.redis.messages("*").await;
    let waiting = waiter(&test.another().await, 1);
    let permit = within_soon(waiting).await;
    assert!(messages.seen().is_empty(), "{:?}", messages.seen());
    assert!(!permit.ids().contains(&ids[0]) && endless.is_valid());
    test.assert_total().await;
}

#[tokio::test]
async fn more_permits_wake_a_waiter() {
    let test = Fixture::with_permits(0).await;
    let another = test.another().await;
    for add in [true, false] {
        let waiting = waiter(&another, 2);
        test.a_waiter_listens().await;
        match add {
            true => test.seats.add_permits(2).await.unwrap(),
            false => test.seats.set_permits(2).await.unwrap(),
        }
        drop(within_soon(waiting).await);
        test.redis.eventually_gone("{seats}:timeout").await;
        test.seats.set_permits(0).await.unwrap();
    }
}

/// A waiter for few permits does not overtake one for many.
#[tokio::test]
async fn waiters_of_one_client_are_served_in_the_order_of_their_calls() {
    let test = Fixture::with_permits(2).await;
    let another = test.another().await;
    let mut held = test.seats.acquire_many(2).lease(LONG).await.unwrap();
    let first = waiter(&another, 2);
    test.a_waiter_listens().await;
    let second = waiter(&another, 1);
    tokio::time::sleep(ms(100)).await;
    held.split(1).unwrap().release().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    assert!(!first.is_finished() && !second.is_finished());
    held.release().await.unwrap();
    let first = within_soon(first).await;
    assert!(!second.is_finished());
    first.release().await.unwrap();
    within_soon(second).await.release().await.unwrap();
}

/// After one message for several permits, each waiter that acquires one wakes the next.
#[tokio::test]
async fn several_free_permits_cost_a_client_one_command_each_and_one_more() {
    // On a busy machine a query of an earlier moment may come late, or a command may be sent again.
    let mut sent = Vec::new();
    while sent.len() < 5 {
        sent.push(commands_for_five_permits().await);
        if sent[sent.len() - 1] <= 6 {
            return;
        }
    }
    panic!("{sent:?} commands for 5 permits");
}

/// The number of commands that a client with eight waiters sends to acquire five free permits.
async fn commands_for_five_permits() -> u64 {
    let test = Fixture::with_permits(5).await;
    let another = test.another().await;
    let five = test.seats.acquire_many(5).lease(LONG).await.unwrap();
    let ids = five.into_ids();
    let waiting: Vec<_> = (0..8).map(|_| waiter(&another, 1)).collect();
    test.a_waiter_listens().await;
    // Redisson's release of a list is one message, too.
    let looked = acquires(&test).await;
    test.client
        .permit_semaphore("seats")
        .release(&ids)
        .await
        .unwrap();
    let served = async || waiting.iter().filter(|it| it.is_finished()).count();
    eventually(SOON, "five are served", async || served().await >= 5).await;
    tokio::time::sleep(ms(200)).await;
    assert_eq!(served().await, 5);
    let looks = acquires(&test).await - looked;
    for waiter in waiting {
        match waiter.is_finished() {
            true => drop(waiter.await.unwrap()),
            false => waiter.abort(),
        }
    }
    looks
}

/// The number of attempts: only the acquire script calls ZRANGEBYSCORE.
async fn acquires(test: &Fixture) -> u64 {
    let stats = test.redis.commandstats().await;
    stats.get("zrangebyscore").copied().unwrap_or(0)
}

/// The contender has a grant that it has not read when a message of another release arrives. The
/// message is for the next waiter.
#[tokio::test]
async fn a_release_while_the_contender_reads_its_grant_wakes_the_next_waiter() {
    let test = Fixture::with_permits(2).await;
    let proxy = Proxy::start(&test.server).await;
    let client = lockdog::Client::builder().url(proxy.url()).poll_cap(LONG);
    let seats = client.build().await.unwrap().permit_semaphore("seats");
    // The scripts are loaded, and the connection is there.
    drop(seats.acquire().await.unwrap());
    let both = test.seats.acquire_many(2).lease(LONG).await.unwrap();
    let mut both = both;
    let one = both.split(1).unwrap();
    let (first, second) = (waiter(&seats, 1), waiter(&seats, 1));
    test.a_waiter_listens().await;
    let gate = Gate::new();
    let granted = acquire();
    proxy.on(granted, Action::HoldReply(gate.clone()));
    one.release().await.unwrap();
    gate.wait_reached().await;
    // The message of this one comes on another connection, before the grant is read.
    both.release().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    assert!(!first.is_finished() && !second.is_finished());
    gate.open();
    let permits = [within_soon(first).await, within_soon(second).await];
    assert!(permits.iter().all(LeasedPermit::is_valid));
}

fn acquire() -> impl Fn(&[String]) -> bool + Clone + Send + Sync + 'static {
    let text = include_str!("../../../lua/permit/acquire.lua");
    let digest = redis::Script::new(text).get_hash().to_owned();
    move |args: &[String]| args.get(1) == Some(&digest)
}

#[tokio::test]
async fn a_wait_ends_with_its_time() {
    let test = Fixture::with_permits(1).await;
    let _held = test.seats.acquire().lease(LONG).await.unwrap();
    let another = test.another().await;
    let wait = ms(300);
    let (none, took) = answered(async || {
        let request = another.try_acquire().wait(wait);
        let (ended, took) = timed(request.into_future()).await;
        ended.map(|none| (none, took))
    })
    .await;
    assert!(none.is_none());
    assert!(took >= wait, "{took:?}");
    let (none, _) = timed(another.try_acquire().into_future()).await;
    assert!(none.unwrap().is_none());
    // The client first undoes a command without an answer.
    eventually(SOON, "no waiter asks", async || {
        test.redis.reset_stats().await;
        tokio::time::sleep(ms(300)).await;
        !test.redis.commandstats().await.contains_key("evalsha")
    })
    .await;
    eventually(SOON, "no waiter listens", async || {
        test.redis.channels().await.is_empty()
    })
    .await;
}
