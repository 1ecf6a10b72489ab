//! The HTTP service: re-entry within a request, exclusion between requests.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::program::Program;
use crate::support::{Redis, RedisServer, eventually};

/// One keep-alive connection.
pub(super) struct Http(TcpStream);

impl Http {
    pub(super) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await;
        Self(stream.expect("the service listens"))
    }

    /// Returns the status and the body. The connection stays open.
    pub(super) async fn post(&mut self, path: &str) -> (u16, String) {
        let request = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        let sent = self.0.write_all(request.as_bytes()).await;
        sent.expect("the connection is alive");
        let mut answer = Vec::new();
        loop {
            let mut part = [0; 1024];
            let read = tokio::time::timeout(PATIENCE, self.0.read(&mut part)).await;
            let length = read.expect("it answers").expect("the connection is alive");
            assert_ne!(length, 0, "the service closed a keep-alive connection");
            answer.extend_from_slice(&part[..length]);
            if let Some(whole) = parse(&String::from_utf8_lossy(&answer)) {
                return whole;
            }
        }
    }
}

/// Status and body, once the body is complete.
fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        line.to_lowercase()
            .strip_prefix("content-length: ")?
            .parse()
            .ok()
    });
    (body.len() == length.unwrap_or(0)).then(|| (status, body.to_owned()))
}

async fn service(server: &RedisServer) -> (Program, String) {
    let mut service = Program::start("nested_handlers", &[&server.url(), "127.0.0.1:0"]);
    let address = service.says("listening on ").await;
    (service, address)
}

async fn ends_well(service: Program, redis: &Redis) {
    service.terminate();
    let (status, output) = service.end().await;
    assert!(status.success(), "{status}: {output:#?}");
    redis.assert_clean().await;
    assert_eq!(redis.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_nested_handler_reenters_the_lock_of_its_caller() {
    let server = RedisServer::start().await;
    let (service, address) = service(&server).await;
    let mut http = Http::connect(&address).await;
    let closed = (200, "closed, settled, times=1 hold count=2".to_owned());
    assert_eq!(http.post("/accounts/7/close").await, closed);
    // The next request on the same connection runs in the same task, and finds no hold of the first.
    let settled = (200, "settled, times=2 hold count=1".to_owned());
    assert_eq!(http.post("/accounts/7/settle").await, settled);
    ends_well(service, &server.redis().await).await;
}

/// A request reads the count of an account, pauses, and writes it. Two at the same time would lose an
/// update.
#[tokio::test]
async fn requests_on_several_connections_exclude_each_other() {
    let server = RedisServer::start().await;
    let (service, address) = service(&server).await;
    let callers: Vec<_> = ["close", "settle", "close", "settle"]
        .map(|what| {
            let address = address.clone();
            tokio::spawn(async move {
                let mut http = Http::connect(&address).await;
                for _ in 0..3 {
                    let (status, body) = http.post(&format!("/accounts/7/{what}")).await;
                    assert_eq!(status, 200, "{body}");
                    // A request never counts the guard of another request as its own.
                    let count = if what == "close" { 2 } else { 1 };
                    assert!(body.ends_with(&format!(" hold count={count}")), "{body}");
                }
            })
        })
        .into();
    for caller in callers {
        caller.await.expect("every request is answered");
    }
    let mut http = Http::connect(&address).await;
    let settled = (200, "settled, times=13 hold count=1".to_owned());
    assert_eq!(http.post("/accounts/7/settle").await, settled);
    ends_well(service, &server.redis().await).await;
}

#[tokio::test]
async fn a_job_keeps_its_lock_against_the_next_request_of_the_same_connection() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let (service, address) = service(&server).await;
    let mut http = Http::connect(&address).await;
    let archiving = (200, "archiving".to_owned());
    assert_eq!(http.post("/accounts/7/archive").await, archiving);
    // The job has its own owner, which no task can have.
    let field = redis.hash("example:account:7").await.into_keys().next();
    let field = field.expect("the job has the lock");
    assert!(field.contains(":o"), "{field}");
    let busy = (409, "busy".to_owned());
    assert_eq!(http.post("/accounts/7/archive").await, busy);
    // Waits for the job on the connection that started it.
    let settled = (200, "settled, times=1 hold count=1".to_owned());
    assert_eq!(http.post("/accounts/7/settle").await, settled);
    eventually(PATIENCE, "the account is free", async || {
        !redis.exists("example:account:7").await
    })
    .await;
    ends_well(service, &redis).await;
}

const PATIENCE: Duration = Duration::from_secs(30);
