//! What the runner and a driver say to each other: one JSON object a line.
//!
//! A request names a cell. The driver connects, warms up, answers `ready` and waits for `go`; then it
//! measures, answers `result` and closes its clients. In W5 it answers `held` at the end of the
//! window and waits for a second `go` before it lets the locks go.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A cell to be measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Request {
    pub(crate) cell: u64,
    pub(crate) workload: String,
    /// One server, five for W6, or the three masters of a cluster for W18.
    pub(crate) urls: Vec<String>,
    /// Tasks or threads of each client.
    pub(crate) owners: usize,
    /// Instances of the library.
    pub(crate) clients: usize,
    pub(crate) warmup_s: f64,
    pub(crate) seconds: f64,
    /// Begins the names of the locks; no two cells have the same.
    pub(crate) name: String,
    /// W1 with Redisson: `async` asks for its calls without threads. W1: `other-shape` asks for long names, and
    /// lockdog for fixed leases. W14: the kind of lock; none is the
    /// plain lock. W8: `plain`; none is the fair lock. W9: `readers-first`; none is
    /// the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api: Option<String>,
    /// W5: how many locks are held.
    #[serde(default)]
    pub(crate) locks: usize,
    /// W5, W8d, W12, W15: the lease that the watchdog renews.
    #[serde(default)]
    pub(crate) lease_s: f64,
}

/// The runner's word to continue with a cell.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Go {
    pub(crate) cell: u64,
    pub(crate) go: bool,
}

/// A driver's word on a cell.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) cell: u64,
    pub(crate) event: Event,
    /// The figures of a result, or why there are none: `unsupported` or `failed`.
    #[serde(flatten)]
    pub(crate) figures: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    Ready,
    Held,
    Result,
}
