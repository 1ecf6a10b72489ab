//! A web service whose handlers call each other under one lock.
//!
//! ```text
//! cargo run --example nested_handlers -- redis://127.0.0.1:6379
//! curl -X POST localhost:8080/accounts/7/close
//! ```
//!
//! `close` holds the account's lock and calls `settle`, which locks the same account: the nested
//! call re-enters, because both run in one task. Another request for this account waits; `archive`
//! answers 409 instead.
//!
//! On a keep-alive connection *all requests run in the task of the connection*, so they have one owner.
//! That is harmless if every handler ends its guards. `archive` does not: it moves its guard into a job.
//! So it acquires as another owner, with `.owner(&Owner::new())`. Otherwise the next request on that
//! connection would re-enter while the job runs.

#![allow(
    clippy::disallowed_methods,
    reason = "an example may spawn; the ban is for the library"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use lockdog::{Client, Guard, Lock, Owner};
use tokio::net::TcpListener;

type Answer = Result<String, Failure>;

/// The state that all handlers share.
#[derive(Clone)]
struct Service {
    client: Client,
    /// How often each account was settled. It is in place of a store without atomic increments.
    settled: Arc<Mutex<HashMap<u64, u64>>>,
}

/// `POST /accounts/{id}/close`: two steps under one lock.
async fn close(State(service): State<Service>, Path(id): Path<u64>) -> Answer {
    let guard = service.account(id).lock().await?;
    let settled = settle(State(service), Path(id)).await?;
    tokio::time::sleep(WORK).await;
    // Not by a drop: the answer 200 means that this task held the lock to the end.
    guard.unlock().await?;
    Ok(format!("closed, {settled}"))
}

/// `POST /accounts/{id}/settle`: a request of its own, and a step of `close`.
async fn settle(State(service): State<Service>, Path(id): Path<u64>) -> Answer {
    let guard = service.account(id).lock().await?;
    let times = service.times_settled(id) + 1;
    tokio::time::sleep(WORK).await;
    service.set_times_settled(id, times);
    let count = guard.hold_count();
    guard.unlock().await?;
    Ok(format!("settled, times={times} hold count={count}"))
}

/// `POST /accounts/{id}/archive`: answers immediately; a job keeps the lock until it is done.
async fn archive(State(service): State<Service>, Path(id): Path<u64>) -> Answer {
    let job = Owner::new();
    match service.account(id).try_lock().owner(&job).await? {
        None => Err(Failure::Busy),
        Some(guard) => {
            tokio::spawn(archive_slowly(guard));
            Ok("archiving".to_owned())
        }
    }
}

async fn archive_slowly(guard: Guard) {
    tokio::select! {
        // The lock is lost, so the job stops here. The next holder has to expect unfinished work.
        lost = guard.lost() => eprintln!("archiving stopped: {lost}"),
        () = tokio::time::sleep(JOB) => {
            if let Err(error) = guard.unlock().await {
                eprintln!("archived, but {error}");
            }
        }
    }
}

impl Service {
    fn account(&self, id: u64) -> Lock {
        self.client.lock(format!("example:account:{id}"))
    }

    fn times_settled(&self, id: u64) -> u64 {
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.get(&id).copied().unwrap_or(0)
    }

    fn set_times_settled(&self, id: u64, times: u64) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.insert(id, times);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args
        .next()
        .unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let listen = args.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());

    let client = Client::connect(url).await?;
    let service = Service {
        client: client.clone(),
        settled: Arc::default(),
    };
    let router = Router::new()
        .route("/accounts/{id}/close", post(close))
        .route("/accounts/{id}/settle", post(settle))
        .route("/accounts/{id}/archive", post(archive))
        .with_state(service);
    let listener = TcpListener::bind(listen).await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, router)
        .with_graceful_shutdown(asked_to_end())
        .await?;
    // After the server, so that no request loses its lock. It releases what jobs still hold.
    let report = client.shutdown().await;
    println!("ended, released={}", report.released);
    Ok(())
}

async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        },
        Err(error) => eprintln!("cannot be asked to end: {error}"),
    }
}

/// The answer to the caller: 409 if another owner holds the lock, 503 if a retry may help, 500 otherwise.
enum Failure {
    Busy,
    Lock(lockdog::Error),
}

impl From<lockdog::Error> for Failure {
    fn from(error: lockdog::Error) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Busy => (StatusCode::CONFLICT, "busy".to_owned()),
            Self::Lock(error) if error.is_retriable() => {
                (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            Self::Lock(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
        .into_response()
    }
}

/// How long the work of a handler takes in this example.
const WORK: Duration = Duration::from_millis(50);
const JOB: Duration = Duration::from_secs(4);
