//! How often the waiters of a spin lock poll (design: SP2).

use std::collections::HashSet;

use super::plan::{LockKind, Plan};

/// The times are in milliseconds.
pub(super) struct Polls {
    /// The longest pause between two polls.
    longest: u64,
    /// The number of pauses of a call that are shorter than the longest one.
    shorter: u64,
    clients: [Client; 2],
}

#[derive(Default)]
struct Client {
    /// The tasks whose calls may poll.
    calls: HashSet<usize>,
    /// The period in which another client holds the lock; `None` outside of one.
    period: Option<Period>,
}

struct Period {
    since: u64,
    /// The calls that could poll meanwhile.
    calls: u64,
    polls: u64,
}

impl Polls {
    /// `None` for another kind of lock, and for a plan in which a call may poll in place of one whose
    /// future is not polled.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        if plan.lock != LockKind::Spin || !plan.is_prompt() {
            return None;
        }
        let (first, longest) = match plan.listens {
            // A spin lock's own.
            true => (1, 128),
            false => POLL_MS,
        };
        let longest = plan.poll_cap_ms.min(longest);
        let shorter = (0..).take_while(|doubled| first << doubled < longest);
        Some(Self {
            longest,
            shorter: shorter.count() as u64,
            clients: Default::default(),
        })
    }

    /// A call of this client may poll from now on, or no longer.
    pub(super) fn may_ask(&mut self, client: usize, task: usize, asks: bool) {
        let client = &mut self.clients[client];
        match asks {
            true => client.calls.insert(task),
            false => client.calls.remove(&task),
        };
        if let Some(period) = client.period.as_mut().filter(|_| asks) {
            period.calls += 1;
        }
    }

    /// The current holder of the lock: none, one of the clients, or Redisson.
    pub(super) fn see_holder(&mut self, holder: Option<Option<usize>>, now: u64) {
        for (number, client) in self.clients.iter_mut().enumerate() {
            if holder.is_none_or(|holder| holder == Some(number)) {
                client.period = None;
            } else if client.period.is_none() {
                client.period = Some(Period {
                    since: now,
                    calls: client.calls.len() as u64,
                    polls: 0,
                });
            }
        }
    }

    /// A client polls. While others hold the lock, one call of a client polls at a time, and its pauses
    /// grow. True if the client has other calls.
    pub(super) fn see_poll(&mut self, client: usize, now: u64) -> Result<bool, String> {
        let number = client;
        let (longest, first) = (self.longest, self.shorter + BESIDE);
        let client = &mut self.clients[number];
        let Some(period) = &mut client.period else {
            return Ok(false);
        };
        period.polls += 1;
        let lasts = now - period.since;
        // The clock of a client may be a little faster.
        let most = (lasts + lasts / 50) / longest + period.calls * first + ENDED;
        if period.polls > most {
            let Period { calls, polls, .. } = period;
            return Err(format!(
                "client {number} polls {polls} times in {lasts} ms for {calls} calls"
            ));
        }
        Ok(client.calls.len() > 1)
    }
}

/// The first and the longest pause of the clients that are not subscribed.
pub(super) const POLL_MS: (u64, u64) = (2, 32);
/// The first poll of a call, and one after a wake-up.
const BESIDE: u64 = 2;
/// Commands in flight of calls that have ended.
const ENDED: u64 = 4;
