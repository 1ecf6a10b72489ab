//! Compares the clients with the server, and checks invariants GL1 to GL4 and 1 to 7 of the design.

use std::collections::HashSet;
use std::sync::Arc;

use redis::Value;

use super::command::GroupCommand;
use super::on_server::{EPOCH_MS, GroupState};
use crate::hold::{Hold, HoldPhase};
use crate::simulation::findings::Findings;
use crate::simulation::network::{Delivery, Network};
use crate::simulation::order::CountOrder;
use crate::simulation::redis::Redis;
use crate::simulation::world::Observes;

pub(super) struct Observer {
    pub(super) redis: Redis,
    network: Arc<Network>,
    pub(super) found: Findings,
    lost: HashSet<(usize, u64)>,
    order: CountOrder,
    /// Fields that one command has reached twice: the second delivery may have created them again.
    reached_twice: HashSet<String>,
    /// Fields that a command has deleted, and those that a force unlock has deleted.
    deleted: HashSet<String>,
    forced: HashSet<String>,
    pub(super) seen: Seen,
}

/// How often each case occurred that the simulation is meant to test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) executed: u64,
    pub(super) copies: u64,
    pub(super) grants: u64,
    /// Grants while other owners hold other values.
    pub(super) beside: u64,
    /// Acquires that found a value taken.
    pub(super) busy: u64,
    pub(super) inner: u64,
    /// Values that an acquire took from an owner whose time had ended.
    pub(super) taken_over: u64,
    pub(super) renewals: u64,
    pub(super) losses: u64,
    pub(super) forced: u64,
    /// Grants to Redisson, and values that it took from owners of lockdog whose time had ended.
    pub(super) redissons: u64,
    pub(super) redisson_took: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.executed += other.executed;
        self.copies += other.copies;
        self.grants += other.grants;
        self.beside += other.beside;
        self.busy += other.busy;
        self.inner += other.inner;
        self.taken_over += other.taken_over;
        self.renewals += other.renewals;
        self.losses += other.losses;
        self.forced += other.forced;
        self.redissons += other.redissons;
        self.redisson_took += other.redisson_took;
    }
}

impl Observer {
    pub(super) fn new(mut redis: Redis, network: Arc<Network>, found: Findings) -> Self {
        redis.begin_at(EPOCH_MS);
        Self {
            redis,
            network,
            found,
            lost: HashSet::new(),
            order: CountOrder::default(),
            reached_twice: HashSet::new(),
            deleted: HashSet::new(),
            forced: HashSet::new(),
            seen: Seen::default(),
        }
    }

    pub(super) fn released(&mut self, field: &str) {
        let is_deleted = self.deleted.contains(field);
        self.found
            .claim(is_deleted, || format!("{field} is said to be released"));
    }

    fn on_server(&self) -> GroupState {
        GroupState::of(&self.redis, self.found.now_ms())
    }

    fn account(
        &mut self,
        command: &GroupCommand<'_>,
        serial: u64,
        value: &Value,
        [before, after]: [&GroupState; 2],
    ) {
        let now = self.found.now_ms() as f64;
        if let Some(field) = command.counted() {
            self.order.execute(field, serial);
            let target = command.target().map(i64::from);
            if after
                .of_field(field)
                .all(|(_, has)| Some(has.count) == target)
            {
                self.order.note_set(field, serial);
            }
        }
        for field in command.fields() {
            if before.of_field(field).count() > 0 && after.of_field(field).count() == 0 {
                self.deleted.insert((*field).to_owned());
            }
        }
        match command {
            GroupCommand::Acquire { field, target, .. } => match value {
                Value::Nil => {
                    self.seen.grants += 1;
                    self.seen.inner += u64::from(*target > 1);
                    let is_beside = |it: &str| it != *field;
                    let mut living = after.values.values().filter(|has| has.ends > now);
                    self.seen.beside += u64::from(living.any(|has| is_beside(&has.field)));
                    let over = before.values.iter().filter(|(value, has)| {
                        has.field != *field && after.of_field(field).any(|(it, _)| it == *value)
                    });
                    self.seen.taken_over += over.count() as u64;
                }
                Value::Int(0..) => self.seen.busy += 1,
                _ => {}
            },
            GroupCommand::Force { field } => {
                if *value == Value::Int(1) {
                    self.seen.forced += 1;
                    self.forced.insert((*field).to_owned());
                }
            }
            GroupCommand::Renew { .. } => self.seen.renewals += 1,
            GroupCommand::Lower { .. } | GroupCommand::Other => {}
        }
    }

