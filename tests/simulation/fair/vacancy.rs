//! How long an election has no leader while a waiter could be the leader (design: invariant LE4; FA6
//! and FA7 of a fair lock).

use std::collections::HashMap;

use super::observer::LockState;
use super::plan::Plan;

/// The checks in a run without faults. The times are in milliseconds.
pub(super) struct Vacancy {
    /// The period in which there is no leader, or only one that died.
    open: Option<Open>,
    /// The time since which each waiter in the queue is present, or no longer present.
    seen: HashMap<String, (bool, u64)>,
    /// The last time at which a waiter of Redisson was before the first present one.
    redissons: u64,
    /// How long the next leader may take beyond the lease.
    longest: u64,
    longest_lease: u64,
}

struct Open {
    since: u64,
    /// The remaining lease of the dead leader at the beginning.
    lease: u64,
    is_awaited: bool,
}

/// The observer's view of the waiters.
pub(super) trait Candidates {
    /// Whether a waiter is polled until it acquires the lock.
    fn is_active(&self, field: &str) -> bool;
    fn is_dead(&self, field: &str) -> bool;
    fn is_redissons(&self, field: &str) -> bool;
}

impl Vacancy {
    pub(super) fn new(plan: &Plan, taken_over_ms: u64) -> Self {
        let world = &plan.world;
        Self {
            open: None,
            seen: HashMap::new(),
            redissons: 0,
            longest: world.silence_ms + taken_over_ms + 3 * world.poll_cap_ms,
            longest_lease: plan.longest_lease_ms(),
        }
    }

    /// Returns whether the last leader had died, if this is the end of a vacancy during which a call
    /// waited.
    pub(super) fn look(
        &mut self,
        now: u64,
        on_server: &LockState,
        who: &impl Candidates,
    ) -> Result<Option<bool>, String> {
        self.seen.retain(|field, _| on_server.queue.contains(field));
        for field in &on_server.queue {
            let is_active = who.is_active(field);
            let seen = self.seen.entry(field.clone());
            let seen = seen.or_insert((is_active, now));
            if seen.0 != is_active {
                *seen = (is_active, now);
            }
        }
        let leader = on_server.holders.keys().next();
        if leader.is_some_and(|leader| !who.is_dead(leader)) {
            let ended = self.open.take().filter(|open| open.is_awaited);
            return Ok(ended.map(|open| open.lease > 0));
        }
        let open = self.open.get_or_insert(Open {
            since: now,
            lease: 0,
            is_awaited: false,
        });
        if leader.is_some() {
            // A hold without an end would stay forever.
            let left = on_server
                .until_ms
                .map_or(u64::MAX, |until| until.saturating_sub(open.since));
            open.lease = open.lease.max(left.min(self.longest_lease));
        }
        let Some(first) = on_server.queue.iter().position(|it| who.is_active(it)) else {
            return Ok(None);
        };
        open.is_awaited = true;
        let before = &on_server.queue[..first];
        if before.iter().any(|it| who.is_redissons(it)) {
            self.redissons = now;
        }
        // A waiter is served only when those before it are no longer present.
        let since = on_server.queue[..=first].iter().map(|it| self.seen[it].1);
        let since = since.fold(self.redissons.max(open.since), u64::max);
        let (lasts, longest) = (now - since, open.lease + self.longest);
        match lasts <= longest {
            true => Ok(None),
            false => Err(format!("no client leads for {lasts} ms: {on_server:?}")),
        }
    }
}
