//! Several runtimes with one client.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use lockdog::{Client, Unlocked};
use tokio::runtime::{Builder, Runtime};

use super::{SOON, ms};
use crate::support::{Cell, RedisServer, eventually};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_blocked_runtime_does_not_affect_another() {
    let (mut first, second) = (current_thread(), current_thread());
    let server = first.block_on(RedisServer::start());
    let client = first.block_on(Client::connect(server.url())).unwrap();
    first.block_on(turn(&client));
    let (client, blocked) = block(first, client);
    second.block_on(turns(&client));
    first = blocked.end();
    first.block_on(turn(&client));
    second.block_on(client.shutdown());
}

/// No thread drives the tasks of an idle runtime.
#[test]
fn an_idle_runtime_does_not_affect_another() {
    let (idle, second) = (current_thread(), current_thread());
    let server = second.block_on(RedisServer::start());
    let client = idle.block_on(Client::connect(server.url())).unwrap();
    idle.block_on(turn(&client));
    second.block_on(turns(&client));
    idle.block_on(turn(&client));
    second.block_on(client.shutdown());
}

#[test]
fn a_guard_of_a_blocked_runtime_is_unlocked_by_another_one() {
    let (first, second) = (current_thread(), current_thread());
    let server = first.block_on(RedisServer::start());
    let client = first.block_on(Client::connect(server.url())).unwrap();
    let guard = first.block_on(client.lock("l").lock().into_future());
    let (client, blocked) = block(first, client);
    second.block_on(async {
        assert!(matches!(
            guard.unwrap().unlock().await,
            Ok(Unlocked::Released)
        ));
        let report = client.shutdown().await;
        assert_eq!((report.released, report.unconfirmed), (0, 0));
    });
    drop(blocked.end());
}

#[test]
fn the_connection_of_an_ended_runtime_is_closed() {
    let second = current_thread();
    let server = second.block_on(RedisServer::start());
    let client = second.block_on(Client::connect(server.url())).unwrap();
    second.block_on(async {
        let redis = server.redis().await;
        turn(&client).await;
        let before = redis.clients().await.len();
        for _ in 0..100 {
            let client = client.clone();
            let ended = thread::spawn(move || current_thread().block_on(turn(&client)));
            while !ended.is_finished() {
                tokio::time::sleep(ms(1)).await;
            }
            ended.join().unwrap();
        }
        eventually(SOON, "their connections are closed", async || {
            redis.clients().await.len() <= before
        })
        .await;
        turn(&client).await;
        client.shutdown().await;
    });
}

/// As in services with one runtime per core.
#[test]
fn runtimes_that_share_a_client_exclude_each_other() {
    let main = current_thread();
    let server = main.block_on(RedisServer::start());
    let client = main.block_on(Client::connect(server.url())).unwrap();
    let cell = std::sync::Arc::new(Cell::new());
    let workers: Vec<JoinHandle<()>> = (0..4)
        .map(|_| {
            let (client, cell) = (client.clone(), cell.clone());
            thread::spawn(move || {
                current_thread().block_on(async {
                    for _ in 0..ROUNDS {
                        let guard = client.lock("cell").lock().await.unwrap();
                        cell.bump(ms(1)).await;
                        guard.unlock().await.unwrap();
                    }
                });
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    cell.assert_exclusive(4 * ROUNDS);
    main.block_on(client.shutdown());
}

/// Further runtimes share one connection.
#[test]
fn many_runtimes_use_a_bounded_number_of_connections() {
    let main = Builder::new_multi_thread().enable_all().build().unwrap();
    let server = main.block_on(RedisServer::start());
    let client = main.block_on(Client::connect(server.url())).unwrap();
    let runtimes: Vec<Runtime> = (0..CROWD).map(|_| current_thread()).collect();
    for runtime in &runtimes {
        runtime.block_on(turn(&client));
    }
    let connections = main.block_on(async { server.redis().await.clients().await.len() });
    assert!(connections < CROWD, "{connections}");
    for runtime in &runtimes {
        runtime.block_on(turn(&client));
    }
    main.block_on(client.shutdown());
}

/// A runtime whose thread is blocked.
struct Blocked {
    unblock: mpsc::Sender<()>,
    thread: JoinHandle<Runtime>,
}

fn block(runtime: Runtime, client: Client) -> (Client, Blocked) {
    let (unblock, blocked) = mpsc::channel();
    let (runs, is_running) = mpsc::channel();
    let thread = thread::spawn(move || {
        runtime.block_on(async {
            runs.send(()).unwrap();
            blocked.recv().unwrap();
        });
        runtime
    });
    is_running.recv().unwrap();
    (client, Blocked { unblock, thread })
}

impl Blocked {
    fn end(self) -> Runtime {
        self.unblock.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

async fn turn(client: &Client) {
    let guard = client.lock("l").lock().await.unwrap();
    assert!(matches!(guard.unlock().await.unwrap(), Unlocked::Released));
}

async fn turns(client: &Client) {
    let ((), took) = crate::support::timed(async {
        for _ in 0..TURNS {
            turn(client).await;
        }
    })
    .await;
    // Each call on the other runtime's connection would wait for a command timeout, 3 s.
    assert!(took < SOON, "{took:?}");
}

const TURNS: usize = 20;
const ROUNDS: i64 = 25;
const CROWD: usize = 80;
