//! Locks that are kept for a least time, also after their holds have ended (`hold_at_least`).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use redis::Value;

use super::keys::Hash;
use super::network::Delivery;
use super::plan::Plan;
use super::task::LeastTime;

/// The times are in nanoseconds of the server's clock, unless stated otherwise.
pub(super) struct Kept {
    /// For each executed acquire of a field, the time at which it was first sent.
    asked: HashMap<String, Vec<u64>>,
    promises: HashMap<String, Promise>,
    /// The time at which an unlock first left a field to the rest of its least time.
    lingers: HashMap<String, u64>,
    /// The rate of the fastest clock, in parts per million of the server's.
    fastest: u64,
    /// How long the command of an end may be under way before it is sent.
    under_way: u64,
}

struct Promise {
    /// The lock is not free before `until`, and may be free after `latest`.
    until: u64,
    latest: u64,
}

/// The effect of a command on a lock that is kept for a least time.
#[derive(Debug)]
pub(super) struct Keeping<'a> {
    /// The hold to which the command may grant the lock.
    pub(super) grants: Option<&'a str>,
    /// The hold whose lock it leaves to the rest, and the rest in milliseconds.
    pub(super) lingers: Option<(&'a str, u64)>,
    pub(super) renews: bool,
    /// The holds that the command concerns.
    pub(super) fields: Vec<&'a str>,
}

/// The state that a command found which leaves a lock to the rest of its least time.
pub(super) enum Lingered {
    Shortened,
    /// The TTL was as short before the command.
    Again,
    /// The lock had been lost.
    Lost,
    /// A command that was sent before the end gave the lock its whole lease again: a renewal, or an
    /// acquire.
    Renewed,
    Acquired,
}

/// How often each case of a least time occurred.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeptSeen {
    /// Locks that an unlock left to the rest of their least time.
    pub(super) kept: u64,
    /// Commands for that which shortened the TTL, which found it short already, and which found that the lock had
    /// been lost.
    pub(super) shortened: u64,
    pub(super) lingered_twice: u64,
    pub(super) lost_before: u64,
    /// Locks left to the rest that a late renewal or acquire gave a whole lease again. Few runs have any.
    pub(super) renewed_again: u64,
    pub(super) acquired_again: u64,
}

impl KeptSeen {
    pub(super) fn count(&mut self, lingered: &Lingered) {
        *match lingered {
            Lingered::Shortened => &mut self.shortened,
            Lingered::Again => &mut self.lingered_twice,
            Lingered::Lost => &mut self.lost_before,
            Lingered::Renewed => &mut self.renewed_again,
            Lingered::Acquired => &mut self.acquired_again,
        } += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.kept += other.kept;
        self.shortened += other.shortened;
        self.lingered_twice += other.lingered_twice;
        self.lost_before += other.lost_before;
        self.renewed_again += other.renewed_again;
        self.acquired_again += other.acquired_again;
    }
}

impl Kept {
    pub(super) fn new(plan: &Plan) -> Self {
        let fastest = plan.rates.into_iter().fold(1_000_000, u64::max);
        Self {
            asked: HashMap::new(),
            promises: HashMap::new(),
            lingers: HashMap::new(),
            fastest,
            under_way: plan.command_timeout_ms * MS + PAUSES,
        }
    }

    /// A call returned a guard of this field, whose lock is kept for this time. The time counts from
    /// the first sending of the acquire, by the client's clock.
    pub(super) fn promise(
        &mut self,
        field: &str,
        least: LeastTime,
        now: u64,
    ) -> Result<(), String> {
        // The answers to earlier acquires may have been lost.
        let asked = self.asked.get(field).into_iter().flatten();
        let asked = asked.map(|at| least.began.max(*at)).min();
        let Some(asked) = asked else {
            return Err(format!("no acquire of {field} granted it"));
        };
        let time = least.ms * MS;
        let shortest = time / self.fastest * 1_000_000;
        let promise = self.promises.entry(field.to_owned()).or_insert(Promise {
            until: 0,
            latest: 0,
        });
        promise.until = promise.until.max(asked + shortest.saturating_sub(2 * MS));
        promise.latest = promise.latest.max(now + time + time / 50);
        Ok(())
    }

    /// Whether a lock is to be kept for a least time.
    pub(super) fn is_used(&self) -> bool {
        !self.promises.is_empty()
    }

