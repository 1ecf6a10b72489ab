//! The events of an observer, for each kind of lock and each end of a hold.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lockdog::config::Reentry;
use lockdog::error::LostReason;
use lockdog::observe::{ClientEvent, LockRef, Observer};
use lockdog::report::Verdict;
use lockdog::{
    Client, ClientBuilder, Error, Guard, Lock, MultiLock, Owner, RedLock, Unlocked, Value,
};
use lockdog_test::Server;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::eventually;
use crate::support::logs::Warnings;

/// Records events as text, except commands, connections and regular renewals.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    async fn next(&self, what: &str) -> Vec<String> {
        eventually(what, || {
            self.0.lock().iter().any(|note| note.starts_with(what))
        })
        .await;
        self.take()
    }
}

impl Observer for Notes {
    fn event(&self, event: &ClientEvent<'_>) {
        let shown = |lock: &LockRef<'_>| format!("{} {}", lock.kind(), lock.name());
        let note = match event {
            ClientEvent::Acquired { lock, how, .. } => format!("{how:?} {}", shown(lock)),
            ClientEvent::Busy { lock, .. } => format!("Busy {}", shown(lock)),
            ClientEvent::Failed { lock, error, .. } => format!("Failed {} {error}", shown(lock)),
            ClientEvent::Cancelled { lock, .. } => format!("Cancelled {}", shown(lock)),
            ClientEvent::Released {
                lock,
                how,
                confirmed,
                ..
            } => format!("{how:?} {} {confirmed}", shown(lock)),
            ClientEvent::Lost { lock, reason, .. } => format!("Lost {} {reason:?}", shown(lock)),
            ClientEvent::Jeopardy { lock, .. } => format!("Jeopardy {}", shown(lock)),
            ClientEvent::Recovered { lock, .. } => format!("Recovered {}", shown(lock)),
            ClientEvent::RenewalFailed { holds, .. } => format!("RenewalFailed {holds}"),
            ClientEvent::Woken { lock, by, .. } => format!("Woken {} {by:?}", shown(lock)),
            ClientEvent::Round { won, margin, .. } => format!("Round {won} {margin}"),
            _ => return,
        };
        self.0.lock().push(note);
    }
}

const LEASE: Duration = Duration::from_secs(3);

async fn start() -> (Server, Client, Notes) {
    let (server, notes) = (Server::new(), Notes::default());
    let client = watched(&server, &notes).build().await.unwrap();
    (server, client, notes)
}

fn watched(server: &Server, notes: &Notes) -> ClientBuilder {
    let builder = server.builder().watchdog_lease(LEASE);
    builder.observer(notes.clone())
}

/// Three servers, a watched client of each, and the lock `r` of all of them.
async fn start_red_lock() -> ([Server; 3], Vec<Client>, RedLock, Notes) {
    let servers = [Server::new(), Server::new(), Server::new()];
    let notes = Notes::default();
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(watched(server, &notes).build().await.unwrap());
    }
    let lock = RedLock::new(clients.iter().map(|client| client.lock("r")));
    (servers, clients, lock, notes)
}

#[tokio::test(start_paused = true)]
async fn each_call_ends_with_one_event_and_each_hold_too() {
    let (_server, client, notes) = start().await;
    let lock = client.lock("l");
    let guard = lock.lock().await.unwrap();
    let again = lock.lock().await.unwrap();
    let other = Owner::new();
    assert!(lock.try_lock().owner(&other).await.unwrap().is_none());
    drop(again);
    guard.unlock().await.unwrap();
    let seen = [
        "First lock l",
        "Reentered lock l",
        "Busy lock l",
        "Unlocked lock l true",
    ];
    assert_eq!(notes.take(), seen);
    drop(lock.lock().await.unwrap());
    notes.next("Dropped lock l true").await;
    // A re-entry that is counted locally, and one that an error ends.
    let guard = lock.lock().await.unwrap();
    let local = lock.lock().reentry(Reentry::Local).await.unwrap();
    drop((local, guard));
    client.shutdown().await;
    lock.lock().await.unwrap_err();
    let seen = [
        "First lock l",
        "Reentered lock l",
        "Dropped lock l true",
        "Failed lock l the client is shut down",
    ];
    assert_eq!(notes.take(), seen);
}

#[tokio::test(start_paused = true)]
async fn an_unlock_that_leaves_the_lock_for_a_least_time_is_reported_as_an_unlock() {
    let (_server, client, notes) = start().await;
    let kept = client.lock("l").lock().hold_at_least(LEASE * 5);
    kept.await.unwrap().unlock().await.unwrap();
    let noted = notes.next("Unlocked").await;
    assert_eq!(noted, ["First lock l", "Unlocked lock l true"]);
}

#[tokio::test(start_paused = true)]
async fn an_unlock_before_the_least_time_reports_a_loss_and_no_release() {
    let (server, client, notes) = start().await;
    let kept = client.lock("l").lock().hold_at_least(LEASE * 5);
    let guard = kept.await.unwrap();
    server.lose("l");
    guard.unlock().await.unwrap_err();
    sleep(LEASE * 5).await;
    assert_eq!(notes.take(), ["First lock l", "Lost lock l NotOurs"]);
    assert_eq!(client.stats().lost_total, 1);
}

