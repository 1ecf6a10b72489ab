//! What the library writes to `tracing`, recorded by a subscriber of our own.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Everything that is logged, down to TRACE.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs {
    lines: Arc<Mutex<Vec<Line>>>,
}

/// One event, one new span, or one value added to a span.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) target: String,
    /// Name and values, as in `lock lost owner=7`.
    pub(crate) text: String,
}

impl Logs {
    /// Records this thread until the guard is dropped. Events of the client's own thread are not
    /// recorded.
    pub(crate) fn of_this_thread() -> (Self, DefaultGuard) {
        let logs = Self::default();
        let guard = subscribe_thread(Recorder::new(logs.clone()));
        (logs, guard)
    }

    /// Records every thread forever, so only a test that is `alone` may ask for it.
    pub(crate) fn of_this_process() -> Self {
        let logs = Self::default();
        tracing::subscriber::set_global_default(Recorder::new(logs.clone()))
            .expect("no other test records this process");
        logs
    }

    /// As `of_this_process`, warnings and errors only. The client takes other paths where a subscriber
    /// records its spans.
    pub(crate) fn warnings_of_this_process() -> Self {
        let logs = Self::default();
        let mut recorder = Recorder::new(logs.clone());
        recorder.most = Level::WARN;
        tracing::subscriber::set_global_default(recorder)
            .expect("no other test records this process");
        logs
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap().clone()
    }

    /// The lines of our own code at this level or a more serious one; without what it says of how
    /// the server is set up, as most tests' servers keep nothing on disk.
    pub(crate) fn at_least(&self, level: Level) -> Vec<Line> {
        let mut lines = self.lines();
        lines.retain(|line| line.level <= level && line.target.starts_with("lockdog"));
        lines.retain(|line| line.target != "lockdog::diagnosis");
        lines
    }

    /// The lines that an operator has to read, but for the starts of clients.
    pub(crate) fn loud(&self) -> Vec<Line> {
        let mut lines = self.at_least(Level::INFO);
        lines.retain(|line| line.target != "lockdog::client");
        lines
    }

    /// The lines about the servers' configuration.
    pub(crate) fn of_set_up(&self) -> Vec<Line> {
        let mut lines = self.lines();
        lines.retain(|line| line.target == "lockdog::diagnosis");
        lines
    }
}

/// Has this thread's events written to the subscriber until the guard is dropped.
///
/// `tracing` decides once for each event whether a subscriber wants it. As long as only one subscriber
/// exists, the first thread that reaches the event decides for all threads, and a thread without a
/// subscriber decides that no subscriber wants it. So a second subscriber exists from the first call on.
pub(crate) fn subscribe_thread(
    subscriber: impl Subscriber + Send + Sync + 'static,
) -> DefaultGuard {
    static SECOND: OnceLock<Dispatch> = OnceLock::new();
    SECOND.get_or_init(|| Dispatch::new(NoSubscriber::new()));
    tracing::subscriber::set_default(subscriber)
}

