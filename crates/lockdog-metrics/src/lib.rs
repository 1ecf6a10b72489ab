#![doc = include_str!("../README.md")]

mod buckets;
mod families;
/// Groups of locks.
pub mod group;
mod grouped;
mod names;
mod recorder;
mod stats;

use std::fmt;
use std::sync::Arc;

use lockdog::observe::{ClientEvent, Observer};
use lockdog::report::{Diagnosis, Stats};

pub use buckets::buckets;
use families::Families;
use grouped::Groups;
use recorder::Target;
use stats::Gauges;

/// Turns the events of clients into metrics. Clones are the same metrics; one of them may observe several clients.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    target: Target,
    families: Families,
    groups: Groups,
    gauges: Gauges,
}

impl Metrics {
    /// Metrics of the recorder that the process has installed. Install the recorder first: what is recorded before
    /// goes nowhere.
    pub fn new() -> Self {
        Self::of(Target::Global, DEFAULT_GROUPS)
    }

    /// Metrics of this recorder, which need not be installed.
    pub fn with_recorder(recorder: impl metrics::Recorder + Send + Sync + 'static) -> Self {
        Self::of(Target::Own(Arc::new(recorder)), DEFAULT_GROUPS)
    }

    /// The number of groups that have values of their own, from 1 to 100. Call it before the metrics are used: it
    /// returns metrics that know no group yet.
    ///
    /// Defaults to 20.
    #[must_use = "it returns other metrics"]
    pub fn max_groups(&self, groups: u32) -> Self {
        Self::of(self.inner.target.clone(), groups.clamp(1, 100))
    }

    fn of(target: Target, groups: u32) -> Self {
        target.with(names::describe);
        let families = target.with(|recorder| Families::new(recorder));
        let gauges = target.with(|recorder| Gauges::new(recorder));
        Self {
            inner: Arc::new(Inner {
                groups: Groups::new(groups),
                target,
                families,
                gauges,
            }),
        }
    }

    /// Sets the gauges: the sums, and where the metric is an extreme the extreme, over these clients. Pass the stats
    /// of all clients of the process that these metrics observe, at each scrape, or every few seconds.
    ///
    /// The shortest time until a deadline and the shortest lease may be those of different clients. So the alert
    /// `LockdogLeaseRunsOut` is late for a client whose `watchdog_lease` is longer than another's.
    pub fn record(&self, clients: impl IntoIterator<Item = Stats>) {
        let Inner { gauges, target, .. } = &*self.inner;
        gauges.record(target, clients);
    }

    /// Sets `lockdog_findings` to the problems that this diagnosis found, from
    /// [`Client::diagnose`](lockdog::Client::diagnose).
    pub fn record_diagnosis(&self, diagnosis: &Diagnosis) {
        let Inner { gauges, target, .. } = &*self.inner;
        gauges.record_diagnosis(target, diagnosis);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Metrics {
    fn event(&self, event: &ClientEvent<'_>) {
        let Inner {
            target,
            families,
            groups,
            gauges,
        } = &*self.inner;
        groups.event(target, event);
        families.event(event);
        gauges.event(event);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

const DEFAULT_GROUPS: u32 = 20;