    fn compare(
        &mut self,
        command: &GroupCommand<'_>,
        value: &Value,
        [before, after]: [&GroupState; 2],
    ) {
        let now = self.found.now_ms() as f64;
        let mut wrong = |what: String| {
            self.found
                .violated(format!("{command:?} {what}: {before:?} {after:?}"));
        };
        for (name, had) in before.values.iter().filter(|(_, had)| had.ends > now) {
            let is_own = command.fields().contains(&had.field.as_str());
            match after.values.get(name) {
                // GL1.
                Some(has) if has.field != had.field => wrong(format!("took {name}")),
                None if !is_own => wrong(format!("freed {name}")),
                Some(has) if has.ends < had.ends => wrong(format!("shortened {name}")),
                _ => {}
            }
        }
        for (name, has) in &after.values {
            let is_new = before.values.get(name).map(|had| &had.field) != Some(&has.field);
            if is_new && !command.fields().contains(&has.field.as_str()) {
                wrong(format!("gave {name} to {}", has.field));
            }
        }
        let GroupCommand::Acquire { field, values, .. } = command else {
            return;
        };
        let own = |on_server: &GroupState| on_server.of_field(field).count();
        match value {
            // GL2.
            Value::Nil if own(after) != values.len() => wrong("granted a part".to_owned()),
            Value::Int(_) if own(before) != own(after) => wrong("took some".to_owned()),
            // GL3.
            Value::Int(0..) => {
                let has = values.iter().filter_map(|value| before.values.get(*value));
                if !has
                    .into_iter()
                    .any(|has| has.field != *field && has.ends > now)
                {
                    wrong("waits for no owner".to_owned());
                }
            }
            _ => {}
        }
    }

    /// Executes a command of Redisson. The command must take no value of a lockdog owner before the end
    /// of its time.
    fn execute_redissons(&mut self, delivery: &Delivery) -> Value {
        let before = self.on_server();
        let value = self.redis.execute(&delivery.args, self.found.now_ms());
        let after = self.on_server();
        self.found.note(|| {
            format!(
                "Redisson: {:?} -> {value:?}; {:?}",
                &delivery.args[3..],
                after.values
            )
        });
        let now = self.found.now_ms() as f64;
        for (name, had) in before.values.iter().filter(|it| !is_redissons(&it.1.field)) {
            if after.values.get(name) != Some(had) {
                self.seen.redisson_took += 1;
                self.deleted.insert(had.field.clone());
                self.found.claim(had.ends <= now, || {
                    format!("Redisson changed {name}: {before:?} {after:?}")
                });
            }
        }
        let is_new = |name: &str, field: &str| {
            let had = before.values.get(name);
            is_redissons(field) && had.is_none_or(|had| had.field != field)
        };
        let mut now_has = after.values.iter();
        self.seen.redissons += u64::from(now_has.any(|(name, has)| is_new(name, &has.field)));
        self.look();
        value
    }

    fn wrong_with(&mut self, client: usize, hold: &Hold, on_server: &GroupState) -> Option<String> {
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
        let field = core.field(hold);
        if !valid || self.forced.contains(&field) {
            return None;
        }
        if self.lost.contains(&id) {
            return Some(format!("hold {id:?} was lost and is valid again"));
        }
        let until = clock.at_server(deadline) as f64 / 1e6;
        let key_ends = on_server.until_ms.map_or(f64::MAX, |it| it as f64 + 1.0);
        for value in hold.key().values() {
            match on_server.values.get(&**value) {
                Some(has) if has.field == field => {
                    let ends = has.ends.min(key_ends);
                    if until > ends {
                        let beyond = until - ends;
                        return Some(format!(
                            "{field} is believed in for {beyond} ms longer than Redis keeps {value}"
                        ));
                    }
                }
                other => return Some(format!("{field} is believed in, and {value} is {other:?}")),
            }
        }
        None
    }