/// Acquires the lock once more for its owner while a call that acquired it ends. Another thread may do so.
#[derive(Clone, Default)]
struct Reenters(Arc<Mutex<Reentering>>);

type Acquiring = Pin<Box<dyn Future<Output = Result<Guard, Error>> + Send>>;

#[derive(Default)]
struct Reentering {
    request: Option<Acquiring>,
    guard: Option<Guard>,
}

impl Observer for Reenters {
    fn event(&self, event: &ClientEvent<'_>) {
        let has_acquired = matches!(
            event,
            ClientEvent::Woken { .. } | ClientEvent::Round { won: true, .. }
        );
        if !has_acquired {
            return;
        }
        // Its own event comes here, too.
        let request = self.0.lock().request.take();
        let Some(mut request) = request else { return };
        match request
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(guard) => self.0.lock().guard = Some(guard.unwrap()),
            Poll::Pending => panic!("a re-entry of this kind asks no server"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_call_that_began_a_hold_is_reported_as_the_first_whatever_acquires_it_again_meanwhile()
{
    let (server, notes, reenters) = (Server::new(), Notes::default(), Reenters::default());
    let builder = watched(&server, &notes).observer(reenters.clone());
    let client = builder.build().await.unwrap();
    let (lock, owner) = (client.lock("l"), Owner::new());
    let again = lock.lock().owner(&owner).reentry(Reentry::Local);
    reenters.0.lock().request = Some(again.into_future());
    let stolen = server.steal("l");
    let waiter = tokio::spawn(lock.lock().owner(&owner).into_future());
    sleep(LEASE).await;
    drop(stolen);
    let guard = waiter.await.unwrap().unwrap();
    assert_eq!(guard.hold_count(), 2);
    let seen = ["Woken lock l Message", "Reentered lock l", "First lock l"];
    assert_eq!(notes.take(), seen);
}

#[tokio::test(start_paused = true)]
async fn the_call_that_won_a_red_lock_is_reported_as_the_first_whatever_acquires_it_again_meanwhile()
 {
    let (notes, reenters) = (Notes::default(), Reenters::default());
    let mut locks = Vec::new();
    for _ in 0..3 {
        let server = Server::new();
        let builder = watched(&server, &notes).observer(reenters.clone());
        locks.push(builder.build().await.unwrap().lock("r"));
    }
    let (lock, owner) = (RedLock::new(locks), Owner::new());
    reenters.0.lock().request = Some(lock.lock().owner(&owner).into_future());
    let guard = lock.lock().owner(&owner).await.unwrap();
    assert_eq!(guard.hold_count(), 2);
    let seen = ["Round true 1", "Reentered red lock r", "First red lock r"];
    assert_eq!(notes.take(), seen);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_future_is_dropped_was_cancelled() {
    let (server, client, notes) = start().await;
    let _stolen = server.steal("l");
    let waiting = client.lock("l").lock().into_future();
    timeout(LEASE, waiting).await.unwrap_err();
    assert_eq!(notes.take(), ["Cancelled lock l"]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_wait_is_reported_before_the_acquire() {
    let (server, client, notes) = start().await;
    let lock = client.lock("l");
    let waiting = || tokio::spawn(client.lock("l").lock().into_future());
    // A message of another client.
    let stolen = server.steal("l");
    let waiter = waiting();
    sleep(LEASE).await;
    drop(stolen);
    let guard = waiter.await.unwrap().unwrap();
    assert_eq!(notes.take(), ["Woken lock l Message", "First lock l"]);
    // Until the subscription has ended: with it, a release of its own client is a message, too.
    sleep(LEASE).await;
    // A hand-over.
    let waiter = waiting();
    sleep(LEASE).await;
    guard.unlock().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    let seen = [
        "HandedOn lock l true",
        "Woken lock l HandOver",
        "HandedOver lock l",
    ];
    assert_eq!(notes.take(), seen);
    // The release of a guard that was dropped.
    let waiter = waiting();
    sleep(LEASE).await;
    drop(guard);
    let guard = waiter.await.unwrap().unwrap();
    let seen = [
        "Dropped lock l true",
        "Woken lock l Release",
        "First lock l",
    ];
    assert_eq!(notes.take(), seen);
    guard.unlock().await.unwrap();
    // The message is lost, so the waiter's timer wakes it.
    let stolen = server.steal("l");
    let waiter = waiting();
    sleep(LEASE).await;
    server.lose_messages(true);
    drop(stolen);
    let guard = waiter.await.unwrap().unwrap();
    notes.next("Woken lock l Timer").await;
    guard.unlock().await.unwrap();
    // A spin lock polls, as it should.
    let spin = client.spin_lock("l");
    let stolen = server.steal("l");
    let waiter = tokio::spawn(spin.lock().into_future());
    sleep(LEASE).await;
    drop(stolen);
    waiter.await.unwrap().unwrap().unlock().await.unwrap();
    notes.next("Woken spin lock l Pause").await;
    assert!(!lock.is_locked().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn waiters_of_each_kind_are_notified_of_the_release_of_another_client() {
    let (server, client, notes) = start().await;
    let other = server.client().await;
    let lock_of = |of: &Client| -> Vec<Lock> {
        vec![
            of.fair_lock("fair"),
            of.fenced_lock("fenced"),
            of.group_lock("group", [Value::utf8("a")]),
            of.read_write_lock("rw").write().into(),
        ]
    };
    for (own, others) in lock_of(&client).into_iter().zip(lock_of(&other)) {
        let guard = others.lock().await.unwrap();
        let waiter = tokio::spawn(own.lock().into_future());
        // The waiter has subscribed and polls again later.
        sleep(Duration::from_millis(1_500)).await;
        guard.unlock().await.unwrap();
        waiter.await.unwrap().unwrap().unlock().await.unwrap();
        let noted = notes.take();
        assert!(noted[0].ends_with("Message"), "{noted:?}");
    }
    let semaphore = other.semaphore("semaphore");
    semaphore.try_set_permits(1).await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let waiter = tokio::spawn(client.semaphore("semaphore").acquire().into_future());
    sleep(Duration::from_millis(1_500)).await;
    permit.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    let noted = notes.take();
    assert_eq!(noted[0], "Woken semaphore semaphore Message");
}

/// The kinds, each by a lock that is acquired and unlocked.
#[tokio::test(start_paused = true)]
async fn every_kind_reports_its_calls_and_holds() {
    let (_server, client, notes) = start().await;
    let rw = client.read_write_lock("rw");
    let locks = [
        client.lock("l"),
        client.spin_lock("s"),
        client.non_reentrant_lock("n"),
        client.fenced_lock("f"),
        client.fair_lock("q"),
        client.group_lock("g", [Value::utf8("a")]),
    ];
    for lock in locks {
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    rw.read().lock().await.unwrap().unlock().await.unwrap();
    rw.write().lock().await.unwrap().unlock().await.unwrap();
    let seen = [
        "First lock l",
        "Unlocked lock l true",
        "First spin lock s",
        "Unlocked spin lock s true",
        "First non-reentrant lock n",
        "Unlocked non-reentrant lock n true",
        "First fenced lock f",
        "Unlocked fenced lock f true",
        "First fair lock q",
        "Unlocked fair lock q true",
        "First group lock g",
        "Unlocked group lock g true",
        "First read lock rw",
        "Unlocked read lock rw true",
        "First write lock rw",
        "Unlocked write lock rw true",
    ];
    assert_eq!(notes.take(), seen);
    let permits = client.permit_semaphore("p");
    permits.set_permits(2).await.unwrap();
    let both = permits.acquire_many(2).await.unwrap();
    both.release().await.unwrap();
    let seen = [
        "First permit p",
        "Unlocked permit p true",
        "Unlocked permit p true",
    ];
    assert_eq!(notes.take(), seen);
    let semaphore = client.semaphore("c");
    semaphore.try_set_permits(3).await.unwrap();
    let permit = semaphore.acquire_many(3).await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    permit.release().await.unwrap();
    let seen = [
        "First semaphore c",
        "Busy semaphore c",
        "Unlocked semaphore c true",
    ];
    assert_eq!(notes.take(), seen);
    let latch = client.count_down_latch("d");
    latch.try_set_count(1).await.unwrap();
    assert!(!latch.wait_zero_within(LEASE).await.unwrap());
    latch.count_down().await.unwrap();
    latch.wait_zero().await.unwrap();
    assert_eq!(notes.take(), ["Busy latch d", "First latch d"]);
    let leadership = client.election("e").campaign("me").await.unwrap();
    leadership.resign().await.unwrap();
    assert_eq!(
        notes.take(),
        ["First election e", "Unlocked election e true"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_is_one_call_and_the_holds_of_its_locks() {
    let (_server, client, notes) = start().await;
    let both = MultiLock::new([client.lock("a"), client.lock("b")]);
    both.lock().await.unwrap().unlock().await.unwrap();
    let mut seen = notes.take();
    assert_eq!(seen.remove(0), "First multi lock [a, b]");
    seen.sort();
    assert_eq!(seen, ["Unlocked lock a true", "Unlocked lock b true"]);
}

/// The ids of clients are random, so a lock of several clients is made several times.
#[tokio::test(start_paused = true)]
async fn a_lock_of_several_clients_is_reported_to_the_observers_of_the_first_one() {
    for _ in 0..8 {
        let servers = [Server::new(), Server::new(), Server::new()];
        let notes = Notes::default();
        let first = watched(&servers[0], &notes).build().await.unwrap();
        let mut locks = vec![first.lock("r")];
        for server in &servers[1..] {
            locks.push(server.client().await.lock("r"));
        }
        let red = RedLock::new(locks.clone());
        red.lock().await.unwrap().unlock().await.unwrap();
        let seen = notes.take();
        for event in ["First red lock r", "Unlocked red lock r true"] {
            assert!(seen.iter().any(|note| note == event), "{seen:?}");
        }
        let multi = MultiLock::new(locks);
        multi.lock().await.unwrap().unlock().await.unwrap();
        let seen = notes.take();
        let event = "First multi lock [r, r, r]";
        assert!(seen.iter().any(|note| note == event), "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_red_lock_is_one_lock() {
    let (servers, _clients, lock, notes) = start_red_lock().await;
    let guard = lock.lock().await.unwrap();
    let again = lock.lock().await.unwrap();
    drop(again);
    guard.unlock().await.unwrap();
    let seen = [
        "Round true 1",
        "First red lock r",
        "Reentered red lock r",
        "Unlocked red lock r true",
    ];
    assert_eq!(notes.take(), seen);
    drop(lock.lock().await.unwrap());
    notes.next("Dropped red lock r true").await;
    let guard = lock.lock().await.unwrap();
    let everywhere = || servers.iter().all(|server| server.holder("r").is_some());
    eventually("all instances grant it", everywhere).await;
    for server in &servers[1..] {
        server.lose("r");
    }
    assert_eq!(guard.lost().await.reason(), LostReason::NotOurs);
    let seen = notes.next("Lost").await;
    assert_eq!(seen.last().unwrap(), "Lost red lock r NotOurs");
    drop(guard);
    sleep(LEASE).await;
    assert!(notes.take().is_empty());
}

/// The guard of the instance alone ends first, so the `RedLock` keeps the hold that began with that guard.
#[tokio::test(start_paused = true)]
async fn a_hold_that_only_a_red_lock_keeps_is_released_when_the_instance_is_lost() {
    let (servers, clients, lock, notes) = start_red_lock().await;
    let alone = clients[0].lock("r").lock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    let everywhere = || servers.iter().all(|server| server.holder("r").is_some());
    eventually("all instances grant it", everywhere).await;
    let still = Unlocked::StillHeld { count: 1 };
    assert_eq!(alone.unlock().await.unwrap(), still);
    assert_eq!(notes.take().first().unwrap(), "First lock r");
    servers[0].lose("r");
    let seen = notes.next("Dropped").await;
    assert_eq!(seen, ["Dropped lock r true"]);
    guard.unlock().await.unwrap();
    assert_eq!(notes.take(), ["Unlocked red lock r true"]);
    let lost: u64 = clients.iter().map(|it| it.stats().lost_total).sum();
    assert_eq!(lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_red_lock_with_a_lease_expires_and_is_not_lost() {
    let (servers, clients, lock, notes) = start_red_lock().await;
    let lost = || -> u64 { clients.iter().map(|it| it.stats().lost_total).sum() };
    lock.lock().lease(LEASE).await.unwrap().forget();
    let noted = notes.next("Expired").await;
    let seen = [
        "Round true 1",
        "First red lock r",
        "Expired red lock r true",
    ];
    assert_eq!(noted, seen);
    sleep(LEASE).await;
    assert!(notes.take().is_empty());
    assert_eq!(lost(), 0);
    // A guard must be notified, and the end of a watched hold is a loss and not an intended expiry.
    let guard = lock.lock().lease(LEASE).await.unwrap();
    lock.lock().lease(LEASE / 2).await.unwrap().forget();
    notes.next("Lost red lock r Deadline").await;
    drop(guard);
    lock.lock().await.unwrap().forget();
    notes.take();
    servers.iter().for_each(Server::freeze);
    notes.next("Lost red lock r Deadline").await;
    assert_eq!(lost(), 2);
}

/// The client of the server that still answers shows it too.
#[tokio::test(start_paused = true)]
async fn the_numbers_of_each_client_show_that_the_quorum_of_a_red_lock_is_silent() {
    let (servers, clients, lock, notes) = start_red_lock().await;
    let guard = lock.lock().await.unwrap();
    let counts = |client: &Client| {
        let stats = client.stats();
        (stats.held, stats.watched, stats.in_jeopardy)
    };
    eventually("each client has one of its locks", || {
        clients.iter().all(|client| counts(client) == (1, 1, 0))
    })
    .await;
    sleep(LEASE * 2).await;
    for client in &clients {
        assert_eq!(counts(client), (1, 1, 0));
        assert!(client.stats().least_remaining.unwrap() > LEASE / 2);
    }
    servers[1].freeze();
    servers[2].freeze();
    notes.next("Jeopardy red lock r").await;
    for client in &clients {
        assert_eq!(counts(client), (1, 1, 1));
    }
    // Its own lease there is extended, and does not count without the others.
    eventually("the lease runs out", || {
        clients[0].stats().least_remaining.unwrap() < LEASE / 5 * 2
    })
    .await;
    assert!(guard.is_valid());
    notes.next("Lost red lock r Deadline").await;
    for client in &clients {
        assert_eq!(counts(client), (0, 0, 0));
        assert_eq!(client.stats().least_remaining, None);
    }
    servers[1].thaw();
    servers[2].thaw();
    drop(guard);
}

/// A quorum still answers, so the lock is in no jeopardy.
#[tokio::test(start_paused = true)]
async fn a_failed_extension_of_a_red_lock_is_counted_at_the_client_of_the_silent_server() {
    let (servers, clients, lock, notes) = start_red_lock().await;
    let guard = lock.lock().await.unwrap();
    let everywhere = || servers.iter().all(|server| server.holder("r").is_some());
    eventually("all instances grant it", everywhere).await;
    let failed = |at: usize| clients[at].stats().renewals_failed_total;
    sleep(LEASE * 2).await;
    assert_eq!([failed(0), failed(1), failed(2)], [0; 3]);
    servers[2].freeze();
    let seen = notes.next("RenewalFailed 1").await;
    assert!(
        seen.iter().all(|it| !it.starts_with("Jeopardy")),
        "{seen:?}"
    );
    assert!(failed(2) > 0);
    assert_eq!([failed(0), failed(1)], [0; 2]);
    assert_eq!(guard.verdict(), Verdict::Held);
    servers[2].thaw();
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_numbers_of_a_red_lock_with_a_fixed_lease_or_at_its_max_hold_are_no_warning() {
    let (_servers, clients, lock, _) = start_red_lock().await;
    let numbers = |client: &Client| {
        let stats = client.stats();
        (stats.held, stats.watched, stats.least_remaining.is_some())
    };
    let fixed = lock.lock().lease(LEASE * 9).await.unwrap();
    eventually("each client has one of its locks", || {
        clients
            .iter()
            .all(|client| numbers(client) == (1, 0, false))
    })
    .await;
    fixed.unlock().await.unwrap();
    let bounded = lock.lock().max_hold(LEASE / 2).await.unwrap();
    eventually("each client has one of its locks", || {
        clients
            .iter()
            .all(|client| numbers(client) == (1, 1, false))
    })
    .await;
    bounded.unlock().await.unwrap();
}

/// The servers do not answer the extensions that the owner requests, and the client does not repeat them.
#[tokio::test(start_paused = true)]
async fn a_red_lock_with_a_fixed_lease_is_not_in_jeopardy_after_a_failed_extension() {
    let (servers, clients, lock, notes) = start_red_lock().await;
    let guard = lock.lock().lease(LEASE * 9).await.unwrap();
    servers[1].freeze();
    servers[2].freeze();
    let nested = lock.try_lock().lease(LEASE * 20).await;
    for error in [
        guard.extend(LEASE * 20).await.unwrap_err(),
        nested.unwrap_err(),
    ] {
        assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    }
    sleep(LEASE).await;
    assert_eq!(guard.verdict(), Verdict::Held);
    assert!(clients.iter().all(|it| it.stats().in_jeopardy == 0));
    let seen = notes.take();
    assert!(
        seen.iter().all(|it| !it.starts_with("Jeopardy")),
        "{seen:?}"
    );
    servers[1].thaw();
    servers[2].thaw();
}

/// A frozen server: the renewals fail, and the deadline passes.
#[tokio::test(start_paused = true)]
async fn an_hour_of_silence_is_reported_as_jeopardy_failures_and_one_loss() {
    let (server, client, notes) = start().await;
    let guard = client.lock("l").lock().await.unwrap();
    sleep(LEASE).await;
    assert_eq!(notes.take(), ["First lock l"]);
    server.freeze();
    sleep(Duration::from_secs(3600)).await;
    let seen = notes.take();
    let (failures, others): (Vec<_>, Vec<_>) =
        seen.into_iter().partition(|note| note == "RenewalFailed 1");
    assert_eq!(others, ["Jeopardy lock l", "Lost lock l Deadline"]);
    assert!(!failures.is_empty());
    server.thaw();
    drop(guard);
    let stats = client.stats();
    assert_eq!(stats.lost_total, 1);
    assert_eq!(stats.renewals_failed_total, failures.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_succeeds_again_is_a_recovery() {
    let (server, client, notes) = start().await;
    let guard = client.lock("l").lock().await.unwrap();
    notes.take();
    server.freeze();
    notes.next("Jeopardy lock l").await;
    assert_eq!(client.stats().in_jeopardy, 1);
    server.thaw();
    notes.next("Recovered lock l").await;
    assert_eq!(client.stats().in_jeopardy, 0);
    guard.unlock().await.unwrap();
}

/// The watchdog itself has nothing to extend then.
#[tokio::test(start_paused = true)]
async fn a_lock_that_its_owner_extends_far_is_in_jeopardy_no_longer() {
    let (server, client, notes) = start().await;
    let no_replicas = "NOREPLICAS Not enough good replicas to write.";
    for name in ["extended", "nested"] {
        let lock = client.lock(name);
        let guard = lock.lock().await.unwrap();
        notes.take();
        server.refuse("evalsha", no_replicas, u32::MAX);
        notes.next(&format!("Jeopardy lock {name}")).await;
        server.refuse("evalsha", no_replicas, 0);
        let mut nested = None;
        match name {
            "nested" => nested = Some(lock.lock().lease(LEASE * 20).await.unwrap()),
            _ => guard.extend(LEASE * 20).await.unwrap(),
        }
        notes.next(&format!("Recovered lock {name}")).await;
        assert_eq!(guard.verdict(), Verdict::Held);
        drop(nested);
        guard.unlock().await.unwrap();
    }
}

/// The guard that is left has a fixed lease, so no renewal is repeated.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_renewed_any_more_is_in_jeopardy_no_longer() {
    let (server, client, notes) = start().await;
    let no_replicas = "NOREPLICAS Not enough good replicas to write.";
    let lock = client.lock("l");
    let renewed = lock.lock().await.unwrap();
    server.refuse("evalsha", no_replicas, u32::MAX);
    notes.next("Jeopardy lock l").await;
    server.refuse("evalsha", no_replicas, 0);
    let fixed = lock.lock().lease(LEASE * 20).await.unwrap();
    drop(renewed);
    assert_eq!(fixed.verdict(), Verdict::Held);
    assert_eq!(client.stats().in_jeopardy, 0);
    sleep(LEASE * 2).await;
    assert_eq!(fixed.verdict(), Verdict::Held);
    fixed.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_loss_is_reported_once_and_without_a_release() {
    let (server, client, notes) = start().await;
    let lock = client.lock("l");
    // Found by the watchdog.
    let guard = lock.lock().await.unwrap();
    server.lose("l");
    guard.lost().await;
    drop(guard);
    // Found by the unlock.
    let guard = lock.lock().lease(LEASE).await.unwrap();
    server.lose("l");
    guard.unlock().await.unwrap_err();
    // Freed by force, by this client.
    let guard = lock.lock().await.unwrap();
    lock.force_unlock().await.unwrap();
    drop(guard);
    // Its time had ended.
    let guard = lock.lock().max_hold(LEASE).await.unwrap();
    guard.lost().await;
    drop(guard);
    sleep(LEASE).await;
    let seen = [
        "First lock l",
        "Lost lock l NotOurs",
        "First lock l",
        "Lost lock l NotOurs",
        "First lock l",
        "Lost lock l Forced",
        "First lock l",
        "Lost lock l MaxHold",
    ];
    let mut noted = notes.take();
    noted.retain(|note| !note.starts_with("Woken"));
    assert_eq!(noted, seen);
    assert_eq!(client.stats().lost_total, 4);
}

/// Ends guards while the loss of a hold is reported. A holder on another thread may do so, too.
#[derive(Clone, Default)]
struct EndsGuards(Arc<Mutex<Vec<Guard>>>);

impl Observer for EndsGuards {
    fn event(&self, event: &ClientEvent<'_>) {
        if matches!(event, ClientEvent::Lost { .. }) {
            let guards = std::mem::take(&mut *self.0.lock());
            drop(guards);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_whose_guard_ends_between_its_loss_and_the_report_is_reported_as_lost() {
    let (server, notes, ends) = (Server::new(), Notes::default(), EndsGuards::default());
    let builder = watched(&server, &notes).observer(ends.clone());
    let client = builder.build().await.unwrap();
    let (warnings, _recording) = Warnings::of_this_thread();
    // Both deadlines are at one moment.
    for name in ["a", "b"] {
        let guard = client.lock(name).lock().lease(LEASE).await.unwrap();
        ends.0.lock().push(guard);
    }
    sleep(LEASE * 2).await;
    assert!(ends.0.lock().is_empty());
    let seen = [
        "First lock a",
        "First lock b",
        "Lost lock a Deadline",
        "Lost lock b Deadline",
    ];
    assert_eq!(notes.take(), seen);
    assert_eq!(client.stats().lost_total, 2);
    let logged = warnings.with("lock lost");
    let by_deadline = logged
        .iter()
        .filter(|it| it.contains("reason=\"deadline\""));
    assert_eq!((by_deadline.count(), logged.len()), (2, 2), "{logged:?}");
    server.assert_clean().await;
}

/// Lets time pass while no task runs, as on a busy machine: the client's thread does not notice.
fn pass(time: Duration) {
    let mut passing = Box::pin(tokio::time::advance(time));
    let mut context = Context::from_waker(Waker::noop());
    // The time passes at the first poll.
    assert!(passing.as_mut().poll(&mut context).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_a_call_of_its_owner_notices_is_reported_once() {
    let calls = ["lock", "unlock", "multi", "single", "extend"];
    for call in calls {
        let (server, client, notes) = start().await;
        let lock = match call {
            "single" => client.non_reentrant_lock("l"),
            _ => client.lock("l"),
        };
        let both = MultiLock::new([lock.clone(), client.lock("other")]);
        let (warnings, _recording) = Warnings::of_this_thread();
        let guard = lock.lock().lease(LEASE).await.unwrap();
        pass(LEASE);
        let error = match call {
            "lock" => lock.lock().await.unwrap_err(),
            "unlock" => lock.unlock().await.unwrap_err(),
            "extend" => guard.extend(LEASE).await.unwrap_err(),
            _ => both.try_lock().await.unwrap_err(),
        };
        assert!(matches!(error, Error::Lost(_)), "{call}: {error}");
        sleep(LEASE).await;
        drop(guard);
        sleep(LEASE).await;
        let mut noted = notes.take();
        noted.retain(|note| !note.starts_with("Failed"));
        assert_eq!(
            noted,
            ["First lock l", "Lost lock l Deadline"].map(|note| match call {
                "single" => note.replace("lock l", "non-reentrant lock l"),
                _ => note.to_owned(),
            }),
            "{call}"
        );
        assert_eq!(client.stats().lost_total, 1, "{call}");
        assert_eq!(warnings.with("lock lost").len(), 1, "{call}");
        server.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_after_its_deadline_is_reported_as_lost() {
    let (server, client, notes) = start().await;
    let lock = client.lock("l");
    for request in [lock.lock().lease(LEASE), lock.lock()] {
        let guard = request.await.unwrap();
        let token = guard.lost_token();
        pass(LEASE);
        drop(guard);
        assert!(token.is_cancelled());
        sleep(LEASE).await;
        assert_eq!(notes.take(), ["First lock l", "Lost lock l Deadline"]);
    }
    assert_eq!(client.stats().lost_total, 2);
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_left_to_its_lease_expires_and_is_not_lost() {
    let (_server, client, notes) = start().await;
    let guard = client.lock("l").lock().lease(LEASE).await.unwrap();
    guard.leave_to_lease();
    notes.next("Expired lock l true").await;
    // Ported code limits a rate this way.
    let guard = client.lock("t").lock().lease(LEASE).await.unwrap();
    guard.forget();
    notes.next("Expired lock t true").await;
    assert_eq!(client.stats().lost_total, 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_and_loses_nothing() {
    let (server, client, notes) = start().await;
    let guard = client.lock("l").lock().await.unwrap();
    client.shutdown().await;
    assert!(!guard.is_valid());
    assert_eq!(notes.take(), ["First lock l", "ShutDown lock l true"]);
    drop(guard);
    assert_eq!(client.stats().lost_total, 0);
    // Without a server, no release is confirmed.
    let client = watched(&server, &notes).build().await.unwrap();
    let guard = client.lock("l").lock().await.unwrap();
    server.freeze();
    client.shutdown().await;
    let seen = notes.next("ShutDown").await;
    assert_eq!(seen.last().unwrap(), "ShutDown lock l false");
    drop(guard);
}

struct Panics;

impl Observer for Panics {
    fn event(&self, event: &ClientEvent<'_>) {
        // The first event, before any lock exists, does not panic.
        if matches!(event, ClientEvent::Renewed { .. }) {
            panic!("on purpose");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_on_the_clients_thread_costs_no_lock() {
    let (server, notes) = (Server::new(), Notes::default());
    let builder = server.builder().watchdog_lease(LEASE).observer(Panics);
    let client = builder.observer(notes.clone()).build().await.unwrap();
    let guard = client.lock("l").lock().await.unwrap();
    sleep(LEASE * 10).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    assert_eq!(notes.take(), ["First lock l", "Unlocked lock l true"]);
}

#[tokio::test(start_paused = true)]
async fn stats_count_what_the_client_holds_and_waits_for() {
    let (server, client, _) = start().await;
    let watched = client.lock("a").lock().await.unwrap();
    let _fixed = client.lock("b").lock().lease(LEASE * 9).await.unwrap();
    let stolen = server.steal("c");
    let waiter = tokio::spawn(client.lock("c").lock().into_future());
    sleep(LEASE * 2).await;
    let stats = client.stats();
    let counts = (stats.held, stats.watched, stats.in_jeopardy, stats.waiters);
    assert_eq!(counts, (2, 1, 0, 1));
    // The lock's channel, and the two of the list of waiting clients.
    assert_eq!((stats.settling, stats.subscriptions), (0, 3));
    assert!(stats.least_remaining.unwrap() > LEASE / 2);
    assert!(stats.oldest_hold.unwrap() >= LEASE * 2);
    assert_eq!((stats.watchdog_lease, stats.max_waiters), (LEASE, 100_000));
    let connected = stats.connected;
    assert!(connected.commands && connected.watchdog && connected.messages);
    drop(stolen);
    waiter.await.unwrap().unwrap().unlock().await.unwrap();
    server.freeze();
    drop(watched);
    assert_eq!(client.stats().settling, 1);
    server.thaw();
}

/// One thread runs the tasks and the client, so each look at the numbers shows one moment.
#[tokio::test(start_paused = true)]
async fn stats_agree_with_each_other_while_many_tasks_compete() {
    const TASKS: u32 = 64;
    const LOCKS: u32 = 4;
    const TURNS: u32 = 5;
    const HOLD: Duration = Duration::from_millis(7);
    let (_server, client, notes) = start().await;
    let guards = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let lock = client.lock(format!("l{}", number % LOCKS));
        let guards = guards.clone();
        tasks.spawn(async move {
            for _ in 0..TURNS {
                let guard = lock.lock().await.unwrap();
                guards.fetch_add(1, Ordering::Relaxed);
                sleep(HOLD).await;
                guards.fetch_sub(1, Ordering::Relaxed);
                guard.unlock().await.unwrap();
            }
        });
    }
    let (mut most_held, mut most_waiters) = (0, 0);
    while !tasks.is_empty() {
        let (stats, guards) = (client.stats(), guards.load(Ordering::Relaxed));
        let seen = format!("{guards} guards, {stats:?}");
        // A lock that was granted may have no guard yet.
        assert!((guards..=LOCKS).contains(&stats.held), "{seen}");
        assert!(stats.watched <= stats.held, "{seen}");
        assert!(guards + stats.waiters <= TASKS, "{seen}");
        assert_eq!(stats.oldest_hold.is_some(), stats.held > 0, "{seen}");
        assert!(stats.least_remaining.is_none_or(|it| it <= LEASE), "{seen}");
        assert_eq!((stats.in_jeopardy, stats.lost_total), (0, 0), "{seen}");
        most_held = most_held.max(stats.held);
        most_waiters = most_waiters.max(stats.waiters);
        sleep(HOLD / 7).await;
        while let Some(ended) = tasks.try_join_next() {
            ended.unwrap();
        }
    }
    assert_eq!(most_held, LOCKS);
    assert!(most_waiters >= TASKS / 2, "{most_waiters}");
    eventually("all of it has ended", || {
        let stats = client.stats();
        (stats.held, stats.waiters, stats.settling) == (0, 0, 0)
    })
    .await;
    let stats = client.stats();
    assert_eq!((stats.lost_total, stats.renewals_failed_total), (0, 0));
    let notes = notes.take();
    let count = |what: &str| notes.iter().filter(|note| note.starts_with(what)).count();
    let handed_over = count("HandedOver ");
    let turns = (TASKS * TURNS) as usize;
    assert_eq!(count("First ") + handed_over, turns);
    assert_eq!(count("Unlocked ") + count("HandedOn "), turns);
    assert!(handed_over > 0 && stats.hand_overs_total >= handed_over as u64);
}

#[tokio::test(start_paused = true)]
async fn the_least_remaining_time_leaves_out_a_lock_at_the_end_of_its_max_hold() {
    let (_server, client, _) = start().await;
    let bounded = client.lock("a").lock().max_hold(LEASE * 3).await.unwrap();
    let mut seen = Vec::new();
    while bounded.is_valid() {
        let stats = client.stats();
        assert_eq!(stats.watched, 1);
        seen.push(stats.least_remaining);
        sleep(LEASE / 30).await;
    }
    assert!(
        seen[0].is_some() && seen[seen.len() - 1].is_none(),
        "{seen:?}"
    );
    let is_healthy = |left: &Duration| *left > LEASE / 2;
    assert!(seen.iter().flatten().all(is_healthy), "{seen:?}");
    // No renewal moves the deadline of this one.
    let short = client.lock("b").lock().max_hold(LEASE / 3).await.unwrap();
    let stats = client.stats();
    assert_eq!((stats.watched, stats.least_remaining), (1, None));
    drop(short);
}

/// A group is cut to 64 bytes, between two characters.
#[tokio::test(start_paused = true)]
async fn a_lock_has_the_group_that_is_made_of_its_name() {
    #[derive(Clone, Default)]
    struct Groups(Arc<Mutex<Vec<String>>>);

    impl Observer for Groups {
        fn event(&self, event: &ClientEvent<'_>) {
            if let ClientEvent::Acquired { lock, .. } = event {
                self.0.lock().push(lock.group().to_owned());
            }
        }
    }

    let (server, groups) = (Server::new(), Groups::default());
    let builder = server.builder().observer(groups.clone());
    let builder = builder.lock_group(|name| name.split(':').next().unwrap_or_default().into());
    let client = builder.build().await.unwrap();
    let long = "x".to_owned() + &"\u{e9}".repeat(40);
    for name in ["orders:1", ":2", "plain", &long] {
        drop(client.lock(name).lock().await.unwrap());
    }
    let rw = client.read_write_lock("rw:1");
    drop(rw.read().lock().await.unwrap());
    drop(rw.write().lock().await.unwrap());
    let (a, b) = (client.lock("a:1"), client.lock("a:2"));
    drop(MultiLock::new([a.clone(), b]).lock().await.unwrap());
    drop(
        MultiLock::new([a, client.lock("b:1")])
            .lock()
            .await
            .unwrap(),
    );
    let cut = &long[..63];
    let seen = ["orders", "", "plain", cut, "rw", "rw", "a", ""];
    assert_eq!(*groups.0.lock(), seen);
}
