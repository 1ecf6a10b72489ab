//! The buckets of histograms.

use crate::names::{HOLDS, METRICS, MetricKind};

/// For each histogram its name and the upper bounds of its buckets in seconds, for an exporter that needs them. The
/// one of Prometheus makes a summary of a histogram without buckets.
pub fn buckets() -> impl Iterator<Item = (&'static str, &'static [f64])> {
    let histograms = METRICS.iter().filter(|it| it.kind == MetricKind::Histogram);
    histograms.map(|it| match it.name {
        HOLDS => (it.name, LONG),
        name => (name, &LONG[..LONG.len() - 2]),
    })
}

/// Those of holds, which last longer than waits and commands.
const LONG: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 300.0, 1800.0,
];
