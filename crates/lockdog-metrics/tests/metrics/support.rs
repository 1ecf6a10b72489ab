//! Metrics of a recorder of their own, and the page that Prometheus reads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lockdog::{Client, ClientBuilder};
use lockdog_metrics::{Metrics, buckets, group};
use lockdog_test::Server;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use parking_lot::Mutex;

/// Metrics, and the page that shows them.
pub(crate) struct Exporter {
    pub(crate) metrics: Metrics,
    handle: PrometheusHandle,
}

impl Exporter {
    pub(crate) fn new() -> Self {
        let mut builder = PrometheusBuilder::new();
        for (metric, buckets) in buckets() {
            let metric = Matcher::Full(metric.to_owned());
            builder = builder.set_buckets_for_metric(metric, buckets).unwrap();
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let metrics = Metrics::with_recorder(recorder);
        Self { metrics, handle }
    }

    pub(crate) fn page(&self) -> Page {
        Page(self.handle.render())
    }
}

/// What an exporter shows.
pub(crate) struct Page(pub(crate) String);

impl Page {
    /// The value of this series, for example `lockdog_lost_total{reason="forced"}`.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        let mut lines = self.0.lines();
        let line = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(line.parse().expect("it is a number"))
    }

    #[track_caller]
    pub(crate) fn assert(&self, series: &str, value: f64) {
        assert_eq!(self.value(series), Some(value), "{series} of {}", self.0);
    }

    pub(crate) fn series(&self) -> usize {
        let lines = self.0.lines();
        lines
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .count()
    }
}

/// Knows the name of each metric that was described, and of each that was registered.
#[derive(Clone, Default)]
pub(crate) struct Names {
    pub(crate) described: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) registered: Arc<Mutex<BTreeSet<String>>>,
}

impl Names {
    fn describe(&self, name: &KeyName) {
        self.described.lock().insert(name.as_str().to_owned());
    }

    fn register(&self, key: &Key) {
        self.registered.lock().insert(key.name().to_owned());
    }
}

impl Recorder for Names {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&key);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&key);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&key);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.register(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.register(key);
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.register(key);
        Histogram::noop()
    }
}

/// The names of all metrics.
pub(crate) fn names() -> BTreeSet<String> {
    let names = Names::default();
    let _metrics = Metrics::with_recorder(names.clone());
    let described = names.described.lock().clone();
    assert!(described.len() > 20, "{described:?}");
    described
}

/// The names of metrics in a text. Those of the parts of a histogram are that of the histogram.
pub(crate) fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("lockdog_"));
    let histograms: BTreeSet<_> = buckets().map(|(name, _)| name).collect();
    let whole = |name: &str| {
        let parts = ["_bucket", "_count", "_sum"];
        let whole = parts.iter().find_map(|part| name.strip_suffix(part));
        let whole = whole.filter(|whole| histograms.contains(whole));
        whole.unwrap_or(name).to_owned()
    };
    names.map(whole).collect()
}

/// A file of the repository.
pub(crate) fn file(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) const LEASE: Duration = Duration::from_secs(3);

pub(crate) fn builder(server: &Server, exporter: &Exporter) -> ClientBuilder {
    let builder = server.builder().watchdog_lease(LEASE);
    let builder = builder.observer(exporter.metrics.clone());
    builder.lock_group(group::before(':'))
}

pub(crate) async fn client(server: &Server, exporter: &Exporter) -> Client {
    builder(server, exporter).build().await.unwrap()
}
