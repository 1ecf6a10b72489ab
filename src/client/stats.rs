//! The current numbers of a client.

use std::time::Duration;

use super::Client;
use crate::hold::HoldPhase;
use crate::session::Core;

/// Numbers about a client: its holds, its waiting calls, and totals. From [`Client::stats`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Holds that are valid now. Each permit with a lease is one; the permits without leases that one call acquired
    /// are one together. Each lock of a [`MultiLock`](crate::MultiLock) and of a [`RedLock`](crate::RedLock) is one
    /// of its own client.
    pub held: u32,
    /// How many of the held ones are renewed: by the watchdog, or by the [`RedLock`](crate::RedLock) to which they
    /// belong.
    pub watched: u32,
    /// How many of the held ones had a renewal that failed last. The locks of a [`RedLock`](crate::RedLock) count, at
    /// each of its clients, if its last extension did not reach a quorum.
    pub in_jeopardy: u32,
    /// Calls that wait.
    pub waiters: u32,
    /// Releases that the server has not confirmed yet, and acquires that are being undone.
    pub settling: u32,
    /// The shortest time until the deadline of a hold that is renewed; `None` if none is. A healthy watchdog keeps it
    /// above half of the lease. A hold near the end of its `max_hold` is left out: its deadline is that end, and no
    /// renewal moves it any more. For a lock of a [`RedLock`](crate::RedLock) it is the deadline of the `RedLock`.
    pub least_remaining: Option<Duration>,
    /// The time since the acquire of the oldest hold; `None` if there is none.
    pub oldest_hold: Option<Duration>,
    /// The setting [`ClientBuilder::watchdog_lease`](crate::ClientBuilder::watchdog_lease).
    pub watchdog_lease: Duration,
    /// The setting [`ClientBuilder::max_waiters`](crate::ClientBuilder::max_waiters).
    pub max_waiters: u32,
    /// Which connections are open.
    pub connected: Connected,
    /// Channels to which the client is subscribed.
    pub subscriptions: u32,
    /// Holds that were lost since the client was built. A shutdown loses none.
    pub lost_total: u64,
    /// Hand-overs between owners of the client since it was built.
    pub hand_overs_total: u64,
    /// Renewals that were not answered or were refused, each hold counted, since the client was built. Each failed
    /// extension of a [`RedLock`](crate::RedLock)'s lock of this client is one.
    pub renewals_failed_total: u64,
}

/// Which connections of a client are open, as far as the client knows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Connected {
    /// A connection for the commands of callers.
    pub commands: bool,
    /// The connection of the client's thread, which renews leases. It is opened at the first renewal.
    pub watchdog: bool,
    /// A connection for messages, with at least one subscription. It is opened when a call waits.
    pub messages: bool,
}

impl Client {
    /// The current numbers of this client, for a health page or for metrics. The client does not ask Redis.
    /// Redisson has no such call.
    ///
    /// It reads the state of each hold, which takes about 0.1 us for each of them.
    pub fn stats(&self) -> Stats {
        Stats::of(self.session.core())
    }
}

impl Stats {
    fn of(core: &Core) -> Self {
        let subscriptions = core.waiters.subscriptions().list().listening();
        let (commands, watchdog) = core.server.connected();
        let mut stats = Self {
            waiters: count(core.waiters.waiting()),
            watchdog_lease: core.settings.watchdog_lease,
            max_waiters: core.waiters.limit(),
            connected: Connected {
                commands,
                watchdog,
                messages: subscriptions > 0,
            },
            subscriptions: count(subscriptions),
            lost_total: core.totals.lost(),
            hand_overs_total: core.totals.hand_overs(),
            renewals_failed_total: core.totals.renewals_failed(),
            ..Self::default()
        };
        // Listed first, so that no other call waits for the table meanwhile.
        for hold in core.holds.all() {
            let now = core.clock.now();
            // Before the state is locked, because the lock that it is a part of has a mutex of its own.
            let renewals = hold.part_renewals();
            let state = hold.state();
            if state.phase == HoldPhase::Ended {
                stats.settling += 1;
            }
            if !state.is_valid(now) {
                continue;
            }
            stats.held += 1;
            // Of a part only the quorum's extensions count.
            let is_failing = state.phase == HoldPhase::Jeopardy && !state.is_part();
            let in_jeopardy = is_failing || renewals.iter().any(|it| it.in_jeopardy);
            stats.in_jeopardy += u32::from(in_jeopardy);
            let age = now.since(state.acquired);
            stats.oldest_hold = stats.oldest_hold.max(Some(age));
            stats.watched += u32::from(state.watched > 0 || !renewals.is_empty());
            let own = state.will_be_extended().then_some(state.deadline);
            let of_whole = renewals.iter().filter_map(|it| it.deadline);
            for deadline in own.into_iter().chain(of_whole) {
                let left = deadline.since(now);
                stats.least_remaining = Some(stats.least_remaining.map_or(left, |it| it.min(left)));
            }
        }
        stats
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::Clock;
    use crate::hold::Terms;
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;
    use crate::session::disconnected;

    /// After a failover, the watchdog checks it, and the check fails.
    #[tokio::test]
    async fn a_part_of_a_composite_lock_is_not_in_jeopardy_by_itself() {
        let core = disconnected(&Clock::default());
        let key = LockKey::new(&kind::PLAIN, "l", None).unwrap();
        let hold = core.holds.enter(&Arc::new(key), Owner::new());
        let terms = Terms::new(Duration::from_secs(30), false);
        let now = core.clock.now();
        core.holds.change(&hold, |state| {
            assert!(state.grant(now, &terms, now));
            state.phase = HoldPhase::Jeopardy;
        });
        assert_eq!(Stats::of(&core).in_jeopardy, 1);
        hold.state().parts = 1;
        assert_eq!(Stats::of(&core).in_jeopardy, 0);
    }
}
