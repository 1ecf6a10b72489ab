//! How long waiters wait for a lock that is free (design: invariant 8). In a run without faults a
//! release notifies the subscribed clients, of lockdog and of Redisson, whichever of the two released
//! the lock.

use std::collections::HashMap;

use uuid::Uuid;

use super::network::ReceivedMessage;
use super::plan::{LockKind, Plan};

/// The times are in milliseconds.
pub(super) struct Awaited {
    poll_cap: u64,
    /// Releases are published.
    has_messages: bool,
    /// The time since which the lock is free.
    free: Option<u64>,
    /// The time of the command that freed the lock, if a command freed it.
    freed: Option<u64>,
    /// The clients of the waiting calls, by the numbers of their tasks, and the time at which each wait
    /// began.
    waits: HashMap<usize, (Uuid, u64)>,
    /// The time at which each client last read a message.
    received: HashMap<Uuid, u64>,
    /// The time up to which each client considers a hold of its own valid. Its waiters ask no earlier, and
    /// do not subscribe, also if another client has freed the lock by force (invariant 9, decision 19).
    believed: HashMap<Uuid, u64>,
    /// The subscribed connections of Redisson, and the time of each subscription.
    redissons: HashMap<usize, u64>,
}

impl Awaited {
    /// `None` for a plan in which a waiter may be late.
    pub(super) fn new(plan: &Plan) -> Option<Self> {
        plan.is_prompt().then(|| Self {
            poll_cap: plan.poll_cap_ms,
            has_messages: plan.lock != LockKind::Spin,
            free: Some(0),
            freed: None,
            waits: HashMap::new(),
            received: HashMap::new(),
            believed: HashMap::new(),
            redissons: HashMap::new(),
        })
    }

    /// The call of this task begins or ends its wait.
    pub(super) fn wait(&mut self, task: usize, client: Uuid, now: Option<u64>) {
        match now {
            Some(now) => drop(self.waits.insert(task, (client, now))),
            None => drop(self.waits.remove(&task)),
        }
    }

    /// A client considers a hold of its own valid up to this time, if it is not lost earlier; `None`: no hold.
    pub(super) fn believe(&mut self, client: Uuid, until: Option<u64>, now: u64) {
        let believed = self.believed.entry(client).or_default();
        *believed = until.unwrap_or_else(|| now.min(*believed));
    }

    /// Returns whether the client of a waiter learns that the lock is free.
    pub(super) fn receive(&mut self, received: &ReceivedMessage, now: u64) -> bool {
        self.received.insert(received.client, now);
        let waits = self
            .waits
            .values()
            .any(|(client, _)| *client == received.client);
        self.freed.is_some() && waits
    }

    /// A connection of Redisson subscribes or unsubscribes.
    pub(super) fn listen(&mut self, connection: usize, now: Option<u64>) {
        match now {
            Some(now) => drop(self.redissons.insert(connection, now)),
            None => drop(self.redissons.remove(&connection)),
        }
    }

    /// Whether the lock was held before a command, and is held after it; or at a moment without a
    /// command. Returns whether it was freed while a call waited, and while Redisson was subscribed.
    pub(super) fn see(&mut self, was_held: bool, is_held: bool, now: u64) -> [bool; 2] {
        if is_held {
            (self.free, self.freed) = (None, None);
            return [false; 2];
        }
        self.free.get_or_insert(now);
        if was_held {
            self.freed = Some(now);
        }
        [!self.waits.is_empty(), !self.redissons.is_empty()].map(|awaits| was_held && awaits)
    }

    pub(super) fn look(&self, now: u64) -> Result<(), String> {
        // The time since which each waiter may ask.
        let waits = self.waits.values().map(|(client, since)| {
            let believed = self.believed.get(client).copied();
            (client, believed.unwrap_or(0).max(*since))
        });
        if let Some(free) = self.free {
            // A waiter polls once per poll cap. There are pauses between its steps.
            let longest = 2 * self.poll_cap + WOKEN_MS;
            let late = waits
                .clone()
                .map(|(_, since)| now.saturating_sub(free.max(since)));
            if let Some(late) = late.max().filter(|late| *late > longest) {
                return Err(format!("free and awaited for {late} ms"));
            }
        }
        let Some(freed) = self.freed.filter(|_| self.has_messages) else {
            return Ok(());
        };
        let called = waits.filter_map(|(client, since)| {
            let received = *self.received.get(client)?;
            (received >= freed && received >= since).then(|| now - received)
        });
        if let Some(late) = called.max().filter(|late| *late > WOKEN_MS) {
            return Err(format!(
                "free for {late} ms after a waiter's client received the message"
            ));
        }
        let listens = self.redissons.values().map(|since| now - freed.max(*since));
        match listens.max().filter(|late| *late > REDISSON_MS) {
            Some(late) => Err(format!("free for {late} ms while Redisson listens")),
            None => Ok(()),
        }
    }
}

/// A few pauses between the steps of a waiter, and its command.
const WOKEN_MS: u64 = 500;
/// The message, a command under way, and the one behind the message.
const REDISSON_MS: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_may_be_late_while_its_client_believes_in_a_hold() {
        let (client, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut awaited = Awaited {
            poll_cap: 30,
            has_messages: true,
            free: None,
            freed: None,
            waits: HashMap::new(),
            received: HashMap::new(),
            believed: HashMap::new(),
            redissons: HashMap::new(),
        };
        awaited.wait(0, client, Some(0));
        awaited.believe(client, Some(2000), 0);
        awaited.see(true, false, 10);
        let latest = 2000 + 2 * 30 + WOKEN_MS;
        assert_eq!(awaited.look(latest), Ok(()));
        assert!(awaited.look(latest + 1).is_err());
        // The client learns of the loss.
        awaited.believe(client, None, 1000);
        assert_eq!(awaited.look(latest - 1000), Ok(()));
        assert!(awaited.look(latest - 999).is_err());
        // The belief of another client delays no waiter of this one.
        awaited.believe(other, Some(2000), 1000);
        assert!(awaited.look(latest - 999).is_err());
    }
}
