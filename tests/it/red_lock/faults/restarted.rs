//! Servers that restart without or with their data while an owner holds the lock.

use std::time::{Duration, Instant};

use lockdog::Error;
use lockdog::error::LostReason;

use super::crowd::Crowd;
use super::fixture::{
    Fixture, assert_busy, await_states, give_back, red_lock, states_as_letters, take,
};
use super::story::Watched;
use super::{LEASE, NAME, QUARANTINE};
use crate::red_lock::{SOON, ms};
use crate::support::{Data, Redis, RedisServer, eventually};

/// A server that restarts on a busy machine must return before a lock with this lease ends.
const LONG_LEASE: Duration = Duration::from_millis(3 * LEASE.as_millis() as u64);

/// The server is killed and restarted without data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_returned_empty_is_not_reacquired_before_the_end_of_its_quarantine() {
    let test = Fixture::start(3).await;
    let clients = test.clients().await;
    let yours = test.lock().await;
    let guard = take(&red_lock(&clients)).await;
    eventually(SOON, "it has all", async || guard.margin() == 1).await;
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    let before = Instant::now();
    empty(&test.servers[0], Emptied::Restart).await;
    let mut watched = Watched::new(guard);
    let mut was_quarantined = false;
    loop {
        // Other clients may acquire it there for a moment, until they check the server's identity.
        let fields = test.servers[0].redis().await.hash(NAME).await.into_keys();
        let its = clients[0].id().to_string();
        let is_taken = fields.into_iter().any(|field| field.starts_with(&its));
        let since = before.elapsed();
        assert!(watched.look(), "two of three are a quorum");
        if is_taken {
            assert!(since >= QUARANTINE, "taken again after {since:?}");
            break;
        }
        assert!(since < QUARANTINE + SOON, "not taken again");
        was_quarantined |= states_as_letters(&watched.guard().instances(), &test) == "QAA";
        if since < QUARANTINE / 2 {
            assert_busy(&yours).await;
        }
        tokio::time::sleep(ms(20)).await;
    }
    assert!(was_quarantined);
    eventually(SOON, "it has all again", async || {
        watched.guard().margin() == 1
    })
    .await;
    assert_eq!(
        crowd.visits(),
        0,
        "another owner acquired the lock while it was held"
    );
    give_back(watched.into_guard()).await;
    crowd.await_visits(5).await;
    crowd.end().await;
    test.assert_nothing_stays().await;
}

/// The first holder has two of three. A client that acquired the emptied one and the third would be
/// a second holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_instance_allows_no_second_quorum_for_clients_that_used_it() {
    second_quorum(Emptied::Restart, false).await;
}

/// As above, but the second client connects after the restart, so only the server can know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_instance_allows_no_second_quorum_for_new_clients() {
    second_quorum(Emptied::Restart, true).await;
}

/// After a flush only the missing epoch shows the loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_instance_allows_no_second_quorum_if_the_server_stores_an_epoch() {
    second_quorum(Emptied::Flush, true).await;
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Emptied {
    Flush,
    Restart,
}

