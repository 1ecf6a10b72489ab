//! The gauges.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockdog::observe::ClientEvent;
use lockdog::report::{Diagnosis, FindingKind, Stats};
use metrics::{Gauge, Label, Recorder};
use parking_lot::Mutex;

use crate::names;
use crate::recorder::{Target, gauge};

pub(crate) struct Gauges {
    held: Gauge,
    jeopardy: Gauge,
    waiters: Gauge,
    settling: Gauge,
    subscriptions: Gauge,
    remaining: Gauge,
    oldest: Gauge,
    lease: Gauge,
    max_waiters: Gauge,
    connections: [Gauge; 3],
    /// Registered with the first round: 0 would be a margin.
    margin: OnceLock<Gauge>,
    /// The least margin since the gauges were last set; [`u32::MAX`] if no round was won since then.
    least_margin: AtomicU32,
    /// The kinds that a diagnosis has found so far. Those that it finds no more are set to 0.
    findings: Mutex<HashMap<FindingKind, Gauge>>,
}

impl Gauges {
    pub(crate) fn new(recorder: &dyn Recorder) -> Self {
        let plain = |name| gauge(recorder, name, Vec::new());
        let connections = ["commands", "watchdog", "messages"].map(|role| {
            let role = Label::from_static_parts("role", role);
            gauge(recorder, names::CONNECTIONS, vec![role])
        });
        Self {
            held: plain(names::HELD),
            jeopardy: plain(names::JEOPARDY),
            waiters: plain(names::WAITERS),
            settling: plain(names::SETTLING),
            subscriptions: plain(names::SUBSCRIPTIONS),
            remaining: plain(names::REMAINING),
            oldest: plain(names::OLDEST),
            lease: plain(names::LEASE),
            max_waiters: plain(names::MAX_WAITERS),
            connections,
            margin: OnceLock::new(),
            least_margin: AtomicU32::new(u32::MAX),
            findings: Mutex::default(),
        }
    }

    pub(crate) fn event(&self, event: &ClientEvent<'_>) {
        if let ClientEvent::Round {
            won: true, margin, ..
        } = event
        {
            self.least_margin.fetch_min(*margin, Ordering::Relaxed);
        }
    }

    pub(crate) fn record(&self, target: &Target, clients: impl IntoIterator<Item = Stats>) {
        let clients: Vec<Stats> = clients.into_iter().collect();
        let sum = |count: fn(&Stats) -> u32| -> f64 {
            clients.iter().map(|client| f64::from(count(client))).sum()
        };
        let least = |time: fn(&Stats) -> Option<Duration>| {
            let least = clients.iter().filter_map(time).min();
            least.map(|least| least.as_secs_f64())
        };
        self.held.set(sum(|client| client.held));
        self.jeopardy.set(sum(|client| client.in_jeopardy));
        self.waiters.set(sum(|client| client.waiters));
        self.settling.set(sum(|client| client.settling));
        self.subscriptions.set(sum(|client| client.subscriptions));
        self.max_waiters.set(sum(|client| client.max_waiters));
        let remaining = least(|client| client.least_remaining);
        self.remaining.set(remaining.unwrap_or(f64::NAN));
        let oldest = clients.iter().filter_map(|client| client.oldest_hold).max();
        self.oldest.set(oldest.unwrap_or_default().as_secs_f64());
        let lease = least(|client| Some(client.watchdog_lease));
        self.lease.set(lease.unwrap_or_default());
        let connected: [fn(&Stats) -> bool; 3] = [
            |client| client.connected.commands,
            |client| client.connected.watchdog,
            |client| client.connected.messages,
        ];
        for (gauge, is_open) in self.connections.iter().zip(connected) {
            let is_open = !clients.is_empty() && clients.iter().all(is_open);
            gauge.set(if is_open { 1.0 } else { 0.0 });
        }
        let margin = self.least_margin.swap(u32::MAX, Ordering::Relaxed);
        if margin != u32::MAX {
            let register = || target.with(|recorder| gauge(recorder, names::MARGIN, Vec::new()));
            self.margin.get_or_init(register).set(margin);
        }
    }

    pub(crate) fn record_diagnosis(&self, target: &Target, diagnosis: &Diagnosis) {
        let mut counts: HashMap<FindingKind, u32> = HashMap::new();
        for finding in diagnosis.problems() {
            *counts.entry(finding.kind).or_default() += 1;
        }
        let mut known = self.findings.lock();
        // Those that it could have found are there with 0.
        for kind in FindingKind::ALL {
            known.entry(*kind).or_insert_with(|| {
                let kind = Label::from_static_parts("kind", kind.as_str());
                target.with(|recorder| gauge(recorder, names::FINDINGS, vec![kind]))
            });
        }
        for (kind, gauge) in &*known {
            gauge.set(counts.get(kind).copied().unwrap_or_default());
        }
    }
}
