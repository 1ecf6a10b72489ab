//! Faults that hold for the whole proxy, and counters that prove each of them.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToClient,
    ToServer,
}

/// How often each fault had an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Pieces that a blackhole held back.
    pub(crate) blackholed: u64,
    /// Connections that were closed orderly, by `cut_all` or a rule.
    pub(crate) cut: u64,
    /// Connections that `cut_after_bytes` ended.
    pub(crate) cut_after_bytes: u64,
    /// Pieces that were sent later.
    pub(crate) delayed: u64,
    pub(crate) refused: u64,
    pub(crate) reset: u64,
    /// Connections that found no server behind the proxy.
    pub(crate) unreachable: u64,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    budgets: Mutex<[Option<Budget>; 2]>,
    counts: Mutex<Counts>,
    standing: watch::Sender<Standing>,
}

impl Faults {
    pub(super) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap()
    }

    pub(super) fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.counts.lock().unwrap());
    }

    pub(super) fn delay(&self, direction: Direction, by: Duration) {
        self.standing
            .send_modify(|standing| standing.delay[direction as usize] = by);
    }

    pub(super) fn blackhole(&self, direction: Direction) {
        self.standing
            .send_modify(|standing| standing.blackhole[direction as usize] = true);
    }

    pub(super) fn refuse(&self) {
        self.standing.send_modify(|standing| standing.refuse = true);
    }

    pub(super) fn heal(&self) {
        self.standing.send_replace(Standing::default());
    }

    pub(super) fn cut_after_bytes(&self, direction: Direction, n: usize) {
        let budget = Budget {
            connection: None,
            left: n,
        };
        self.budgets.lock().unwrap()[direction as usize] = Some(budget);
    }

    pub(super) fn refuses(&self) -> bool {
        let refuses = self.standing.borrow().refuse;
        if refuses {
            self.count(|counts| counts.refused += 1);
        }
        refuses
    }

    /// How much later a piece that is sent now has to arrive.
    pub(super) fn lag(&self, direction: Direction) -> Duration {
        let lag = self.standing.borrow().delay[direction as usize];
        if !lag.is_zero() {
            self.count(|counts| counts.delayed += 1);
        }
        lag
    }

    /// Returns at once, unless there is a blackhole.
    pub(super) async fn healed(&self, direction: Direction) {
        let mut standing = self.standing.subscribe();
        if standing.borrow().blackhole[direction as usize] {
            self.count(|counts| counts.blackholed += 1);
        }
        // The sender is ours, so the wait can only end with a healed network.
        let _ = standing
            .wait_for(|standing| !standing.blackhole[direction as usize])
            .await;
    }

    /// How many of `wanted` bytes a connection may still send before it is to be cut; `None` for no
    /// limit.
    pub(super) fn allowance(
        &self,
        direction: Direction,
        connection: u64,
        wanted: usize,
    ) -> Option<usize> {
        let mut budgets = self.budgets.lock().unwrap();
        let slot = &mut budgets[direction as usize];
        let budget = slot.as_mut()?;
        if *budget.connection.get_or_insert(connection) != connection {
            return None;
        }
        if budget.left > wanted {
            budget.left -= wanted;
            return None;
        }
        let allowed = budget.left;
        *slot = None;
        drop(budgets);
        self.count(|counts| counts.cut_after_bytes += 1);
        Some(allowed)
    }
}

#[derive(Debug, Default)]
struct Standing {
    /// Indexed by `Direction`, as all pairs here are.
    blackhole: [bool; 2],
    delay: [Duration; 2],
    refuse: bool,
}

#[derive(Debug)]
struct Budget {
    /// The first connection to send takes the whole budget.
    connection: Option<u64>,
    left: usize,
}
