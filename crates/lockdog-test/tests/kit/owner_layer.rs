//! Requests on one keep-alive connection, which its server handles in one task.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use lockdog::tower::OwnerLayer;
use lockdog::{Client, Guard};
use lockdog_test::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

#[derive(Clone)]
struct Service {
    client: Client,
    /// The guards that requests have left to a job.
    jobs: Arc<Mutex<Vec<Guard>>>,
}

/// Leaves its guard in a job.
async fn leave(State(service): State<Service>) -> &'static str {
    match service.client.lock("account").try_lock().await.unwrap() {
        Some(guard) => {
            service.jobs.lock().unwrap().push(guard);
            "held"
        }
        None => "busy",
    }
}

/// Acquires the lock again in a called function and twice concurrently.
async fn nest(State(service): State<Service>) -> String {
    let lock = service.client.lock("other");
    let outer = lock.lock().await.unwrap();
    let inner = nested(&service).await;
    let (one, two) = tokio::join!(lock.try_lock(), lock.try_lock());
    let together = one.unwrap().is_some() && two.unwrap().is_some();
    outer.unlock().await.unwrap();
    format!("{inner} {together}")
}

async fn nested(service: &Service) -> u32 {
    let guard = service.client.lock("other").lock().await.unwrap();
    guard.hold_count()
}

struct Fixture {
    service: Service,
    connection: TcpStream,
    served: JoinHandle<()>,
}

impl Fixture {
    async fn start(with_layer: bool) -> Self {
        let service = Service {
            client: Server::new().client().await,
            jobs: Arc::default(),
        };
        let router = Router::new()
            .route("/leave", get(leave))
            .route("/nest", get(nest));
        let router = if with_layer {
            router.layer(OwnerLayer::new())
        } else {
            router
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = router.with_state(service.clone());
        let served = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            service,
            connection: TcpStream::connect(address).await.unwrap(),
            served,
        }
    }

    /// The body of the answer, on the same connection each time.
    async fn get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        self.connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        loop {
            let byte = self.connection.read_u8().await.unwrap();
            answer.push(byte);
            let text = String::from_utf8_lossy(&answer);
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            let length = head.to_lowercase();
            let (_, length) = length.split_once("content-length: ").unwrap();
            let length = length.lines().next().unwrap().parse::<usize>().unwrap();
            if body.len() == length {
                return body.to_owned();
            }
        }
    }

    async fn end(self) {
        self.served.abort();
        self.service.jobs.lock().unwrap().clear();
        self.service.client.shutdown().await;
    }
}

#[tokio::test]
async fn a_request_does_not_reenter_what_an_earlier_one_left_to_a_job() {
    let mut fixture = Fixture::start(true).await;
    assert_eq!(fixture.get("/leave").await, "held");
    assert_eq!(fixture.get("/leave").await, "busy");
    fixture.end().await;
}

/// The mistake that the layer prevents.
#[tokio::test]
async fn without_the_layer_requests_of_a_connection_are_one_owner() {
    let mut fixture = Fixture::start(false).await;
    assert_eq!(fixture.get("/leave").await, "held");
    assert_eq!(fixture.get("/leave").await, "held");
    fixture.end().await;
}

#[tokio::test]
async fn calls_inside_a_request_reenter() {
    let mut fixture = Fixture::start(true).await;
    for _ in 0..2 {
        assert_eq!(fixture.get("/nest").await, "2 true");
    }
    fixture.end().await;
}
