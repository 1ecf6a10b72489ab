//! Compares the clients with the server, and checks invariants SE1 to SE3 and SE6 of the design.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use redis::Value;

use super::command::{KEY, LEDGER, SemaphoreCommand};
use super::plan::Plan;
use crate::simulation::findings::Findings;
use crate::simulation::network::{Delivery, Network};
use crate::simulation::redis::Redis;
use crate::simulation::world::Observes;

pub(super) struct Observer {
    pub(super) redis: Redis,
    network: Arc<Network>,
    pub(super) found: Findings,
    total: i64,
    /// Requests that the present number has granted.
    current: HashSet<String>,
    /// Requests that earlier numbers granted. A late repetition may take permits of the present one for them.
    earlier: HashSet<String>,
    /// The permits that requests had when the ledger was lost, and have not released since then.
    unknown: HashMap<String, i64>,
    /// The ledger was lost since the number was set.
    is_lost: bool,
    /// Requests for all permits that are free.
    drains: HashSet<String>,
    /// Requests whose permits others released.
    reclaimed: HashSet<String>,
    /// Requests whose share a release has lowered.
    lowered: HashSet<String>,
    /// The known limitation: permits of releases that were repeated after the ledger was lost.
    excess: i64,
    /// The permits of Redisson.
    redissons: i64,
    /// Requests that one command has reached twice: the second delivery may have taken permits again.
    reached_twice: HashSet<String>,
    /// All calls wait for one permit each, and there are no faults.
    is_crowded: bool,
    /// Since when each task waits for one permit, in milliseconds.
    waits: HashMap<usize, u64>,
    /// Since when permits are free, in milliseconds.
    free_since: Option<u64>,
    pub(super) seen: Seen,
}

/// How often each case occurred that the simulation is meant to test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) executed: u64,
    pub(super) copies: u64,
    pub(super) grants: u64,
    /// Acquires that found too few permits.
    pub(super) few: u64,
    /// Acquires that arrived after the end of their request.
    pub(super) ended: u64,
    /// Releases of a part.
    pub(super) partly: u64,
    /// Hand-overs.
    pub(super) handed_on: u64,
    /// Losses of the ledger.
    pub(super) ledgers: u64,
    /// Releases of permits that only their client had a record of.
    pub(super) known: u64,
    /// Requests whose permits others released, and those of them whose client released them later.
    pub(super) reclaimed: u64,
    pub(super) too_late: u64,
    /// Numbers that were set again.
    pub(super) numbers: u64,
    /// Grants to Redisson.
    pub(super) redissons: u64,
    /// Permits were free while calls waited for one, without faults.
    pub(super) awaited: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.executed += other.executed;
        self.copies += other.copies;
        self.grants += other.grants;
        self.few += other.few;
        self.ended += other.ended;
        self.partly += other.partly;
        self.handed_on += other.handed_on;
        self.ledgers += other.ledgers;
        self.known += other.known;
        self.reclaimed += other.reclaimed;
        self.too_late += other.too_late;
        self.numbers += other.numbers;
        self.redissons += other.redissons;
        self.awaited += other.awaited;
    }
}

/// The state on the server.
struct Books {
    /// `None`: there is no number.
    free: Option<i64>,
    shares: BTreeMap<String, i64>,
}

impl Books {
    fn sum(&self) -> Option<i64> {
        Some(self.free? + self.shares.values().sum::<i64>())
    }
}

impl Observer {
    pub(super) fn new(
        mut redis: Redis,
        network: Arc<Network>,
        found: Findings,
        plan: &Plan,
    ) -> Self {
        // As Redisson sets it: the first acquire begins the ledger.
        redis.set(KEY, &plan.total.to_string());
        // The ledger distinguishes a time from a number of permits by its size.
        redis.begin_at(1_800_000_000_000);
        Self {
            redis,
            network,
            found,
            total: i64::from(plan.total),
            current: HashSet::new(),
            earlier: HashSet::new(),
            unknown: HashMap::new(),
            is_lost: false,
            drains: HashSet::new(),
            reclaimed: HashSet::new(),
            lowered: HashSet::new(),
            excess: 0,
            redissons: 0,
            reached_twice: HashSet::new(),
            is_crowded: plan.is_crowded,
            waits: HashMap::new(),
            free_since: None,
            seen: Seen::default(),
        }
    }

    pub(super) fn lose_ledger(&mut self) {
        // The known limitation: only the ledger has what was reclaimed.
        if !self.reclaimed.is_empty() {
            return;
        }
        self.found.note(|| "the ledger is lost".to_owned());
        let shares = self.books().shares;
        self.unknown.extend(shares);
        self.is_lost = true;
        self.seen.ledgers += 1;
        self.delete(LEDGER);
    }

    pub(super) fn end_number(&mut self) {
        self.found.note(|| "the number ends".to_owned());
        self.delete(KEY);
        self.earlier.extend(self.current.drain());
    }

    fn delete(&mut self, key: &str) {
        let command = ["DEL".to_owned(), key.to_owned()];
        self.redis.execute(&command, self.found.now_ms());
    }

