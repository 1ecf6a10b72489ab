//! A service that Prometheus scrapes: `/metrics` for the alerts and the dashboard under `deploy/`, `/healthz` for
//! a load balancer.
//!
//! ```text
//! cargo run -p lockdog-metrics --example observed -- redis://127.0.0.1:6379 127.0.0.1:3000
//! curl -X POST localhost:3000/orders/42   # works under the lock orders:42
//! curl -X POST localhost:3000/payouts/42  # works under the RedLock payouts:42 of all servers
//! curl -X POST localhost:3000/reports/42  # works under the lock reports:42, long enough for a renewal
//! curl localhost:3000/metrics
//! curl localhost:3000/healthz
//! ```
//!
//! The URLs of more servers, for the RedLock, come after the address.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use lockdog::{Client, RedLock};
use lockdog_metrics::{Metrics, buckets, group};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

#[derive(Clone)]
struct Service {
    /// Of each server. The locks of orders are on the first one.
    clients: Vec<Client>,
    metrics: Metrics,
    exporter: PrometheusHandle,
}

type Answer = Result<&'static str, (StatusCode, String)>;

async fn order(State(service): State<Service>, Path(id): Path<String>) -> Answer {
    // All requests of one connection run in one task, so without `exclusive` they would be one owner.
    let lock = service.clients[0].lock(format!("orders:{id}")).exclusive();
    answer(lock.with(|_held| sleep(WORK)).await)
}

async fn report(State(service): State<Service>, Path(id): Path<String>) -> Answer {
    let lock = service.clients[0].lock(format!("reports:{id}")).exclusive();
    answer(lock.with(|_held| sleep(LONG_WORK)).await)
}

async fn payout(State(service): State<Service>, Path(id): Path<String>) -> Answer {
    let name = format!("payouts:{id}");
    let locks = service.clients.iter().map(|client| client.lock(&name));
    let lock = RedLock::new(locks).exclusive();
    answer(lock.with(|_held| sleep(WORK)).await)
}

fn answer(worked: lockdog::Result<()>) -> Answer {
    match worked {
        Ok(()) => Ok("done"),
        Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}

/// The gauges are of the moment of the scrape.
async fn scrape(State(service): State<Service>) -> String {
    service
        .metrics
        .record(service.clients.iter().map(Client::stats));
    service.exporter.render()
}

/// Not fit for more requests if its locks are in danger, or if its queue is nearly full.
async fn health(State(service): State<Service>) -> (StatusCode, String) {
    // A RedLock may have its queue at any of the clients.
    let (mut is_well, mut held, mut waiters, mut lost) = (true, 0, 0, 0);
    for stats in service.clients.iter().map(Client::stats) {
        is_well &= stats.in_jeopardy == 0 && stats.waiters < stats.max_waiters / 10 * 8;
        held += stats.held;
        waiters += stats.waiters;
        lost += stats.lost_total;
    }
    let status = match is_well {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let shown = format!("held={held} waiters={waiters} lost={lost}\n");
    (status, shown)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args
        .next()
        .unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let address = args.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let urls = [url].into_iter().chain(args);
    let mut builder = PrometheusBuilder::new();
    // Without buckets the exporter makes summaries, and every `histogram_quantile` is empty.
    for (metric, buckets) in buckets() {
        builder = builder.set_buckets_for_metric(Matcher::Full(metric.to_owned()), buckets)?;
    }
    let recorder = builder.build_recorder();
    let exporter = recorder.handle();
    metrics::set_global_recorder(recorder)?;

    let metrics = Metrics::new();
    let mut clients = Vec::new();
    for url in urls {
        let client = Client::builder()
            .url(url)
            .watchdog_lease(LEASE)
            .observer(metrics.clone())
            .lock_group(group::before(':'));
        clients.push(client.build().await?);
    }
    // For the alert LockdogSetupMayCostLocks.
    metrics.record_diagnosis(&clients[0].diagnose().await?);
    let service = Service {
        clients: clients.clone(),
        metrics,
        exporter,
    };
    let router = Router::new()
        .route("/orders/{id}", post(order))
        .route("/payouts/{id}", post(payout))
        .route("/reports/{id}", post(report))
        .route("/metrics", get(scrape))
        .route("/healthz", get(health))
        .with_state(service);
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut terminated = signal(SignalKind::terminate())?;
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
        terminated.recv().await;
    });
    serving.await?;
    for client in clients {
        client.shutdown().await;
    }
    Ok(())
}

const LEASE: Duration = Duration::from_secs(3);
const WORK: Duration = Duration::from_millis(20);
/// A lock is renewed after a third of its lease.
const LONG_WORK: Duration = Duration::from_secs(2);
