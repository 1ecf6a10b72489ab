//! The number and the times of renewal commands, in virtual time.

use std::time::Duration;

use lockdog::Guard;
use lockdog::error::LostReason;
use lockdog_test::Server;
use tokio::time::{Instant, sleep};

const LEASE: Duration = Duration::from_millis(2_400);
const PERIOD: Duration = Duration::from_millis(800);
const LOCKS: usize = 1_000;
/// A command renews at most 100 locks.
const BATCHES: usize = LOCKS / 100;

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_once_per_third_of_its_lease() {
    let server = Server::new();
    let client = server.builder().watchdog_lease(LEASE).build().await;
    let guard = client.unwrap().lock("a").lock().await.unwrap();
    let mut times = times_of_renewals(&server, LEASE * 10).await;
    // The first one is sent twice, as the server does not know the script.
    times.dedup();
    assert!((29..=31).contains(&times.len()), "{}", times.len());
    for two in times.windows(2) {
        let pause = two[1] - two[0];
        let is_third = pause >= PERIOD * 9 / 10 && pause <= PERIOD;
        assert!(is_third, "{pause:?} of {PERIOD:?}");
    }
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn max_hold_does_not_add_renewals_and_ends_the_hold_at_the_bound() {
    let server = Server::new();
    let client = server.builder().watchdog_lease(LEASE).build().await;
    let (began, bound) = (Instant::now(), LEASE * 2);
    let request = client.unwrap().lock("a").lock().max_hold(bound);
    let guard = request.await.unwrap();
    assert_eq!(guard.lost().await.reason(), LostReason::MaxHold);
    let held = began.elapsed();
    assert!(held > bound * 9 / 10 && held <= bound, "{held:?}");
    let renewals = renewals(&server);
    assert!((2..=6).contains(&renewals), "{renewals}");
}

/// Commands for 100 locks and period.
#[tokio::test(start_paused = true)]
async fn a_thousand_locks_acquired_at_once_take_one_renewal_command_per_hundred_and_period() {
    let (server, guards) = held(Duration::ZERO).await;
    few_commands(&server).await;
    assert!(guards.iter().all(Guard::is_valid));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_locks_acquired_one_by_one_take_no_more_renewal_commands() {
    let (server, guards) = held(PERIOD / LOCKS as u32).await;
    few_commands(&server).await;
    assert!(guards.iter().all(Guard::is_valid));
}

#[tokio::test(start_paused = true)]
async fn renewals_of_many_locks_are_spread_over_the_period() {
    let (server, guards) = held(Duration::ZERO).await;
    // The first round has large batches.
    sleep(PERIOD + PERIOD / 2).await;
    let times = times_of_renewals(&server, PERIOD * 4).await;
    assert!(times.len() >= 3 * BATCHES, "{}", times.len());
    for round in times.windows(BATCHES) {
        let span = round[round.len() - 1] - round[0];
        assert!(span >= PERIOD / 5, "a round took only {span:?}");
    }
    assert!(guards.iter().all(Guard::is_valid));
}

/// Counts over several periods, after a first one with large batches.
async fn few_commands(server: &Server) {
    let periods = 5;
    sleep(PERIOD).await;
    let before = renewals(server);
    sleep(PERIOD * periods).await;
    let commands = renewals(server) - before;
    println!("{commands} commands in {periods} periods");
    // A window over five periods shows five rounds and the begin of one more.
    let most = BATCHES * (periods as usize + 1);
    assert!(commands >= BATCHES * 2 && commands <= most, "{commands}");
}

/// Acquires `LOCKS` locks, with a pause after each.
async fn held(pause: Duration) -> (Server, Vec<Guard>) {
    let server = Server::new();
    let client = server.builder().watchdog_lease(LEASE).build().await;
    let client = client.unwrap();
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        let guard = client.lock(format!("l:{number}")).lock().await;
        guards.push(guard.unwrap());
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
    (server, guards)
}

/// When the renewals of this time were sent, to the millisecond.
async fn times_of_renewals(server: &Server, time: Duration) -> Vec<Instant> {
    let until = Instant::now() + time;
    let (mut before, mut times) = (renewals(server), Vec::new());
    while Instant::now() < until {
        sleep(Duration::from_millis(1)).await;
        let now = renewals(server);
        times.extend((before..now).map(|_| Instant::now()));
        before = now;
    }
    times
}

fn renewals(server: &Server) -> usize {
    let digest = sha1_smol::Sha1::from(RENEW).digest().to_string();
    let is_renewal = |command: &&Vec<String>| {
        let script = command.get(1);
        script.is_some_and(|script| *script == digest || script == RENEW)
    };
    server.commands().iter().filter(is_renewal).count()
}

const RENEW: &str = include_str!("../../../../lua/lock/renew.lua");
