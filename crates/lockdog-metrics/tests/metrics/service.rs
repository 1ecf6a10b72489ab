//! The example of a service, as a process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockdog_test::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Page, named, names};

/// The service and the server of its locks. Both end when the value is dropped.
pub(crate) struct Service {
    child: Child,
    pub(crate) address: String,
    /// The server of the orders.
    pub(crate) redis: Server,
    /// Two more for the payouts, which are under a RedLock.
    _others: [Server; 2],
}

impl Service {
    pub(crate) async fn start() -> Self {
        let redis = Server::new();
        let others = [Server::new(), Server::new()];
        let mut urls = Vec::new();
        for server in [&redis, &others[0], &others[1]] {
            let at: SocketAddr = server.listen("127.0.0.1:0").await.unwrap();
            urls.push(format!("redis://{at}"));
        }
        let mut child = Command::new(example("observed"))
            .args([&urls[0], "127.0.0.1:0", &urls[1], &urls[2]])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example was built");
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        let line = tokio::task::spawn_blocking(move || output.lines().next());
        let line = line.await.unwrap().expect("it prints a line").unwrap();
        let address = line.strip_prefix("listening on ").expect("it listens");
        Self {
            child,
            address: address.to_owned(),
            redis,
            _others: others,
        }
    }

    /// The status and the body of an answer.
    pub(crate) async fn ask(&self, method: &str, path: &str) -> (u16, String) {
        http(&self.address, method, path).await
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) async fn http(address: &str, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).expect("it has a status");
    let body = answer.split_once("\r\n\r\n").expect("it has a body").1;
    (status.parse().expect("a number"), body.to_owned())
}

/// `cargo test` puts examples beside the folder that the test's own program is in.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the test has a program");
    let built = own.ancestors().nth(2).expect("it is in deps");
    built.join("examples").join(name)
}

#[tokio::test]
async fn the_example_shows_its_metrics_and_its_health() {
    let service = Service::start().await;
    assert_eq!(
        service.ask("POST", "/orders/42").await,
        (200, "done".to_owned())
    );
    let (status, health) = service.ask("GET", "/healthz").await;
    assert_eq!((status, &*health), (200, "held=0 waiters=0 lost=0\n"));
    // The key is deleted while the service works: the unlock finds nothing.
    let mut missed = 0;
    let (status, error) = loop {
        let loses = async {
            while service.redis.holder("orders:7").is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            service.redis.lose("orders:7");
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            answer = service.ask("POST", "/orders/7") => answer,
            () = loses => unreachable!("it is pending"),
        };
        // On a busy machine the test may not run while the lock is held.
        if answer.0 != 200 || missed == 100 {
            break answer;
        }
        missed += 1;
    };
    assert_eq!(status, 503, "{error}");
    let (status, page) = service.ask("GET", "/metrics").await;
    assert_eq!(status, 200);
    let page = Page(page);
    page.assert(
        r#"lockdog_acquires_total{group="orders",outcome="acquired"}"#,
        f64::from(2 + missed),
    );
    page.assert(
        r#"lockdog_lost_total{group="orders",reason="not_ours"}"#,
        1.0,
    );
    assert!(named(&page.0).is_subset(&names()));
}