    /// The checks when no command is in flight and no job is pending.
    pub(super) fn look_at_rest(&mut self) {
        let on_server = self.on_server();
        let mut listed = HashSet::new();
        for client in 0..self.found.clients.len() {
            for hold in self.found.clients[client].0.holds.all() {
                let core = &self.found.clients[client].0;
                let field = core.field(&hold);
                let state = hold.state();
                let is_valid = state.is_valid(core.clock.now()) && !self.forced.contains(&field);
                let here = i64::from(state.target());
                drop(state);
                listed.insert(field.clone());
                if !is_valid || !self.in_order(&field) {
                    continue;
                }
                for (value, has) in on_server.of_field(&field) {
                    self.found.claim(has.count == here, || {
                        format!("{field} counts {here}, and {value} has {}", has.count)
                    });
                }
            }
        }
        // Shortly before the end of a lease the client no longer lists the hold.
        let ends = (self.found.now_ms() + ENDS_MS) as f64;
        for (value, has) in on_server.values.iter().filter(|(_, has)| has.ends > ends) {
            let field = &has.field;
            let is_known = listed.contains(field)
                || is_redissons(field)
                || self.forced.contains(field)
                || self.reached_twice.contains(field);
            if !is_known && self.in_order(field) {
                self.found.violated(format!(
                    "no owner holds {value} as {field}, and it was not undone"
                ));
            }
        }
    }

    /// GL4: the check when every lease has ended.
    pub(super) fn look_at_the_end(&mut self) {
        let names = self.redis.names(self.found.now_ms());
        self.found
            .claim(names.is_empty(), || format!("left behind: {names:?}"));
        for client in 0..self.found.clients.len() {
            let left = self.found.clients[client].0.holds.all().len();
            self.found.claim(left == 0, || {
                format!("client {client} still lists {left} holds")
            });
        }
    }

    /// Whether no command about the hold's count was overtaken by a later one.
    fn in_order(&self, field: &str) -> bool {
        self.order.is_kept(field, self.network.last_sent(field))
    }
}

impl Observes for Observer {
    fn execute(&mut self, delivery: &Delivery) -> Value {
        if delivery.is_redissons {
            return self.execute_redissons(delivery);
        }
        let now_ms = self.found.now_ms();
        let command = GroupCommand::of(&delivery.args);
        let before = self.on_server();
        let value = match delivery.args[0].as_str() {
            "CLIENT" if delivery.args[1] == "KILL" => self.network.kill(&delivery.args[3]),
            _ => self.redis.execute(&delivery.args, now_ms),
        };
        let after = self.on_server();
        self.seen.executed += 1;
        self.seen.copies += u64::from(delivery.copy);
        self.found.note(|| {
            let copy = if delivery.copy { " (again)" } else { "" };
            format!(
                "#{} on {}{copy}: {command:?} -> {value:?}; {:?}",
                delivery.serial, delivery.connection, after.values
            )
        });
        if delivery.copy {
            self.reached_twice
                .extend(command.counted().map(str::to_owned));
        }
        if !matches!(value, Value::ServerError(_)) {
            self.account(&command, delivery.serial, &value, [&before, &after]);
            self.compare(&command, &value, [&before, &after]);
        }
        self.look();
        value
    }

    fn refuse(&mut self, delivery: &Delivery, error: &str) {
        if let GroupCommand::Lower { field, .. } = GroupCommand::of(&delivery.args) {
            self.order.note_refused(field, error);
        }
    }

    fn look(&mut self) {
        let on_server = self.on_server();
        for client in 0..self.found.clients.len() {
            for hold in self.found.clients[client].0.holds.all() {
                if let Some(wrong) = self.wrong_with(client, &hold, &on_server) {
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

/// Whether a field is that of a Redisson client: it has no number of a hold.
fn is_redissons(field: &str) -> bool {
    !field.contains('.')
}

/// Longer than the client's deduction from the longest lease for clocks that run at different rates, and the time for
/// which a value outlives its lease.
const ENDS_MS: u64 = 65;
