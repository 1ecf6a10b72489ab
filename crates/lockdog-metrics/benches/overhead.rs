//! What metrics cost an acquire and its unlock of a free lock: pairs a second of a client with metrics, compared
//! with those of a client without.
//!
//! ```text
//! cargo bench -p lockdog-metrics --bench overhead
//! ```
//!
//! It starts a `redis-server` of its own. Rounds of both clients alternate, so that what else the machine does
//! meets both.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockdog::{Client, Owner};
use lockdog_metrics::{Metrics, buckets, group};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::task::JoinSet;

struct Redis {
    child: Child,
    url: String,
}

impl Redis {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has one").port();
        drop(listener);
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let url = format!("redis://127.0.0.1:{port}");
        Self { child, url }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pairs of acquire and unlock per second, of `owners` owners, each with a lock of its own.
async fn pairs(client: &Client, owners: usize, time: Duration) -> f64 {
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for number in 0..owners {
        let lock = client.lock(format!("orders:{number}"));
        tasks.spawn(async move {
            let owner = Owner::new();
            let mut pairs = 0_u64;
            while began.elapsed() < time {
                let guard = lock.lock().owner(&owner).await.expect("the server answers");
                guard.unlock().await.expect("the server answers");
                pairs += 1;
            }
            pairs
        });
    }
    let pairs: u64 = tasks.join_all().await.into_iter().sum();
    pairs as f64 / began.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let redis = Redis::start();
    let mut builder = PrometheusBuilder::new();
    for (metric, buckets) in buckets() {
        let metric = Matcher::Full(metric.to_owned());
        builder = builder
            .set_buckets_for_metric(metric, buckets)
            .expect("they are buckets");
    }
    let recorder = builder.build_recorder();
    let exporter = recorder.handle();
    let metrics = Metrics::with_recorder(recorder);
    let begun = Instant::now();
    let plain = loop {
        match Client::connect(&redis.url).await {
            Ok(client) => break client,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error}"),
        }
    };
    let observed = Client::builder()
        .url(&redis.url)
        .observer(metrics)
        .lock_group(group::before(':'))
        .build()
        .await
        .expect("the server answers");
    for owners in [1, 16] {
        let (mut without, mut with, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            // In turn first, because the second one may find a warmer machine.
            let (first, second) = match round % 2 {
                0 => (&plain, &observed),
                _ => (&observed, &plain),
            };
            let first = pairs(first, owners, ROUND).await;
            let second = pairs(second, owners, ROUND).await;
            let (plain, observed) = match round % 2 {
                0 => (first, second),
                _ => (second, first),
            };
            without.push(plain);
            with.push(observed);
            ratios.push(observed / plain);
            // As a scrape does: what was recorded is moved into the buckets.
            drop(exporter.render());
        }
        println!(
            "{owners} owners: {:.0} pairs/s without metrics, {:.0} with; median ratio {:.3}",
            median(without),
            median(with),
            median(ratios)
        );
    }
    let mut held = Vec::new();
    for number in 0..HOLDS {
        let lock = observed.lock(format!("held:{number}"));
        held.push(lock.lock().await.expect("the server answers"));
    }
    let looks = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        assert_eq!(observed.stats().held, HOLDS);
        began.elapsed().as_secs_f64() * 1e6
    });
    let look = median(looks.collect());
    println!("stats() with {HOLDS} holds: {look:.0} us");
}

const HOLDS: u32 = 10_000;
const ROUNDS: usize = 31;
const ROUND: Duration = Duration::from_millis(400);
