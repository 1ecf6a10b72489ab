//! Two owners never hold the lock at the same time and every owner acquires it, for any order of the
//! members and any overlap of sets.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockdog::{Client, MultiLock, Owner};
use tokio::task::JoinSet;

use super::{Fixture, SOON, ms, multi};
use crate::support::child::{Copy, argument, send};
use crate::support::{Cell, Direction, Proxy};

/// Two processes name the locks of two servers in opposite orders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_in_two_processes_exclude_each_other_without_deadlock() {
    if let Some(argument) = argument() {
        return one_of_two_processes(&argument).await;
    }
    let test = Fixture::start(2).await;
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let cell = folder.path().join("cell");
    std::fs::write(&cell, "0").expect("it is ours");
    let this = "multi_lock::exclusion::\
                opposite_orders_in_two_processes_exclude_each_other_without_deadlock";
    let began = Instant::now();
    let processes = ["forth", "back"].map(|order| {
        let [one, other] = [0, 1].map(|server: usize| test.servers.all[server].url());
        Copy::run(this, &format!("{order} {one} {other} {}", cell.display()))
    });
    for mut process in processes {
        assert_eq!(process.receive(), "100 rounds");
    }
    let read = std::fs::read_to_string(&cell).expect("it is there");
    assert_eq!(read, "200", "two were inside");
    println!("200 rounds in {:?}", began.elapsed());
    test.assert_clean().await;
}

/// Two owners that read a file, sleep, and write one more, 50 times each.
async fn one_of_two_processes(argument: &str) {
    let [order, one, other, cell] = argument.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{argument}")
    };
    let connecting = [one, other].map(Client::connect);
    let clients: Vec<_> = join_all(connecting).await;
    let clients: Vec<Client> = clients.into_iter().map(|client| client.unwrap()).collect();
    let mut members = [(0, "a"), (1, "b")];
    if order == "back" {
        members.reverse();
    }
    let lock = multi(&clients, &members);
    let work = async || {
        for _ in 0..50 {
            let guard = lock.lock().owner(&Owner::new()).await;
            let guard = guard.expect("nothing is wrong with the servers");
            let read = std::fs::read_to_string(cell).expect("it is there");
            let read: u64 = read.parse().expect("no client is writing it");
            tokio::time::sleep(ms(1)).await;
            std::fs::write(cell, (read + 1).to_string()).expect("it is ours");
            guard.unlock().await.expect("it is held");
        }
    };
    let both = async { tokio::join!(work(), work()) };
    tokio::time::timeout(SOON * 4, both)
        .await
        .expect("each wait ends");
    join_all(clients.iter().map(Client::shutdown)).await;
    send("100 rounds");
}

/// The same from one process, with two sets of clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_in_two_client_sets_exclude_each_other_without_deadlock() {
    let test = Fixture::start(2).await;
    let cell = Cell::new();
    let one = multi(&test.others().await, &[(0, "a"), (1, "b")]);
    let other = multi(&test.others().await, &[(1, "b"), (0, "a")]);
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for lock in [one.clone(), other.clone(), one, other] {
        tasks.spawn(rounds(lock, cell.clone(), 50));
    }
    tokio::time::timeout(SOON * 4, tasks.join_all())
        .await
        .expect("each wait ends");
    cell.assert_exclusive(200);
    println!("200 rounds in {:?}", began.elapsed());
    test.assert_clean().await;
}

/// On a slow network a failed attempt blocks others for longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_contenders_succeed_on_a_slow_network() {
    let test = Fixture::start(3).await;
    let cell = Cell::new();
    let proxies = join_all(test.servers.all.iter().map(Proxy::start)).await;
    for proxy in &proxies {
        proxy.delay(Direction::ToServer, ms(5));
        proxy.delay(Direction::ToClient, ms(5));
    }
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..4 {
        let connecting = proxies.iter().map(|proxy| Client::connect(proxy.url()));
        let clients: Vec<_> = join_all(connecting).await;
        let clients: Vec<Client> = clients.into_iter().map(|client| client.unwrap()).collect();
        let mut members = [(0, "a"), (1, "b"), (2, "c")];
        members.rotate_left(number % 3);
        tasks.spawn(rounds(multi(&clients, &members), cell.clone(), 10));
    }
    // A test in virtual time checks the duration (`several` in `crates/lockdog-test`).
    tokio::time::timeout(SOON * 4, tasks.join_all())
        .await
        .expect("each wait ends");
    cell.assert_exclusive(40);
    println!("40 rounds in {:?}", began.elapsed());
    test.assert_clean().await;
}

