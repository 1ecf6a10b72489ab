//! Where the metrics go.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};

/// Where the metrics go.
#[derive(Clone)]
pub(crate) enum Target {
    /// To the recorder that the process has installed.
    Global,
    Own(Arc<dyn Recorder + Send + Sync>),
}

impl Target {
    pub(crate) fn with<T>(&self, register: impl FnOnce(&dyn Recorder) -> T) -> T {
        match self {
            Self::Global => metrics::with_recorder(register),
            Self::Own(recorder) => register(&**recorder),
        }
    }
}

pub(crate) fn counter(recorder: &dyn Recorder, name: &'static str, labels: Vec<Label>) -> Counter {
    recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
}

pub(crate) fn gauge(recorder: &dyn Recorder, name: &'static str, labels: Vec<Label>) -> Gauge {
    recorder.register_gauge(&Key::from_parts(name, labels), &METADATA)
}

pub(crate) fn histogram(
    recorder: &dyn Recorder,
    name: &'static str,
    labels: Vec<Label>,
) -> Histogram {
    recorder.register_histogram(&Key::from_parts(name, labels), &METADATA)
}

static METADATA: Metadata<'static> = Metadata::new("lockdog", Level::INFO, None);