    /// The call of this task begins to wait for one permit, or its wait ends.
    pub(super) fn wait(&mut self, task: usize, begins: bool) {
        match begins {
            true => drop(self.waits.insert(task, self.found.now_ms())),
            false => drop(self.waits.remove(&task)),
        }
    }

    /// Whether every permit can be acquired when none is held.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_lost && self.books().shares.is_empty()
    }

    fn books(&self) -> Books {
        let now = self.found.now_ms();
        let (free, members) = self.redis.counted(KEY, LEDGER, now);
        let shares = members.into_iter().filter_map(|(field, score)| {
            let has = score as i64;
            (1..1 << 31).contains(&has).then_some((field, has))
        });
        Books {
            free: self.redis.exists(KEY, now).then_some(free),
            shares: shares.collect(),
        }
    }

    fn account(
        &mut self,
        command: &SemaphoreCommand<'_>,
        value: &Value,
        [before, after]: [&Books; 2],
    ) {
        match command {
            SemaphoreCommand::Acquire { field, permits } => {
                if *permits == 0 {
                    self.drains.insert((*field).to_owned());
                }
                let what = match value {
                    Value::Array(parts) => parts.first(),
                    _ => None,
                };
                self.seen.grants += u64::from(what == Some(&Value::Int(1)));
                self.seen.few += u64::from(what == Some(&Value::Int(0)));
                self.seen.ended += u64::from(what == Some(&Value::Int(-3)));
                if after.shares.contains_key(*field) && !self.earlier.contains(*field) {
                    self.current.insert((*field).to_owned());
                }
            }
            SemaphoreCommand::Release { field, target } => {
                let is_reclaimed = self.reclaimed.contains(*field);
                self.seen.too_late += u64::from(is_reclaimed && *target == 0);
                if before.shares.get(*field) > after.shares.get(*field) {
                    self.lowered.insert((*field).to_owned());
                    self.seen.partly += u64::from(*target > 0);
                }
            }
            SemaphoreCommand::Transfer { from, to } => {
                let has = |books: &Books, it: &str| books.shares.contains_key(it);
                if has(before, from) && has(after, to) {
                    self.seen.handed_on += 1;
                    self.lowered.insert((*from).to_owned());
                    // Permits that the earlier number granted do not belong to the new one, whichever
                    // request has them.
                    let set = match self.earlier.contains(*from) {
                        true => &mut self.earlier,
                        false => &mut self.current,
                    };
                    set.insert((*to).to_owned());
                }
            }
            SemaphoreCommand::Set { .. } if before.free.is_none() && after.free.is_some() => {
                self.seen.numbers += 1;
                self.unknown.clear();
                (self.is_lost, self.excess) = (false, 0);
            }
            SemaphoreCommand::Reclaim { .. } => {
                let ended = before.shares.keys();
                let ended = ended.filter(|it| !after.shares.contains_key(*it));
                self.reclaimed.extend(ended.cloned());
                self.seen.reclaimed += (before.shares.len() - after.shares.len()) as u64;
            }
            SemaphoreCommand::Set { .. } | SemaphoreCommand::Other => {}
        }
    }

    /// Executes a command of Redisson, which moves permits between the number and itself.
    fn execute_redissons(&mut self, delivery: &Delivery) -> Value {
        let before = self.books();
        let value = self.redis.execute(&delivery.args, self.found.now_ms());
        self.send_published();
        let after = self.books();
        let taken = before.free.unwrap_or(0) - after.free.unwrap_or(0);
        self.redissons += taken;
        self.seen.redissons += u64::from(taken > 0);
        self.found.note(|| {
            format!(
                "Redisson: {:?} -> {value:?}; {:?} free, {} are its, {:?}",
                &delivery.args[3..],
                after.free,
                self.redissons,
                after.shares
            )
        });
        let is_same = before.shares == after.shares;
        self.found
            .claim(is_same, || "Redisson changed the ledger".to_owned());
        self.look();
        value
    }

    fn send_published(&mut self) {
        for (channel, text) in self.redis.take_published() {
            self.network.publish(&channel, &text);
        }
    }

    /// SE1: a command moves permits between the number and its own request, and creates none.
    fn compare(&mut self, command: &SemaphoreCommand<'_>, [before, after]: [&Books; 2]) {
        let (Some(was), Some(sum)) = (before.sum(), after.sum()) else {
            // The number was set by this command, or there is none.
            let sum = after.sum().unwrap_or(self.total);
            self.found
                .claim(sum == self.total, || format!("{command:?} made {sum}"));
            return;
        };
        let fields = command.fields();
        for (other, has) in &before.shares {
            let is_own = match command {
                SemaphoreCommand::Reclaim { prefix } => other.starts_with(prefix),
                _ => fields.contains(&other.as_str()),
            };
            if !is_own && after.shares.get(other) != Some(has) {
                self.found.violated(format!("{command:?} changed {other}"));
            }
        }
        let made = sum - was;
        let (SemaphoreCommand::Release { field, .. }, 1..) = (command, made) else {
            self.found
                .claim(made == 0, || format!("{command:?} made {made} permits"));
            return;
        };
        // A release may create only permits of which the server has lost its record.
        self.seen.known += 1;
        if self.reclaimed.contains(*field) {
            self.found
                .violated(format!("{command:?} made {made} reclaimed permits"));
        }
        match self.unknown.get_mut(*field) {
            Some(left) if *left >= made => *left -= made,
            _ if self.is_lost && self.lowered.contains(*field) => self.excess += made,
            _ => self
                .found
                .violated(format!("{command:?} made {made} permits")),
        }
        self.lowered.insert((*field).to_owned());
    }

    /// SE2, and at every moment no more permits are held than there are.
    fn look_at_holders(&mut self) {
        let mut used = self.redissons;
        for (core, _) in &self.found.clients {
            for hold in core.holds.all() {
                let state = hold.state();
                let field = core.field(&hold);
                let counts = self.current.contains(&field) && !self.reclaimed.contains(&field);
                if counts && state.is_valid(core.clock.now()) {
                    used += i64::from(state.count);
                }
            }
        }
        let most = self.total + self.excess;
        self.found.claim(used <= most, || {
            format!("{used} permits are held of {most}")
        });
        let free = self.books().free.unwrap_or(0);
        self.found.claim((0..=most).contains(&free), || {
            format!("{free} permits are free")
        });
    }

    /// SE6: no call waits for long while permits are free.
    fn look_at_waits(&mut self) {
        if !self.is_crowded {
            return;
        }
        if self.books().free == Some(0) {
            self.free_since = None;
            return;
        }
        let now = self.found.now_ms();
        let is_new = self.free_since.is_none();
        let free_since = *self.free_since.get_or_insert(now);
        let Some(first) = self.waits.values().min() else {
            return;
        };
        let lasted = now - free_since.max(*first);
        self.seen.awaited += u64::from(is_new);
        self.found.claim(lasted <= LONGEST_MS, || {
            format!("a call waits for {lasted} ms while permits are free")
        });
    }

    /// The checks when no command is in flight and no job is pending.
    pub(super) fn look_at_rest(&mut self) {
        if self.is_lost {
            return;
        }
        let mut listed = HashMap::new();
        for (core, _) in &self.found.clients {
            let holds = core.holds.all();
            listed.extend(
                holds
                    .iter()
                    .map(|hold| (core.field(hold), hold.state().count)),
            );
        }
        for (field, has) in self.books().shares {
            // A late acquire may enter a field again that another client has reclaimed.
            if self.reached_twice.contains(&field) || self.reclaimed.contains(&field) {
                continue;
            }
            // A late acquire of all permits that an earlier number granted takes those of the present one. Its
            // client releases them with what it got.
            let known = listed.get(&field).map(|count| i64::from(*count));
            if known.is_some() && self.drains.contains(&field) && self.earlier.contains(&field) {
                continue;
            }
            self.found.claim(known == Some(has), || {
                format!("{field} has {has} in the ledger, and {known:?} in its client")
            });
        }
    }

    /// The check when everything was released.
    pub(super) fn look_at_the_end(&mut self) {
        for client in 0..self.found.clients.len() {
            let left = self.found.clients[client].0.holds.all().len();
            self.found.claim(left == 0, || {
                format!("client {client} still lists {left} holds")
            });
        }
        let free = self.books().sum();
        let (total, is_lost) = (self.total, self.is_lost);
        self.found.claim(is_lost || free == Some(total), || {
            format!("{free:?} of {total} permits are left")
        });
    }
}