/// The last events of our own code down to DEBUG, for a test that failed to show. Spans are left out,
/// because a lock takes another path while a subscriber records them.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    began: Instant,
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Recent {
    /// Records every thread forever, so only a test that is `alone` may ask for it.
    pub(crate) fn of_this_process() -> Self {
        let recent = Self {
            began: Instant::now(),
            lines: Arc::default(),
        };
        tracing::subscriber::set_global_default(recent.clone())
            .expect("no other test records this process");
        recent
    }

    /// The oldest first, each with its time since the recording began.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().iter().cloned().collect()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Subscriber for Recent {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::DEBUG
            && metadata.target().starts_with("lockdog")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let of = event.metadata();
        let mut text = Text(format!(
            "{:?} {} {}:",
            self.elapsed(),
            of.level(),
            of.target()
        ));
        event.record(&mut text);
        let mut lines = self.lines.lock().unwrap();
        if lines.len() >= RECENT {
            lines.pop_front();
        }
        lines.push_back(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Runs a test's work in a process of its own, where it may record or measure the whole process.
/// `name` is the test's path in the test binary.
pub(crate) fn alone(name: &str, work: impl Future<Output = ()>) {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("threads can be started");
        runtime.block_on(work);
        return;
    }
    let this = std::env::current_exe().expect("the test binary is a file");
    let output = Command::new(this)
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env(ALONE, "1")
        .output()
        .expect("the test binary starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    // A name that matches no test would pass without running anything.
    assert!(text.contains("running 1 test"), "{name} is no test: {text}");
    assert!(output.status.success(), "{text}\n{errors}");
    println!("{text}");
}

#[derive(Debug)]
struct Recorder {
    logs: Logs,
    /// Nothing less serious is recorded.
    most: Level,
    /// Level and target of the spans, by their ids less one.
    spans: Mutex<Vec<&'static Metadata<'static>>>,
    next: AtomicU64,
}

impl Recorder {
    fn new(logs: Logs) -> Self {
        Self {
            logs,
            most: Level::TRACE,
            spans: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    fn write(&self, of: &Metadata<'_>, name: &str, record: impl FnOnce(&mut Text)) {
        let mut text = Text(name.to_owned());
        record(&mut text);
        self.logs.lines.lock().unwrap().push(Line {
            level: *of.level(),
            target: of.target().to_owned(),
            text: text.0,
        });
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = self.spans.lock().unwrap();
        spans.push(span.metadata());
        let id = Id::from_u64(self.next.fetch_add(1, Ordering::Relaxed) + 1);
        drop(spans);
        self.write(span.metadata(), span.metadata().name(), |text| {
            span.record(text)
        });
        id
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let metadata = self.spans.lock().unwrap()[span.into_u64() as usize - 1];
        self.write(metadata, metadata.name(), |text| values.record(text));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.write(event.metadata(), "", |text| event.record(text));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

/// A user's subscriber that panics at each warning about a plain lock.
#[derive(Debug)]
pub(crate) struct Panicking;

impl Subscriber for Panicking {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        // A busy machine may cause warnings of a quorum, and every connect to a server without
        // persistence causes one.
        let target = event.metadata().target();
        assert!(
            target == "lockdog::quorum" || target == "lockdog::diagnosis",
            "the subscriber panics"
        );
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A user's subscriber that blocks at each `lock lost`, until the test lets it continue.
#[derive(Debug)]
pub(crate) struct Slow {
    reached: std::sync::mpsc::Sender<()>,
    go_on: Mutex<std::sync::mpsc::Receiver<()>>,
}

/// The test's side of a [`Slow`] subscriber.
pub(crate) struct Pace {
    reached: std::sync::mpsc::Receiver<()>,
    /// Its drop unblocks the subscriber.
    go_on: std::sync::mpsc::Sender<()>,
}

impl Slow {
    /// Receives the events of every thread forever, so only a test that is `alone` may ask for it.
    pub(crate) fn of_this_process() -> Pace {
        let (reaches, reached) = std::sync::mpsc::channel();
        let (go_on, goes_on) = std::sync::mpsc::channel();
        let slow = Self {
            reached: reaches,
            go_on: Mutex::new(goes_on),
        };
        tracing::subscriber::set_global_default(slow).expect("no other test records this process");
        Pace { reached, go_on }
    }
}

impl Pace {
    /// Waits until the subscriber is blocked.
    pub(crate) fn wait_reached(&self) {
        let limit = Duration::from_secs(30);
        self.reached
            .recv_timeout(limit)
            .expect("the event is written");
    }

    /// Lets it continue, up to the next such event.
    pub(crate) fn go_on(&self) {
        self.go_on.send(()).expect("the subscriber is there");
    }
}

impl Subscriber for Slow {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if text.0.contains("lock lost") {
            // The test may have ended.
            let _ = self.reached.send(());
            let _ = self.go_on.lock().unwrap().recv();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

const RECENT: usize = 5_000;
const ALONE: &str = "LOCKDOG_TEST_ALONE";
