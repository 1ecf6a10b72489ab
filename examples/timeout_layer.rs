//! An axum service whose timeout layer cancels handlers: a cancelled handler leaves no lock behind.
//!
//! ```text
//! cargo run --example timeout_layer -- redis://127.0.0.1:6379 127.0.0.1:3000
//! curl -X POST localhost:3000/slow   # 408: the layer drops the handler, and its guard with it
//! curl -X POST localhost:3000/fast   # 200: the lock is free
//! ```

use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use lockdog::{Client, Lock};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

type Answer = Result<&'static str, (StatusCode, String)>;

async fn slow(State(lock): State<Lock>) -> Answer {
    work(&lock, LIMIT * 100).await
}

async fn fast(State(lock): State<Lock>) -> Answer {
    work(&lock, Duration::ZERO).await
}

/// The layer may drop this future at any await: while it waits for the lock, while a command is in flight,
/// or while it holds the guard. In each case the client releases the lock in the background.
async fn work(lock: &Lock, time: Duration) -> Answer {
    // All requests of one connection run in one task, so without this they would be one owner.
    let lock = lock.exclusive();
    match lock.with(|_held| sleep(time)).await {
        Ok(()) => Ok("worked"),
        Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}

/// Works like the timeout layer of tower-http: it drops the handler's future.
async fn limit(request: Request, next: Next) -> Response {
    match timeout(LIMIT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args
        .next()
        .unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let address = args.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let client = Client::connect(url).await?;
    let router = Router::new()
        .route("/slow", post(slow))
        .route("/fast", post(fast))
        .layer(middleware::from_fn(limit))
        .with_state(client.lock("example:timeout_layer"));
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut terminate = signal(SignalKind::terminate())?;
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        })
        .await?;
    client.shutdown().await;
    println!("ended");
    Ok(())
}

/// The time that a handler has.
const LIMIT: Duration = Duration::from_secs(1);
