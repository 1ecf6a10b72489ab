//! The violations that the observer of a run found, and the trace of the run.

use std::sync::Arc;

use super::clock::VirtualClock;
use super::network::Network;
use crate::hold::HoldPhase;
use crate::session::Core;

pub(super) struct Findings {
    network: Arc<Network>,
    pub(super) clients: Vec<(Arc<Core>, VirtualClock)>,
    /// The client that has died. It considers no hold valid, and has no duties.
    pub(super) dead: Option<usize>,
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
            dead: None,
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

    /// The clients that have not died, with their numbers.
    pub(super) fn living(&self) -> impl Iterator<Item = (usize, &Arc<Core>)> {
        let clients = self.clients.iter().enumerate();
        let living = clients.filter(|(number, _)| self.dead != Some(*number));
        living.map(|(number, (core, _))| (number, core))
    }

    /// Whether this was a hold of the client that has died.
    pub(super) fn is_of_dead(&self, field: &str) -> bool {
        let dead = self
            .dead
            .map(|number| self.clients[number].0.id.to_string());
        dead.is_some_and(|id| field.starts_with(&id))
    }

    pub(super) fn owes_a_release(&self) -> bool {
        let holds = self.living().flat_map(|(_, core)| core.holds.all());
        holds
            .into_iter()
            .any(|hold| hold.state().phase == HoldPhase::Ended)
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.network.now() / 1_000_000
    }
}