/// Every timer is five minutes long, so that a lost wake-up fails the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_among_many_contenders() {
    let test = Fixture::start(2).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for number in 0..3 {
        let patient = test
            .servers
            .clients_with(|client| client.poll_cap(ms(300_000)))
            .await;
        let members = if number % 2 == 0 {
            [(0, "a"), (0, "b"), (1, "c")]
        } else {
            [(1, "c"), (0, "b"), (0, "a")]
        };
        for _ in 0..3 {
            tasks.spawn(rounds(multi(&patient, &members), cell.clone(), 60));
        }
        // One that drops, so that a client waits for its own releases.
        let (lock, cell) = (multi(&patient, &[(1, "c"), (0, "a")]), cell.clone());
        tasks.spawn(async move {
            for _ in 0..60 {
                let guard = lock.lock().owner(&Owner::new()).await;
                let guard = guard.expect("nothing is wrong with the servers");
                cell.bump(ms(1)).await;
                drop(guard);
            }
            60
        });
    }
    tokio::time::timeout(SOON * 4, tasks.join_all())
        .await
        .expect("every owner is woken");
    cell.assert_exclusive(12 * 60);
    test.assert_clean().await;
}

/// Sets that overlap in a ring: each name has a cell of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_sets_exclude_each_other_without_deadlock() {
    let test = Fixture::start(3).await;
    let cells = [Cell::new(), Cell::new(), Cell::new()];
    let names = ["a", "b", "c"];
    let mut tasks = JoinSet::new();
    for number in 0..6 {
        let pair = [number % 3, (number + 1) % 3];
        let clients = test.others().await;
        let lock = MultiLock::new(pair.map(|i| clients[i].lock(names[i])));
        let cells = pair.map(|i| cells[i].clone());
        tasks.spawn(async move {
            for _ in 0..30 {
                let guard = lock
                    .lock()
                    .await
                    .expect("nothing is wrong with the servers");
                tokio::join!(cells[0].bump(ms(1)), cells[1].bump(ms(1)));
                guard.unlock().await.expect("it is held");
            }
        });
    }
    tokio::time::timeout(SOON * 4, tasks.join_all())
        .await
        .expect("each wait ends");
    for cell in cells {
        cell.assert_exclusive(4 * 30);
    }
    test.assert_clean().await;
}

/// The same on one server, where each set is one command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_on_one_server_and_their_members_exclude_each_other() {
    let test = Fixture::start(1).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for number in 0..4 {
        let clients = test.others().await;
        let names: &[(usize, &str)] = match number {
            0 => &[(0, "a"), (0, "b")],
            1 => &[(0, "c"), (0, "a")],
            2 => &[(0, "b"), (0, "a"), (0, "c")],
            _ => &[(0, "a")],
        };
        for _ in 0..2 {
            tasks.spawn(rounds(multi(&clients, names), cell.clone(), 40));
        }
        // One more owner uses only the shared member.
        tasks.spawn(single_rounds(clients[0].clone(), cell.clone(), 20));
    }
    tokio::time::timeout(SOON * 4, tasks.join_all())
        .await
        .expect("each wait ends");
    cell.assert_exclusive(8 * 40 + 4 * 20);
    test.assert_clean().await;
}

/// Every way to acquire and to release, with many calls cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_and_timed_out_calls_keep_exclusion() {
    let test = Fixture::start(2).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for number in 0..6 {
        let clients = test.others().await;
        let members = if number % 2 == 0 {
            [(0, "a"), (0, "b"), (1, "c")]
        } else {
            [(1, "c"), (0, "b"), (0, "a")]
        };
        tasks.spawn(use_every_call(
            multi(&clients, &members),
            cell.clone(),
            number,
        ));
    }
    let entered: i64 = tasks.join_all().await.into_iter().sum();
    assert!(entered >= 6 * 10, "only {entered} entries");
    cell.assert_exclusive(entered);
    test.assert_clean().await;
}

