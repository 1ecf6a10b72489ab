//! Counts of pairs, and every latency.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::drive::object;
use crate::drive::stage::Stopwatch;

/// What one owner did.
pub(crate) struct Tally {
    /// Pairs that were over when the window ended.
    pub(crate) pairs: u64,
    /// Pairs that were under way then: they sent commands too.
    pub(crate) late_pairs: u64,
    pub(crate) failures: u64,
    samples: Vec<u32>,
}

impl Tally {
    /// Takes its memory before the window begins.
    pub(crate) fn for_samples(samples: usize) -> Self {
        Self {
            pairs: 0,
            late_pairs: 0,
            failures: 0,
            samples: Vec::with_capacity(samples),
        }
    }

    pub(crate) fn sample(&mut self, latency: Duration) {
        let ticks = latency.as_nanos() / TICK;
        self.samples.push(u32::try_from(ticks).unwrap_or(u32::MAX));
    }

    /// What one owner did in a window that ends now.
    pub(crate) fn figures(self, watch: &Stopwatch) -> Map<String, Value> {
        let (seconds, cpu, pairs) = (watch.seconds(), watch.cpu_seconds(), self.pairs);
        let mut figures = Latencies::of(&[self]).figures();
        figures.insert("seconds".to_owned(), json!(seconds));
        figures.insert("pairs".to_owned(), json!(pairs));
        figures.insert("cpu_s".to_owned(), json!(cpu));
        figures
    }
}

/// Percentiles over the samples of all owners.
pub(crate) struct Latencies(Vec<u32>);

impl Latencies {
    pub(crate) fn of(tallies: &[Tally]) -> Self {
        let mut all: Vec<u32> = tallies.iter().flat_map(|t| &t.samples).copied().collect();
        all.sort_unstable();
        Self(all)
    }

    pub(crate) fn figures(&self) -> Map<String, Value> {
        object(json!({
            "p50_us": self.at(0.5),
            "p99_us": self.at(0.99),
            "max_us": self.at(1.0),
        }))
    }

    /// At most `most` samples, evenly spread from the smallest to the largest.
    pub(crate) fn spread(&self, most: usize) -> Vec<f64> {
        let count = self.0.len().min(most);
        let last = count.saturating_sub(1).max(1) as f64;
        (0..count)
            .filter_map(|i| self.at(i as f64 / last))
            .collect()
    }

    /// None if there are no samples.
    fn at(&self, share: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        let index = (last as f64 * share).round() as usize;
        let ticks = self.0.get(index)?;
        Some(f64::from(*ticks) * TICK as f64 / 1_000.0)
    }
}

/// Nanoseconds in the unit of a sample: seven minutes fit.
const TICK: u128 = 100;
