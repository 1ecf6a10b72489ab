//! What a held lock costs: memory in the client, and renewal commands at the server.
//!
//! `cargo bench --bench memory` starts a server of its own and prints one line for each number of
//! locks. It asserts nothing but that every lock is still held, since a busy machine is no bug.

#![expect(clippy::disallowed_methods, reason = "what it measures is not a lease")]

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::stream::{StreamExt, iter};
use lockdog::{Client, Guard};
use support::Server;

#[tokio::main]
async fn main() {
    if let Ok(locks) = std::env::var(LOCKS) {
        let server = Server::start().await;
        measure(&server, locks.parse().expect("it is a number")).await;
        return;
    }
    println!("   locks   bytes/lock   of them guards   commands per 100 locks and period");
    for locks in ["10000", "100000"] {
        // A process for each, so that none is served from memory that another one left.
        let program = std::env::current_exe().expect("this program has a path");
        let status = Command::new(program).env(LOCKS, locks).status();
        assert!(status.expect("it can be started again").success());
    }
}

async fn measure(server: &Server, locks: usize) {
    let client = Client::builder()
        .url(&server.url)
        .watchdog_lease(LEASE)
        .build()
        .await
        .expect("the server is there");
    // What the first lock needs once is not charged to each.
    drop(hold(&client, "warm", 200).await);
    tokio::time::sleep(Duration::from_secs(1)).await;

    let before = resident();
    let guards = hold(&client, "orders", locks).await;
    // A first period in which crowds form.
    tokio::time::sleep(LEASE / 3).await;
    let after = resident();

    ask::<()>(server, &["CONFIG", "RESETSTAT"]).await;
    let began = Instant::now();
    tokio::time::sleep(LEASE / 3 * PERIODS).await;
    let commands = scripts_run(server).await;
    let periods = began.elapsed().as_secs_f64() / (LEASE / 3).as_secs_f64();

    assert!(guards.iter().all(Guard::is_valid), "a lock was lost");
    let per_lock = after.saturating_sub(before) / locks;
    println!(
        "{locks:8}   {per_lock:10}   {:14}   {:.3} ({commands} commands in {periods:.2} periods)",
        size_of::<Guard>(),
        commands as f64 / periods / (locks as f64 / 100.0),
    );
    drop(guards);
    client.shutdown().await;
}

/// Held by one owner, some hundred acquires under way at a time.
async fn hold(client: &Client, prefix: &str, locks: usize) -> Vec<Guard> {
    let mut guards = Vec::with_capacity(locks);
    let mut granted = iter(0..locks)
        .map(|i| client.lock(format!("{prefix}:{i:06}")).lock().into_future())
        .buffer_unordered(200);
    while let Some(guard) = granted.next().await {
        guards.push(guard.expect("nobody else wants these locks"));
    }
    guards
}

/// This process' memory in bytes, as the kernel counts it.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: Option<usize> = kilobytes.and_then(|text| text.trim().parse().ok());
    kilobytes.expect("the kernel tells") * 1024
}

async fn ask<T: redis::FromRedisValue>(server: &Server, args: &[&str]) -> T {
    let mut command = redis::cmd(args[0]);
    command.arg(&args[1..]);
    let answer = command.query_async(&mut server.connection.clone()).await;
    answer.expect("the server answers")
}

async fn scripts_run(server: &Server) -> u64 {
    let stats: String = ask(server, &["INFO", "commandstats"]).await;
    let calls = |line: &str| -> Option<u64> {
        let line = line.strip_prefix("cmdstat_eval")?;
        line.split_once("calls=")?.1.split(',').next()?.parse().ok()
    };
    stats.lines().filter_map(calls).sum()
}

const LOCKS: &str = "LOCKDOG_BENCH_LOCKS";
const LEASE: Duration = Duration::from_secs(15);
const PERIODS: u32 = 3;
