//! Compares the clients with the server, and checks invariants PE1 to PE3 of the design.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use redis::Value;

use super::command::{IN_USE, KEY, PermitCommand};
use crate::hold::{Hold, HoldPhase};
use crate::key::PermitId;
use crate::simulation::findings::Findings;
use crate::simulation::network::{Delivery, Network};
use crate::simulation::redis::Redis;
use crate::simulation::redisson::permits::{EPOCH_MS, IDS as REDISSONS};
use crate::simulation::world::Observes;

pub(super) struct Observer {
    pub(super) redis: Redis,
    network: Arc<Network>,
    pub(super) found: Findings,
    total: i64,
    lost: HashSet<(usize, u64)>,
    /// For each permit, the last executed command that may take or release it.
    executed: HashMap<String, u64>,
    /// Permits that one command has reached twice: the second delivery may have taken them again.
    reached_twice: HashSet<String>,
    /// Permits of which the task has only the ids.
    handed_out: HashSet<String>,
    /// Permits that a command has released.
    given_back: HashSet<String>,
    pub(super) seen: Seen,
}

/// How often each case occurred that the simulation is meant to test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) executed: u64,
    pub(super) copies: u64,
    pub(super) grants: u64,
    /// Acquires that found too few permits.
    pub(super) full: u64,
    /// Expired permits that an acquire reclaimed.
    pub(super) swept: u64,
    pub(super) renewals: u64,
    pub(super) losses: u64,
    /// Releases by ids.
    pub(super) given_back: u64,
    /// Grants to Redisson, and permits that it took from lockdog after their leases had ended.
    pub(super) redissons: u64,
    pub(super) redisson_swept: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.executed += other.executed;
        self.copies += other.copies;
        self.grants += other.grants;
        self.full += other.full;
        self.swept += other.swept;
        self.renewals += other.renewals;
        self.losses += other.losses;
        self.given_back += other.given_back;
        self.redissons += other.redissons;
        self.redisson_swept += other.redisson_swept;
    }
}

/// The permits in use: when each expires, in ms since the start of the run.
type InUse = BTreeMap<String, f64>;

impl Observer {
    pub(super) fn new(
        mut redis: Redis,
        network: Arc<Network>,
        found: Findings,
        total: u32,
    ) -> Self {
        redis.set(KEY, &total.to_string());
        redis.begin_at(EPOCH_MS);
        Self {
            redis,
            network,
            found,
            total: i64::from(total),
            lost: HashSet::new(),
            executed: HashMap::new(),
            reached_twice: HashSet::new(),
            handed_out: HashSet::new(),
            given_back: HashSet::new(),
            seen: Seen::default(),
        }
    }

    pub(super) fn handed_out(&mut self, ids: Vec<PermitId>) {
        self.handed_out
            .extend(ids.into_iter().map(PermitId::into_field));
    }

    pub(super) fn released(&mut self, ids: Vec<PermitId>) {
        for id in ids {
            let is_back = self.given_back.contains(&id.into_field());
            self.found
                .claim(is_back, || format!("{id} is said to be given back"));
        }
    }

    /// They may have expired before. A late acquire takes a permit again that it has reached before.
    pub(super) fn given_back(&mut self, ids: Vec<PermitId>) {
        let (in_use, now) = (self.in_use(), self.found.now_ms() as f64);
        for id in ids {
            let field = id.into_field();
            let is_in_use = in_use.get(&field).is_some_and(|ends| *ends > now);
            let is_back = !is_in_use || self.reached_twice.contains(&field);
            self.found.claim(is_back, || {
                format!("{id} is said to be given back by its id")
            });
        }
    }

    fn in_use(&self) -> InUse {
        self.books().1
    }

    /// The free permits, and those in use.
    fn books(&self) -> (i64, InUse) {
        let (free, in_use) = self.redis.counted(KEY, IN_USE, self.found.now_ms());
        let ends = in_use.into_iter();
        let in_use = ends.map(|(id, ends)| (id, ends - EPOCH_MS as f64));
        (free, in_use.collect())
    }

    /// Executes a command of Redisson. It may take permits of lockdog only after their leases have
    /// ended.
    fn execute_redissons(&mut self, delivery: &Delivery) -> Value {
        let before = self.in_use();
        let value = self.redis.execute(&delivery.args, self.found.now_ms());
        let (free, after) = self.books();
        self.found.note(|| {
            format!(
                "Redisson: {:?} -> {value:?}; {free} free, {after:?}",
                &delivery.args[3..]
            )
        });
        let is_new = |id: &String| !before.contains_key(id);
        self.seen.redissons += after.keys().filter(|id| is_new(id)).count() as u64;
        let now = self.found.now_ms() as f64;
        for (id, ends) in before.iter().filter(|it| !it.0.starts_with(REDISSONS)) {
            if !after.contains_key(id) {
                self.seen.redisson_swept += 1;
                self.given_back.insert(id.clone());
                self.found
                    .claim(*ends <= now, || format!("Redisson gave back {id:?}"));
            }
        }
        self.look_at_total(free, &after);
        self.look();
        value
    }

    /// PE1. Together with the checks of `look` it covers PE2, too.
    fn look_at_total(&mut self, free: i64, in_use: &InUse) {
        let total = free + in_use.len() as i64;
        self.found.claim(total == self.total, || {
            format!("{free} are free and {} in use", in_use.len())
        });
    }

