//! What the observer of a run found, and what happened in it.

use std::sync::Arc;

use super::clock::VirtualClock;
use super::network::Network;
use crate::hold::HoldPhase;
use crate::session::Core;

pub(super) struct Findings {
    network: Arc<Network>,
    pub(super) clients: Vec<(Arc<Core>, VirtualClock)>,
    pub(super) violation: Option<String>,
    trace: Option<Vec<String>>,
}

impl Findings {
    pub(super) fn new(
        network: Arc<Network>,
        clients: Vec<(Arc<Core>, VirtualClock)>,
        traced: bool,
    ) -> Self {
        Self {
            network,
            clients,
            violation: None,
            trace: traced.then(Vec::new),
        }
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.network.now();
        if let Some(trace) = &mut self.trace {
            let mut line = line();
            for (i, (core, _)) in self.clients.iter().enumerate() {
                line = line.replace(&core.id.to_string(), &format!("client{i}"));
            }
            trace.push(format!("{:>9.3} ms  {line}", now as f64 / 1e6));
        }
    }

    pub(super) fn trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    pub(super) fn violated(&mut self, what: String) {
        self.note(|| format!("VIOLATION {what}"));
        self.violation.get_or_insert(what);
    }

    pub(super) fn claim(&mut self, is_true: bool, what: impl FnOnce() -> String) {
        if !is_true {
            self.violated(what());
        }
    }

    pub(super) fn owes_a_release(&self) -> bool {
        let holds = self.clients.iter().flat_map(|(core, _)| core.holds.all());
        holds
            .into_iter()
            .any(|hold| hold.state().phase == HoldPhase::Ended)
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.network.now() / 1_000_000
    }
}
