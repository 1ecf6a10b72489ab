//! One small world to explore: what there is, and how often what may happen.

use std::sync::Arc;
use std::time::Duration;

use super::reached::{Reached, Sight};
use crate::Moment;
use crate::Rules;

#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) instances: usize,
    /// So many early losses are made up for.
    pub(super) masked: usize,
    pub(super) fenced: bool,
    /// What the registers hold at the beginning: earlier attempts may have got half-way.
    pub(super) registers: [u8; 4],
    /// A caller may give up before it has the lock.
    pub(super) cancels: bool,
    /// What a further claim wants.
    pub(super) longer: Duration,
    /// How far time goes on at once, in milliseconds, and how often.
    pub(super) tick: u64,
    pub(super) ticks: u8,
    pub(super) limits: Spent,
    /// What has to be come across.
    pub(super) wanted: &'static [Sight],
    pub(super) reached: Arc<Reached>,
}

/// How often that happened, or may, which could happen for ever.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Spent {
    /// Acquisitions, of both clients together.
    pub(super) begun: u8,
    /// Those of them that are renewed again and again.
    pub(super) renewed: u8,
    /// Further claims that want it longer.
    pub(super) lengthened: u8,
    /// Requests of which a client was told that there is no answer.
    pub(super) failed: u8,
    /// Messages that came twice.
    pub(super) doubled: u8,
    /// Instances that came back without their data.
    pub(super) restarted: u8,
    /// Instances that lost the lock before its time.
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

/// So long that the two seconds of a quarantine beyond it are little.
pub(super) const LEASE: Duration = Duration::from_secs(100);

/// How long an instance keeps the lock: its clock runs one percent faster than those of the clients.
pub(super) fn kept(lease: Duration) -> Duration {
    lease - lease / 100
}

const START: u64 = 1_000_000_000_000;