impl Observes for Observer {
    fn execute(&mut self, delivery: &Delivery) -> Value {
        if delivery.is_redissons {
            return self.execute_redissons(delivery);
        }
        let now_ms = self.found.now_ms();
        let command = SemaphoreCommand::of(&delivery.args);
        let before = self.books();
        let value = self
            .network
            .execute(delivery)
            .unwrap_or_else(|| self.redis.execute(&delivery.args, now_ms));
        self.send_published();
        let after = self.books();
        self.seen.executed += 1;
        self.seen.copies += u64::from(delivery.copy);
        self.found.note(|| {
            let copy = if delivery.copy { " (again)" } else { "" };
            format!(
                "#{} on {}{copy}: {command:?} -> {value:?}; {:?} free, {:?}",
                delivery.serial, delivery.connection, after.free, after.shares,
            )
        });
        if delivery.copy {
            self.reached_twice
                .extend(command.fields().into_iter().map(str::to_owned));
        }
        self.account(&command, &value, [&before, &after]);
        self.compare(&command, [&before, &after]);
        self.look();
        value
    }

    fn look(&mut self) {
        self.look_at_holders();
        self.look_at_waits();
    }

    fn found(&mut self) -> &mut Findings {
        &mut self.found
    }

    fn redis(&mut self) -> &mut Redis {
        &mut self.redis
    }
}

/// A pause of the client in favour of others, then an acquire of each waiter in its turn.
const LONGEST_MS: u64 = 60;