async fn second_quorum(emptied: Emptied, on_server: bool) {
    let test = Fixture::proxied(3).await;
    let lease = LONG_LEASE;
    let remembers = |builder: lockdog::ClientBuilder| builder.quarantine_on_server(on_server);
    let clients = test.clients_with(remembers).await;
    let direct = async || red_lock(&test.direct_clients_with(remembers).await).max_lease(lease);
    if on_server {
        for client in &clients {
            client.provision().await.unwrap();
        }
    }
    // The first client cannot reach one of the three servers.
    test.proxies[2].refuse();
    assert!(test.proxies[2].cut_all() > 0);
    let mine = red_lock(&clients).max_lease(lease);
    let knew = direct().await;
    let taken = mine.try_lock().wait(SOON).lease(lease).await;
    let guard = taken.expect("enough servers answer").expect("it is free");
    assert!(test.is_taken(0).await && test.is_taken(1).await && !test.is_taken(2).await);
    assert_busy(&knew).await;
    empty(&test.servers[0], emptied).await;
    assert!(!test.is_taken(0).await);
    let yours = if on_server { direct().await } else { knew };
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    let (beside, watched) = (crowd.beside(), Watched::new(guard));
    let loss = watched.working(crowd.beside()).followed_to_the_end().await;
    assert_eq!(loss.reason, LostReason::Deadline);
    assert!(beside.written() > 0);
    crowd.await_visits(5).await;
    let granted = crowd.first_granted().expect("some of them got it");
    crowd.end().await;
    assert!(
        loss.last_valid < granted,
        "two have it: {loss:?}, {granted:?}"
    );
    for server in &test.servers {
        server.redis().await.cmd(&["DEL", "lockdog:epoch"]).await;
    }
    test.assert_nothing_stays_of(lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_returned_with_its_data_keeps_its_hold() {
    let test = Fixture::persistent(3).await;
    let lease = LONG_LEASE;
    let lock = async || {
        let clients = test.clients_with(|it| it.watchdog_lease(lease)).await;
        red_lock(&clients).max_lease(lease)
    };
    let (mine, yours) = (lock().await, lock().await);
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 1).await;
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    let mut watched = Watched::new(guard);
    for (member, server) in test.servers.iter().enumerate() {
        let field = server.redis().await.hash(NAME).await;
        restart(server, Data::Kept).await;
        watched.stays_valid(LEASE / 2).await;
        await_states(watched.guard(), &test, "AAA").await;
        let redis = server.redis().await;
        assert_eq!(redis.hash(NAME).await, field, "{member} was taken again");
        assert!(watched.look());
    }
    assert_eq!(
        crowd.visits(),
        0,
        "another owner acquired the lock while it was held"
    );
    give_back(watched.into_guard()).await;
    // The servers do not count for a new acquire yet, because clients do not know that no data was
    // lost.
    crowd.await_visits(5).await;
    crowd.end().await;
    test.assert_nothing_stays_of(lease).await;
}

/// All servers are killed and restarted without data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_lost_with_all_data_is_reported_and_not_acquired_before_the_end_of_the_quarantine() {
    let test = Fixture::start(3).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let guard = take(&mine).await;
    let watched = Watched::new(guard);
    assert_busy(&yours).await;
    let before = Instant::now();
    for server in &test.servers {
        empty(server, Emptied::Restart).await;
    }
    let loss = watched.followed_to_the_end().await;
    println!("notified after {:?}: {:?}", before.elapsed(), loss.reason);
    let crowd = Crowd::start(&[mine.clone(), yours.clone()]);
    let found = loop {
        // Clients that have not detected the restart send commands, and may find each other's attempts.
        match yours.try_lock().await {
            Ok(Some(_)) => panic!("none of them counts"),
            Err(Error::NoQuorum(none)) => {
                let found = states_as_letters(none.instances(), &test);
                if found == "QQQ" || before.elapsed() >= QUARANTINE {
                    break found;
                }
            }
            Ok(None) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(found, "QQQ");
    crowd.await_visits(1).await;
    let again = before.elapsed();
    assert!(again >= QUARANTINE, "{again:?}");
    crowd.await_visits(5).await;
    crowd.end().await;
    test.assert_nothing_stays().await;
}

/// Removes the data of a server.
async fn empty(server: &RedisServer, emptied: Emptied) {
    match emptied {
        Emptied::Restart => restart(server, Data::Lost).await,
        Emptied::Flush => {
            let was = run_id(&server.redis().await).await;
            server.redis().await.cmd(&["FLUSHALL"]).await;
            assert_eq!(run_id(&server.redis().await).await, was);
        }
    }
}

async fn restart(server: &RedisServer, data: Data) {
    let was = run_id(&server.redis().await).await;
    server.restart(data).await;
    let is = run_id(&server.redis().await).await;
    assert_ne!(was, is, "it is the same process");
}

async fn run_id(redis: &Redis) -> String {
    let info: String = redis.ask(&["INFO", "server"]).await;
    let line = info.lines().find(|line| line.starts_with("run_id:"));
    line.expect("it has one").to_owned()
}
