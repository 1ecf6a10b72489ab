//! A load to look at with a profiler: `make profile` runs it under one.
//!
//! `cargo bench --bench profile -- W1 16 5` starts a server of its own and lets 16 owners lock and
//! unlock for five seconds: in W1 a key each, in W2 one key for all. `raw` in place of W1 sends the
//! two scripts of a pair without a lock library, for comparison.

#![expect(clippy::disallowed_methods, reason = "what it measures is not a lease")]

mod support;

use std::time::{Duration, Instant};

use lockdog::Client;
use redis::Script;
use redis::aio::MultiplexedConnection;
use support::Server;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [workload, owners, seconds, ..] = args[..] else {
        println!("it wants a workload, owners and seconds: W1 16 5");
        return;
    };
    let owners: usize = owners.parse().expect("a number of owners");
    let seconds = Duration::from_secs(seconds.parse().expect("a number of seconds"));

    let server = Server::start().await;
    let client = Client::connect(&server.url)
        .await
        .expect("the server is there");
    let end = Instant::now() + seconds;
    let mut tasks = JoinSet::new();
    for owner in 0..owners {
        let key = format!("profile:{}", if workload == "W2" { 0 } else { owner });
        match workload {
            "raw" => tasks.spawn(bare_pairs(server.connection.clone(), key, end)),
            _ => tasks.spawn(pairs(client.clone(), key, end)),
        };
    }
    let pairs: u64 = tasks.join_all().await.iter().sum();
    client.shutdown().await;
    let rate = pairs as f64 / seconds.as_secs_f64();
    println!("{workload} with {owners} owners: {rate:.0} pairs a second");
}

async fn pairs(client: Client, key: String, end: Instant) -> u64 {
    let lock = client.lock(key);
    let mut pairs = 0;
    while Instant::now() < end {
        let guard = lock.lock().await.expect("it is granted");
        guard.unlock().await.expect("it is ours");
        pairs += 1;
    }
    pairs
}

async fn bare_pairs(mut connection: MultiplexedConnection, key: String, end: Instant) -> u64 {
    let acquire = Script::new(include_str!("../lua/lock/acquire.lua"));
    let unlock = Script::new(include_str!("../lua/lock/unlock.lua"));
    let channel = format!("redisson_lock__channel:{{{key}}}");
    let mut pairs = 0;
    while Instant::now() < end {
        let field = format!("5b2a4b5e-6b0e-4d0c-9f0e-2f4f0b1c8d7a:t1.{pairs}");
        let mut call = acquire.key(&key);
        let call = call.arg(&field).arg(1).arg(30_000);
        let () = call.invoke_async(&mut connection).await.expect("granted");
        let mut call = unlock.key(&key);
        let call = call.arg(&field).arg(0).arg(&channel);
        let () = call.invoke_async(&mut connection).await.expect("released");
        pairs += 1;
    }
    pairs
}
