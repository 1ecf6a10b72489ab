//! The spans, as OpenTelemetry exports them.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use lockdog::config::{Connector, Time, Transport};
use lockdog::{Client, Error, Lock, MultiLock, Owner, RedLock};
use lockdog_test::Server;
use opentelemetry::trace::{SpanId, SpanKind, Status, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tokio::time::sleep;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Instrument};
use tracing_subscriber::layer::SubscriberExt;

/// The exported spans of this thread.
struct Traces {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _subscribed: DefaultGuard,
}

impl Traces {
    fn of_this_thread() -> Self {
        // With only one subscriber, `tracing` asks only the first thread that reaches a span whether it
        // is enabled, and a thread without a subscriber disables it.
        static SECOND: OnceLock<Dispatch> = OnceLock::new();
        SECOND.get_or_init(|| Dispatch::new(NoSubscriber::new()));
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let registry = tracing_subscriber::registry().with(layer);
        Self {
            exporter,
            _provider: provider,
            _subscribed: tracing::subscriber::set_default(registry),
        }
    }

    /// Those with this name, in the order of their ends.
    fn named(&self, name: &str) -> Vec<SpanData> {
        let mut spans = self.exporter.get_finished_spans().unwrap();
        spans.retain(|span| span.name == name);
        spans
    }

    /// The only one.
    #[track_caller]
    fn one(&self, name: &str) -> SpanData {
        let mut spans = self.named(name);
        assert_eq!(spans.len(), 1, "{spans:?}");
        spans.remove(0)
    }
}

/// What an exported span says of this attribute.
fn of(span: &SpanData, name: &str) -> Option<String> {
    let mut found = span.attributes.iter().filter(|it| it.key.as_str() == name);
    let value = found.next()?.value.as_str().into_owned();
    assert!(found.next().is_none(), "{name} is there twice: {span:?}");
    Some(value)
}

#[track_caller]
fn assert_has(span: &SpanData, attributes: &[(&str, Option<&str>)]) {
    for (name, value) in attributes {
        assert_eq!(of(span, name).as_deref(), *value, "{name} of {span:?}");
    }
}

/// A test server with the address of a real one.
struct Addressed(Server, &'static str);

impl Connector for Addressed {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>> {
        let server = self.0.clone();
        Box::pin(async move { Ok(Box::new(server.connect()) as Box<dyn Transport>) })
    }

    fn address(&self) -> String {
        self.1.to_owned()
    }

    fn time(&self) -> Time {
        Time::Tokio
    }
}

impl fmt::Debug for Addressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}

async fn client_at(server: &Server, address: &'static str) -> Client {
    let builder = Client::builder().connector(Addressed(server.clone(), address));
    builder.build().await.unwrap()
}

async fn lock_at(server: &Server, address: &'static str) -> Lock {
    client_at(server, address).await.lock("orders:42")
}

