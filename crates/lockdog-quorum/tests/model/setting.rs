//! One small world to explore: its parts, and how often each event may happen.

use std::sync::Arc;
use std::time::Duration;

use super::reached::{Reached, Sight};
use crate::Moment;
use crate::Rules;

#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) instances: usize,
    /// How many early losses the quorum tolerates.
    pub(super) masked: usize,
    pub(super) fenced: bool,
    /// The initial registers: earlier attempts may have written tokens without a quorum.
    pub(super) registers: [u8; 4],
    /// A caller may give up before it holds the lock.
    pub(super) cancels: bool,
    /// The lease that a further claim asks for.
    pub(super) longer: Duration,
    /// The length of one time step in milliseconds, and the number of steps.
    pub(super) tick: u64,
    pub(super) ticks: u8,
    pub(super) limits: Spent,
    /// What the exploration must meet.
    pub(super) wanted: &'static [Sight],
    pub(super) reached: Arc<Reached>,
}

/// How often each event happened, or may happen, of those that could repeat without end.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Spent {
    /// Acquisitions, of both clients together.
    pub(super) begun: u8,
    /// Acquisitions that are renewed.
    pub(super) renewed: u8,
    /// Further claims with a longer lease.
    pub(super) lengthened: u8,
    /// Requests for which a client was notified that no answer comes.
    pub(super) failed: u8,
    /// Messages that were delivered twice.
    pub(super) doubled: u8,
    /// Instances that restarted without their data.
    pub(super) restarted: u8,
    /// Instances that lost the lock early.
    pub(super) lost: u8,
}

impl Setting {
    pub(super) fn need(&self) -> usize {
        Rules::need(self.instances, self.masked)
    }

    pub(super) fn rules(&self, renewed: bool) -> Rules {
        let reads = Rules::reads(self.instances, self.masked);
        Rules {
            members: self.instances,
            need: self.need(),
            reads: if self.fenced { reads } else { 0 },
            lease: LEASE,
            renewed,
            min_validity: Duration::ZERO,
            max_until: Moment::NEVER,
        }
    }

    pub(super) fn moment(&self, ticks: u8) -> Moment {
        Moment(START + self.tick * 1_000_000 * u64::from(ticks))
    }
}

/// So long that the two extra seconds of a quarantine are small against it.
pub(super) const LEASE: Duration = Duration::from_secs(100);

/// How long an instance keeps the lock: its clock runs one percent faster than the clients' clocks.
pub(super) fn kept(lease: Duration) -> Duration {
    lease - lease / 100
}

const START: u64 = 1_000_000_000_000;