    /// Whether the lock of an ended hold was left to the rest of its least time.
    pub(super) fn has_lingered(&self, field: &str) -> bool {
        self.lingers.contains_key(field)
    }

    /// Checks the effect of a command. The arguments are the state of the lock before and after it.
    pub(super) fn see(
        &mut self,
        command: &Keeping<'_>,
        delivery: &Delivery,
        value: &Value,
        [before, after]: [Option<&Hash>; 2],
        now: u64,
    ) -> Result<Option<Lingered>, String> {
        if let Some(field) = command.grants
            && is_there(after, field)
        {
            let asked = self.asked.entry(field.to_owned()).or_default();
            asked.push(delivery.asked);
        }
        let ends = |hash: Option<&Hash>| hash.and_then(|hash| hash.until_ms).unwrap_or(u64::MAX);
        let (ended, ends) = (ends(before), ends(after));
        if let Some((field, rest_ms)) = command.lingers {
            if *value != Value::Int(1) {
                let is_lost = !self.has_lingered(field);
                return Ok(is_lost.then_some(Lingered::Lost));
            }
            if !is_there(before, field) || ends > ended || ends > now / MS + rest_ms {
                return Err(format!("{field} is kept until {ends} ms"));
            }
            // The client does not ask for more than the rest, and does not send it much later.
            let promise = self.promises.get(field);
            let asked_for = delivery.asked + rest_ms * MS;
            if promise.is_some_and(|it| asked_for > it.latest + self.under_way) {
                return Err(format!("{field} is to be kept for {rest_ms} ms"));
            }
            self.lingers.entry(field.to_owned()).or_insert(now);
            return Ok(Some(match ends < ended {
                true => Lingered::Shortened,
                false => Lingered::Again,
            }));
        }
        if ends <= ended {
            return Ok(None);
        }
        // Only what was sent before the end of a hold makes its lock stay longer.
        let own = &command.fields;
        let lingering = self.lingers.iter();
        let longer = lingering.filter(|(it, _)| is_there(before, it) && is_there(after, it));
        let mut longer = longer.peekable();
        let lingered = longer.peek().is_some();
        match longer.find(|(it, since)| {
            !own.contains(&it.as_str()) || delivery.asked > **since + self.under_way
        }) {
            Some((field, _)) => Err(format!("{field} has ended, and is kept by {command:?}")),
            None if !lingered => Ok(None),
            None => Ok(Some(match command.renews {
                true => Lingered::Renewed,
                false => Lingered::Acquired,
            })),
        }
    }

    /// A lock exists for its least time, unless it was force-unlocked.
    pub(super) fn look(
        &self,
        hash: Option<&Hash>,
        forced: &HashSet<String>,
        now: u64,
    ) -> Result<(), String> {
        let mut promises = self.promises.iter();
        let broken = promises.find(|(field, promise)| {
            now < promise.until && !is_there(hash, field) && !forced.contains(*field)
        });
        match broken {
            Some((field, promise)) => {
                let early = (promise.until - now) / MS;
                Err(format!("{field} is free {early} ms before its least time"))
            }
            None => Ok(()),
        }
    }

    /// Whether this field exists for the rest that an unlock has just returned, unless it was `forced`.
    pub(super) fn is_there_for(
        &self,
        field: &str,
        rest: Duration,
        hash: Option<&Hash>,
        forced: bool,
        now: u64,
    ) -> bool {
        let rest = rest.as_nanos() as u64;
        // The client's clock may have been slower during the unlock.
        let until = now + (rest - rest / 50).saturating_sub(SLOWER);
        let ends = hash.and_then(|hash| hash.until_ms).unwrap_or(u64::MAX);
        let stays = is_there(hash, field) && ends.saturating_add(1).saturating_mul(MS) >= until;
        let is_ended = self.promises.contains_key(field) && self.has_lingered(field);
        is_ended && (stays || until == now || forced)
    }
}

fn is_there(hash: Option<&Hash>, field: &str) -> bool {
    hash.is_some_and(|hash| hash.counts.contains_key(field))
}

const MS: u64 = 1_000_000;
/// The pauses between the steps of a client.
const PAUSES: u64 = 200 * MS;
/// The error of a slow clock over the longest unlock.
const SLOWER: u64 = 10 * MS;