    fn account(&mut self, command: &PermitCommand<'_>, serial: u64, before: &InUse, after: &InUse) {
        let gone = |id: &&str| before.contains_key(*id) && !after.contains_key(*id);
        match command {
            PermitCommand::Acquire { ids } => {
                let granted = ids.iter().all(|id| after.contains_key(*id));
                self.seen.grants += u64::from(granted);
                self.seen.full += u64::from(!granted);
                let gone = before.keys().filter(|id| !after.contains_key(*id));
                self.seen.swept += gone.count() as u64;
            }
            PermitCommand::GiveBack { ids } => {
                self.seen.given_back += u64::from(ids.iter().any(gone));
            }
            PermitCommand::Renew { .. } => self.seen.renewals += 1,
            PermitCommand::Release { .. } | PermitCommand::Other => {}
        }
        for id in command.ids() {
            if gone(id) {
                self.given_back.insert((*id).to_owned());
            }
            if !matches!(command, PermitCommand::Renew { .. }) {
                self.executed.insert((*id).to_owned(), serial);
            }
        }
    }

    /// A command must not release a permit other than its own, unless that one expired, and must not
    /// shorten a lease.
    fn compare(&mut self, command: &PermitCommand<'_>, before: &InUse, after: &InUse) {
        let now = self.found.now_ms() as f64;
        for (id, ends) in before {
            let is_own = command.ids().contains(&id.as_str());
            match after.get(id) {
                None if !is_own && *ends > now => {
                    self.found.violated(format!("{command:?} gave back {id:?}"));
                }
                Some(later) if later < ends => {
                    self.found.violated(format!("{command:?} shortened {id:?}"));
                }
                _ => {}
            }
        }
        for id in after.keys().filter(|id| !before.contains_key(*id)) {
            if !command.ids().contains(&id.as_str()) {
                self.found.violated(format!("{command:?} took {id:?}"));
            }
        }
    }

    fn wrong_with(&mut self, client: usize, hold: &Hold, in_use: &InUse) -> Option<String> {
        let (core, clock) = &self.found.clients[client];
        let (phase, valid, deadline) = {
            let state = hold.state();
            (
                state.phase,
                state.is_valid(core.clock.now()),
                state.deadline,
            )
        };
        let id = (client, hold.number());
        if matches!(phase, HoldPhase::Lost(_)) && self.lost.insert(id) {
            self.seen.losses += 1;
        }
        if !valid {
            return None;
        }
        if self.lost.contains(&id) {
            return Some(format!("permit {id:?} was lost and is valid again"));
        }
        let until = clock.at_server(deadline) as f64 / 1e6;
        match in_use.get(&core.field(hold)) {
            // Another client may take it at this millisecond.
            Some(ends) => (until > *ends).then(|| {
                let beyond = until - ends;
                format!("permit {id:?} is believed in for {beyond} ms longer than Redis keeps it")
            }),
            None => Some(format!(
                "permit {id:?} is believed in, and Redis has {in_use:?}"
            )),
        }
    }

    /// The checks when no command is in flight and no job is pending.
    pub(super) fn look_at_rest(&mut self) {
        let mut listed = HashSet::new();
        for (core, _) in &self.found.clients {
            listed.extend(core.holds.all().iter().map(|hold| core.field(hold)));
        }
        // Shortly before it expires, the client no longer lists a permit whose lease ends.
        let ends = (self.found.now_ms() + ENDS_MS) as f64;
        for (id, _) in self.in_use().iter().filter(|(_, until)| **until > ends) {
            let is_known = listed.contains(id)
                || id.starts_with(REDISSONS)
                || self.handed_out.contains(id)
                || self.reached_twice.contains(id);
            if !is_known && self.executed.get(id).copied() == self.network.last_sent(id) {
                self.found
                    .violated(format!("no value has {id:?}, and it was not undone"));
            }
        }
    }

    /// The checks when every lease has ended.
    pub(super) fn look_at_the_end(&mut self) {
        for client in 0..self.found.clients.len() {
            let left = self.found.clients[client].0.holds.all().len();
            self.found.claim(left == 0, || {
                format!("client {client} still lists {left} holds")
            });
        }
    }
}

impl Observes for Observer {
    fn execute(&mut self, delivery: &Delivery) -> Value {
        if delivery.is_redissons {
            return self.execute_redissons(delivery);
        }
        let now_ms = self.found.now_ms();
        let command = PermitCommand::of(&delivery.args);
        let before = self.in_use();
        let value = match delivery.args[0].as_str() {
            "CLIENT" if delivery.args[1] == "KILL" => self.network.kill(&delivery.args[3]),
            _ => self.redis.execute(&delivery.args, now_ms),
        };
        let (free, after) = self.books();
        self.seen.executed += 1;
        self.seen.copies += u64::from(delivery.copy);
        self.found.note(|| {
            let copy = if delivery.copy { " (again)" } else { "" };
            format!(
                "#{} on {}{copy}: {command:?} -> {value:?}; {free} free, {after:?}",
                delivery.serial, delivery.connection,
            )
        });
        if delivery.copy {
            let ids = super::command::counted(&delivery.args);
            self.reached_twice.extend(ids);
        }
        if !matches!(&value, Value::ServerError(_)) {
            self.account(&command, delivery.serial, &before, &after);
        }
        self.compare(&command, &before, &after);
        self.look_at_total(free, &after);
        self.look();
        value
    }

    /// A permit that its client considers valid is in use in Redis, for longer than the client considers
    /// it valid.
    fn look(&mut self) {
        let in_use = self.in_use();
        for client in 0..self.found.clients.len() {
            for hold in self.found.clients[client].0.holds.all() {
                if let Some(wrong) = self.wrong_with(client, &hold, &in_use) {
                    self.found.violated(wrong);
                }
            }
        }
    }

    fn found(&mut self) -> &mut Findings {
        &mut self.found
    }

    fn redis(&mut self) -> &mut Redis {
        &mut self.redis
    }
}

/// Longer than the client's deduction from the longest lease for clocks that run at different rates.
const ENDS_MS: u64 = 60;
