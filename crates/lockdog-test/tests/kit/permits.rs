//! Permits with leases on the test server, whose clock is tokio's.

use std::time::Duration;

use lockdog::error::LostReason;
use lockdog_test::Server;
use tokio::time::{Instant, sleep, timeout};

const LONG: Duration = Duration::from_secs(300);
const LEASE: Duration = Duration::from_secs(30);

/// PE4: the commands of its renewals are for up to 100 permits.
#[tokio::test(start_paused = true)]
async fn a_permit_is_kept_for_as_long_as_its_client_renews_it() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let seats = client.permit_semaphore("seats");
    assert!(seats.try_set_permits(250).await.unwrap());
    let all = seats.acquire_many(250).await.unwrap();
    let others = other.permit_semaphore("seats");
    sleep(LONG).await;
    assert!(all.is_valid());
    assert_eq!(most_renewed_at_once(&server), Some(100));
    assert!(others.try_acquire().await.unwrap().is_none());
    // No client renews these any more.
    let ids = all.into_ids();
    let began = Instant::now();
    let some = timeout(LONG, others.acquire_many(100).into_future()).await;
    let some = some.expect("the leases end").unwrap();
    let waited = began.elapsed();
    assert!(waited > LEASE / 2 && waited < LEASE * 11 / 10, "{waited:?}");
    sleep(LEASE).await;
    assert_eq!(others.available().await.unwrap(), 150);
    assert!(!others.try_release(&ids[..1]).await.unwrap());
    some.release().await.unwrap();
    assert_eq!(others.acquired().await.unwrap(), 0);
}

/// With more expired permits than one command takes back.
#[tokio::test(start_paused = true)]
async fn a_waiter_gets_permits_when_those_of_others_expire() {
    let server = Server::new();
    let client = server.builder().poll_cap(LONG).build().await.unwrap();
    let seats = client.permit_semaphore("seats");
    seats.set_permits(300).await.unwrap();
    let leased = seats.acquire_many(300).lease(LEASE).await.unwrap();
    let began = Instant::now();
    let next = timeout(LONG, seats.acquire_many(250).lease(LEASE).into_future()).await;
    let next = next.expect("no poll is needed").unwrap();
    let waited = began.elapsed();
    assert!(
        waited > LEASE * 9 / 10 && waited < LEASE * 11 / 10,
        "{waited:?}"
    );
    assert_eq!(leased.lost().await.reason(), LostReason::Deadline);
    assert!(next.is_valid());
    drop((leased, next));
    sleep(LEASE).await;
    assert_eq!(seats.permits().await.unwrap(), 300);
    assert_eq!(seats.available().await.unwrap(), 300);
}

/// The largest number of permits that one command renewed.
fn most_renewed_at_once(server: &Server) -> Option<usize> {
    let digest = sha1_smol::Sha1::from(RENEW).digest().to_string();
    let commands = server.commands().into_iter();
    let renewals = commands.filter(|command| {
        let script = command.get(1);
        script.is_some_and(|script| *script == digest || script == RENEW)
    });
    let permits = renewals.map(|command| command[2].parse().expect("the number of keys"));
    permits.max()
}

const RENEW: &str = include_str!("../../../../lua/permit/renew.lua");