#[tokio::test(start_paused = true)]
async fn an_acquire_is_a_client_span_with_the_attributes_of_the_conventions() {
    let server = Server::new();
    let lock = lock_at(&server, "redis.example:6379").await;
    let traces = Traces::of_this_thread();
    let guard = lock.lock().await.unwrap();
    let span = traces.one("lock acquire");
    assert_eq!(span.span_kind, SpanKind::Client);
    assert_eq!(span.status, Status::Unset);
    assert_has(
        &span,
        &[
            ("db.system.name", Some("redis")),
            ("server.address", Some("redis.example")),
            ("server.port", Some("6379")),
            ("error.type", None),
            ("lock", Some("orders:42")),
            ("lockdog.outcome", Some("acquired")),
            ("lockdog.waited_ms", Some("0")),
            // The bridge removes these fields and sets the span's name, kind and status from them.
            ("otel.name", None),
            ("otel.kind", None),
            ("otel.status_code", None),
        ],
    );
    assert_eq!(
        of(&span, "owner").as_deref(),
        Some(&*guard.owner().to_string())
    );
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_no_error_of_a_span_and_a_server_that_does_not_answer_is() {
    let server = Server::new();
    let lock = lock_at(&server, "/run/redis").await;
    let _held = lock.lock().owner(&Owner::new()).await.unwrap();
    let traces = Traces::of_this_thread();
    let wait = Duration::from_secs(2);
    assert!(lock.try_lock().wait(wait).await.unwrap().is_none());
    let busy = traces.one("lock acquire");
    assert_eq!(busy.status, Status::Unset);
    assert_has(
        &busy,
        &[
            ("lockdog.outcome", Some("busy")),
            ("lockdog.waited_ms", Some("2000")),
            ("error.type", None),
            ("server.address", Some("/run/redis")),
            ("server.port", None),
        ],
    );
    server.freeze();
    assert!(lock.try_lock().await.is_err());
    let spans = traces.named("lock acquire");
    let [_, failed] = &spans[..] else {
        panic!("{spans:?}")
    };
    assert!(
        matches!(failed.status, Status::Error { .. }),
        "{:?}",
        failed.status
    );
    assert_has(
        failed,
        &[
            ("lockdog.outcome", Some("failed")),
            ("error.type", Some("timeout")),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_acquire_ends_its_span_without_an_outcome() {
    let server = Server::new();
    let lock = lock_at(&server, "redis.example:6379").await;
    let _held = lock.lock().owner(&Owner::new()).await.unwrap();
    let traces = Traces::of_this_thread();
    let waiter = tokio::time::timeout(Duration::from_secs(1), lock.lock().into_future());
    assert!(waiter.await.is_err());
    let span = traces.one("lock acquire");
    assert_eq!(span.status, Status::Unset);
    assert_has(
        &span,
        &[("lockdog.outcome", None), ("lockdog.waited_ms", None)],
    );
}

#[tokio::test(start_paused = true)]
async fn only_a_lock_on_one_server_names_a_server_in_its_span() {
    let servers = [(); 3].map(|()| Server::new());
    let mut clients = Vec::new();
    for (server, address) in servers
        .iter()
        .zip(["a.example:1", "b.example:2", "c.example:3"])
    {
        clients.push(client_at(server, address).await);
    }
    let traces = Traces::of_this_thread();
    let locks = || clients.iter().map(|client| client.lock("orders:42"));
    let pair = |names: [&str; 2]| names.map(|name| clients[0].lock(name));
    let quorum = RedLock::new(locks()).lock().await.unwrap();
    quorum.unlock().await.unwrap();
    let several = MultiLock::new(locks()).lock().await.unwrap();
    several.unlock().await.unwrap();
    let on_one = MultiLock::new(pair(["a", "b"])).lock().await.unwrap();
    on_one.unlock().await.unwrap();
    let semaphore = clients[1].permit_semaphore("seats");
    assert!(semaphore.try_set_permits(1).await.unwrap());
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let spans = traces.named("lock acquire");
    let named: Vec<_> = spans
        .iter()
        .map(|span| (of(span, "server.address"), of(span, "server.port")))
        .collect();
    let at = |host: &str, port: &str| (Some(host.to_owned()), Some(port.to_owned()));
    let expected = [
        (None, None),
        (None, None),
        at("a.example", "1"),
        at("b.example", "2"),
    ];
    assert_eq!(named, expected);
    assert_has(&spans[3], &[("permits", Some("1"))]);
}

#[tokio::test(start_paused = true)]
async fn the_work_of_with_runs_in_a_span_of_its_hold() {
    let server = Server::new();
    let lock = lock_at(&server, "redis.example:6379").await;
    let traces = Traces::of_this_thread();
    let request = tracing::info_span!("request");
    let work = lock.with(|held| {
        // What the closure does itself is work, too.
        tracing::info_span!("begin").in_scope(|| ());
        async move {
            sleep(Duration::from_secs(3)).await;
            async {}.instrument(tracing::info_span!("write")).await;
            held.owner().to_string()
        }
    });
    let owner = work.instrument(request).await.unwrap();
    let [request, acquire, hold] =
        ["request", "lock acquire", "lock hold"].map(|it| traces.one(it));
    for child in [&acquire, &hold] {
        assert_eq!(child.parent_span_id, request.span_context.span_id());
    }
    for name in ["begin", "write"] {
        assert_eq!(traces.one(name).parent_span_id, hold.span_context.span_id());
    }
    let held = hold.end_time.duration_since(hold.start_time);
    assert!(held.is_ok(), "{held:?}");
    assert!(acquire.end_time <= hold.start_time);
    assert_eq!(hold.status, Status::Unset);
    assert_has(
        &hold,
        &[
            ("lock", Some("orders:42")),
            ("owner", Some(&owner)),
            ("lockdog.lost", None),
        ],
    );
    drop(lock.lock().await.unwrap());
    assert_eq!(traces.named("lock hold").len(), 1, "a guard has no span");
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_records_the_loss_in_its_span() {
    let server = Server::new();
    let lock = lock_at(&server, "redis.example:6379").await;
    let traces = Traces::of_this_thread();
    let lost = lock.with(|_held| async {
        server.lose("orders:42");
        std::future::pending::<()>().await;
    });
    assert!(matches!(lost.await, Err(Error::Lost(_))));
    // Only the unlock detects this loss.
    let late = lock.with(|_held| async { server.lose("orders:42") });
    assert!(matches!(late.await, Err(Error::Lost(_))));
    let holds = traces.named("lock hold");
    assert_eq!(holds.len(), 2, "{holds:?}");
    for hold in holds {
        assert!(
            matches!(hold.status, Status::Error { .. }),
            "{:?}",
            hold.status
        );
        assert_has(
            &hold,
            &[
                ("lockdog.lost", Some("not_ours")),
                ("error.type", Some("lost")),
            ],
        );
        assert_eq!(hold.parent_span_id, SpanId::INVALID);
    }
}