/// Leases far shorter than the test: a holder is renewed or loses the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_holds_exclude_for_longer_than_their_lease() {
    let test = Fixture::start(2).await;
    let cell = Cell::new();
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let short = test
            .servers
            .clients_with(|client| client.watchdog_lease(ms(4_800)))
            .await;
        let (lock, cell) = (multi(&short, &[(0, "a"), (1, "b")]), cell.clone());
        tasks.spawn(async move {
            let guard = lock
                .lock()
                .await
                .expect("nothing is wrong with the servers");
            cell.bump(ms(6_500)).await;
            guard.unlock().await.expect("it was renewed")
        });
    }
    tasks.join_all().await;
    cell.assert_exclusive(2);
    test.assert_clean().await;
}

/// Together with owners of single members on the same client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_contenders_for_one_member_do_not_starve_the_multi_lock() {
    let test = Fixture::start(1).await;
    let mut seen = Vec::new();
    // A busy machine may keep this task from running while the crowd runs.
    while seen.len() < 4 {
        let (entered, crowded) = beside_a_crowd(&test).await;
        println!("{entered} beside {crowded}");
        seen.push((entered, crowded));
        // Without fairness the multi lock would get one turn of a hundred.
        if entered * 40 >= crowded {
            return;
        }
    }
    panic!("too few beside the crowd: {seen:?}");
}

/// How often a multi lock and six owners of one of its members acquired within two seconds.
async fn beside_a_crowd(test: &Fixture) -> (i64, i64) {
    let (client, cell) = (test.clients[0].clone(), Cell::new());
    let end = Instant::now() + ms(2_000);
    let mut crowd = JoinSet::new();
    for _ in 0..6 {
        let (client, cell) = (client.clone(), cell.clone());
        crowd.spawn(async move {
            let mut entered = 0;
            while Instant::now() < end {
                entered += single_rounds(client.clone(), cell.clone(), 1).await;
            }
            entered
        });
    }
    let lock = test.multi(&[(0, "a"), (0, "b")]);
    let mut entered = 0;
    while Instant::now() < end {
        entered += rounds(lock.clone(), cell.clone(), 1).await;
    }
    let crowded: i64 = crowd.join_all().await.into_iter().sum();
    cell.assert_exclusive(entered + crowded);
    test.assert_clean().await;
    (entered, crowded)
}

async fn rounds(lock: MultiLock, cell: Cell, rounds: i64) -> i64 {
    for _ in 0..rounds {
        let owner = Owner::new();
        let guard = lock
            .lock()
            .owner(&owner)
            .await
            .expect("nothing is wrong with the servers");
        cell.bump(ms(1)).await;
        guard.unlock().await.expect("it is held");
    }
    rounds
}

async fn single_rounds(client: Client, cell: Cell, rounds: i64) -> i64 {
    for _ in 0..rounds {
        let request = client.lock("a").lock().owner(&Owner::new());
        let guard = request.await.expect("nothing is wrong with the server");
        cell.bump(ms(1)).await;
        guard.unlock().await.expect("it is held");
    }
    rounds
}

/// Acquires with a wait, a short wait, without a wait or cancelled, and unlocks or drops. Returns how
/// often it acquired.
async fn use_every_call(lock: MultiLock, cell: Cell, number: u64) -> i64 {
    let mut entered = 0;
    for round in 0..60 {
        let patience = Duration::from_millis((round * 7 + number * 3) % 20);
        let guard = match round % 4 {
            0 => lock.try_lock().await.expect("the servers answer"),
            1 => match lock.try_lock().wait(patience).await {
                Ok(guard) => guard,
                // A busy machine's answer may take longer than that.
                Err(error) => {
                    assert!(error.is_timeout(), "{error}");
                    None
                }
            },
            2 => {
                let request = lock.lock().into_future();
                match tokio::time::timeout(patience, request).await {
                    Ok(guard) => Some(guard.expect("the servers answer")),
                    Err(_) => None,
                }
            }
            _ => {
                let request = lock.lock().lease(ms(10_000));
                Some(request.await.expect("the servers answer"))
            }
        };
        let Some(guard) = guard else { continue };
        cell.bump(ms(1)).await;
        entered += 1;
        if round % 3 == 0 {
            drop(guard);
        } else {
            guard.unlock().await.expect("it is held");
        }
    }
    entered
}
