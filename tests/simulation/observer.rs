//! Compares the clients with the server, and checks invariants 1 to 8, SP1, SP2, NR1 and NR2 of the
//! design.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::awaited::Awaited;
use super::command::SimulatedCommand;
use super::findings::Findings;
use super::kept::{Kept, KeptSeen};
use super::keys::Hash;
use super::network::{BatchesSeen, Delivery, Network};
use super::order::CountOrder;
use super::plan::{LockKind, Plan};
use super::polls::Polls;
use super::redis::Redis;
use super::task::LeastTime;
use super::tokens::{Counts, Tokens};
use super::world::Observes;
use crate::hold::{Hold, HoldPhase};
use crate::key::is_of_waiting_list;

pub(super) struct Observer {
    pub(super) redis: Redis,
    network: Arc<Network>,
    pub(super) found: Findings,
    /// Fields that were deleted by a force unlock; their holders learn of it late.
    forced: HashSet<String>,
    lost: HashSet<(usize, u64)>,
    order: CountOrder,
    /// Fields that a command has reached twice: the second time it may have lengthened the key's TTL beyond
    /// the hold's lease.
    reached_twice: HashSet<String>,
    /// Fields that a command has deleted.
    deleted: HashSet<String>,
    tokens: Tokens,
    kept: Kept,
    lock: LockKind,
    awaited: Option<Awaited>,
    /// Set for a spin lock, in a run without faults.
    polls: Option<Polls>,
    /// Whether Redisson freed the lock last, and when in milliseconds.
    freed_by: Option<(bool, u64)>,
    pub(super) seen: Observed,
}

/// How often each case occurred that the simulation is meant to test: a simulation without faults
/// proves nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed {
    pub(super) executed: u64,
    pub(super) copies: u64,
    pub(super) overtaken: u64,
    pub(super) grants: u64,
    pub(super) inner: u64,
    pub(super) renewals: u64,
    pub(super) losses: u64,
    pub(super) forced: u64,
    pub(super) killed: u64,
    pub(super) transfers: u64,
    /// Releases that woke one client of the waiting list, and the clients behind them that were to ask later.
    pub(super) woken_alone: u64,
    pub(super) seconds: u64,
    /// Checks of holds with claims that Redis does not count.
    pub(super) local: u64,
    /// Tokens that were issued, and counters that were deleted.
    pub(super) tokens: u64,
    pub(super) counters_lost: u64,
    /// Calls of owners that held a non-reentrant lock.
    pub(super) refused: u64,
    /// Commands of Redisson, and grants to it.
    pub(super) redissons: u64,
    pub(super) redissons_holds: u64,
    /// Grants to one side soon after the other side freed the lock.
    pub(super) from_redisson: u64,
    pub(super) to_redisson: u64,
    /// Messages that a waiter's client read, and those of them that arrived while the lock was free.
    pub(super) received: u64,
    pub(super) called: u64,
    /// Releases while a call waited, and while Redisson was subscribed.
    pub(super) awaited: u64,
    pub(super) listened: u64,
    /// Counts of locks with a least time.
    pub(super) least: KeptSeen,
    /// Polls of a spin lock by clients with several calls that may ask.
    pub(super) polls: u64,
    pub(super) batches: BatchesSeen,
}

impl Observed {
    pub(super) fn add(&mut self, other: &Self) {
        self.executed += other.executed;
        self.copies += other.copies;
        self.overtaken += other.overtaken;
        self.grants += other.grants;
        self.inner += other.inner;
        self.renewals += other.renewals;
        self.losses += other.losses;
        self.forced += other.forced;
        self.killed += other.killed;
        self.transfers += other.transfers;
        self.woken_alone += other.woken_alone;
        self.seconds += other.seconds;
        self.local += other.local;
        self.tokens += other.tokens;
        self.counters_lost += other.counters_lost;
        self.refused += other.refused;
        self.redissons += other.redissons;
        self.redissons_holds += other.redissons_holds;
        self.from_redisson += other.from_redisson;
        self.to_redisson += other.to_redisson;
        self.received += other.received;
        self.called += other.called;
        self.awaited += other.awaited;
        self.listened += other.listened;
        self.least.add(&other.least);
        self.polls += other.polls;
        self.batches.add(&other.batches);
    }
}

impl Observer {
    pub(super) fn new(redis: Redis, network: Arc<Network>, found: Findings, plan: &Plan) -> Self {
        Self {
            redis,
            network,
            found,
            forced: HashSet::new(),
            lost: HashSet::new(),
            order: CountOrder::default(),
            reached_twice: HashSet::new(),
            deleted: HashSet::new(),
            tokens: Tokens::new(plan.lock.tokens(), KEY),
            kept: Kept::new(plan),
            lock: plan.lock,
            awaited: Awaited::new(plan),
            polls: Polls::new(plan),
            freed_by: None,
            seen: Observed::default(),
        }
    }

    fn account(
        &mut self,
        command: &SimulatedCommand<'_>,
        serial: u64,
        before: Option<&Hash>,
        after: Option<&Hash>,
    ) {
        let there = |hash: Option<&Hash>, field| count(hash, field) > 0;
        for field in command.fields() {
            if there(before, field) && !there(after, field) {
                self.deleted.insert(field.to_owned());
            }
        }
        for field in command.counted() {
            self.seen.overtaken += u64::from(self.order.execute(field, serial));
        }
        if let SimulatedCommand::Count { field, target, .. } = command
            && count(after, field) == i64::from(*target)
        {
            self.order.note_set(field, serial);
        }
        match command {
            SimulatedCommand::Count {
                field,
                target,
                acquires,
            } => {
                if *acquires && there(after, field) {
                    self.seen.grants += u64::from(*target == 1);
                    self.seen.inner += u64::from(*target > 1);
                }
            }
            SimulatedCommand::Transfer { from, to } => {
                let moved = there(before, from) && there(after, to);
                self.seen.transfers += u64::from(moved);
            }
            SimulatedCommand::Force { field } => {
                if there(before, field) {
                    self.seen.forced += 1;
                    self.forced.insert((*field).to_owned());
                }
            }
            SimulatedCommand::Renew { .. } => self.seen.renewals += 1,
            SimulatedCommand::Linger { .. } | SimulatedCommand::Other => {}
        }
    }

    /// A command must not change a hold other than its own, nor shorten a hold's TTL.
    fn compare(
        &mut self,
        command: &SimulatedCommand<'_>,
        before: Option<&Hash>,
        after: Option<&Hash>,
    ) {
        let Some(before) = before else { return };
        let own = command.fields();
        if matches!(command, SimulatedCommand::Linger { .. }) {
            // Its hold has ended, so it may shorten the TTL.
            let unended = Hash {
                until_ms: None,
                ..before.clone()
            };
            self.compare_others(&own, &unended, after);
            return;
        }
        self.compare_others(&own, before, after);
    }

    /// Executes a command of Redisson, which must not change a hold of lockdog.
    fn execute_redissons(&mut self, delivery: &Delivery) -> Value {
        let now_ms = self.found.now_ms();
        let before = self.redis.hash(KEY, now_ms);
        self.look_at_awaited(before.is_some(), before.is_some());
        let value = match self.network.execute(delivery) {
            Some(value) => {
                let subscribes = delivery.args[0] == "SUBSCRIBE";
                if let Some(awaited) = &mut self.awaited {
                    awaited.listen(delivery.connection, subscribes.then_some(now_ms));
                }
                value
            }
            None => self.redis.execute(&delivery.args, now_ms),
        };
        let after = self.redis.hash(KEY, now_ms);
        self.tokens.see_redissons(&self.redis, now_ms);
        self.found.note(|| {
            let command = delivery.args.iter().filter(|it| !it.contains("redis.call"));
            let command: Vec<&String> = command.collect();
            format!(
                "Redisson: {command:?} -> {value:?}; {}",
                shown(after.as_ref())
            )
        });
        self.seen.redissons += 1;
        if let Some(mut ours) = before.clone() {
            ours.counts.retain(|field, _| !is_redissons(field));
            self.compare_others(&["Redisson"], &ours, after.as_ref());
        }
        self.see_change(true, before.as_ref(), after.as_ref());
        self.send_published();
        self.look();
        value
    }

    /// Counts how often the lock passes from one side to the other.
    fn see_change(&mut self, by_redisson: bool, before: Option<&Hash>, after: Option<&Hash>) {
        let now_ms = self.found.now_ms();
        self.look_at_awaited(before.is_some(), after.is_some());
        match (before, after) {
            (Some(_), None) => self.freed_by = Some((by_redisson, now_ms)),
            (None, Some(_)) => {
                self.seen.redissons_holds += u64::from(by_redisson);
                if let Some((from_redisson, at)) = self.freed_by.take()
                    && at + SOON_MS >= now_ms
                {
                    self.seen.from_redisson += u64::from(from_redisson && !by_redisson);
                    self.seen.to_redisson += u64::from(!from_redisson && by_redisson);
                }
            }
            _ => {}
        }
    }

    /// Sends the published messages, and returns how many there were, and whether one woke all waiters. SP1: a spin lock
    /// of lockdog publishes nothing.
    fn send_published(&mut self) -> (usize, bool) {
        let published = self.redis.take_published();
        let woke_all = published.iter().any(|(channel, _)| channel == CHANNEL);
        for (channel, text) in &published {
            let is_of_list = is_of_waiting_list(channel);
            self.seen.woken_alone += u64::from(is_of_list && text == "1");
            self.seen.seconds += u64::from(is_of_list && text == "2");
            self.network.publish(channel, text);
        }
        (published.len(), woke_all)
    }

    /// The call of this task begins or ends its wait.
    pub(super) fn wait(&mut self, task: usize, client: usize, waits: bool) {
        let now = waits.then(|| self.found.now_ms());
        let client = self.found.clients[client].0.id;
        if let Some(awaited) = &mut self.awaited {
            awaited.wait(task, client, now);
        }
    }

    /// A call of this task may poll from now on, or no longer.
    pub(super) fn polls(&mut self, task: usize, client: usize, asks: bool) {
        if let Some(polls) = &mut self.polls {
            polls.may_ask(client, task, asks);
        }
    }

    /// SP2.
    fn look_at_polls(&mut self, command: &SimulatedCommand<'_>, before: Option<&Hash>) {
        let now = self.found.now_ms();
        let Some(polls) = &mut self.polls else { return };
        let holder = before.and_then(|hash| hash.counts.keys().next());
        let clients = self
            .found
            .clients
            .iter()
            .map(|(core, _)| core.id.to_string());
        let clients: Vec<String> = clients.collect();
        let client_of = |field: &str| clients.iter().position(|id| field.starts_with(id));
        polls.see_holder(holder.map(|field| client_of(field)), now);
        let asker = match command {
            SimulatedCommand::Count {
                field,
                acquires: true,
                ..
            } => client_of(field),
            _ => None,
        };
        let Some(asker) = asker else { return };
        match polls.see_poll(asker, now) {
            Ok(is_beside) => self.seen.polls += u64::from(is_beside),
            Err(wrong) => self.found.violated(wrong),
        }
    }

    fn look_at_awaited(&mut self, was_held: bool, is_held: bool) {
        let now_ms = self.found.now_ms();
        for received in self.network.take_received() {
            self.seen.received += 1;
            if let Some(awaited) = &mut self.awaited {
                self.seen.called += u64::from(awaited.receive(&received, now_ms));
            }
        }
        let Some(awaited) = &mut self.awaited else {
            return;
        };
        for (core, clock) in &self.found.clients {
            let holds = core.holds.all();
            let valid = holds.iter().filter_map(|hold| {
                let state = hold.state();
                let is_valid = state.is_valid(core.clock.now());
                is_valid.then(|| clock.at_server(state.deadline) / 1_000_000)
            });
            awaited.believe(core.id, valid.max(), now_ms);
        }
        let [waits, listens] = awaited.see(was_held, is_held, now_ms);
        self.seen.awaited += u64::from(waits);
        self.seen.listened += u64::from(listens);
        if let Err(wrong) = awaited.look(now_ms) {
            self.found.violated(wrong);
        }
    }

    fn compare_others(&mut self, own: &[&str], before: &Hash, after: Option<&Hash>) {
        for (field, count_before) in &before.counts {
            let count_after = count(after, field);
            if !own.contains(&field.as_str()) && count_after != *count_before {
                self.found
                    .violated(format!("a command about {own:?} changed {field}"));
            }
            let shorter = after.is_some_and(|after| after.until_ms < before.until_ms);
            if count_after > 0 && shorter {
                self.found
                    .violated(format!("a command about {own:?} shortened {field}"));
            }
        }
    }

    fn wrong_with(&mut self, client: usize, hold: &Hold, hash: Option<&Hash>) -> Option<String> {
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
            return Some(format!("hold {id:?} was lost and is valid again"));
        }
        let field = core.field(hold);
        if self.forced.contains(&field) {
            return None;
        }
        let until = clock.at_server(deadline);
        match hash {
            Some(hash) if hash.counts.contains_key(&field) => {
                let ends = hash
                    .until_ms
                    .map_or(u64::MAX, |until| (until + 1) * 1_000_000);
                (until > ends).then(|| {
                    let beyond = (until - ends) as f64 / 1e6;
                    format!("{field} is believed in for {beyond} ms longer than Redis keeps it")
                })
            }
            _ => Some(format!(
                "{field} is believed in, and Redis has {}",
                shown(hash)
            )),
        }
    }

    /// The checks when no command is in flight and no job is pending.
    pub(super) fn look_at_rest(&mut self) {
        let hash = self.redis.hash(KEY, self.found.now_ms());
        let mut listed = HashSet::new();
        for client in 0..self.found.clients.len() {
            for hold in self.found.clients[client].0.holds.all() {
                let core = &self.found.clients[client].0;
                let field = core.field(&hold);
                listed.insert(field.clone());
                let state = hold.state();
                if !state.is_valid(core.clock.now()) || self.forced.contains(&field) {
                    continue;
                }
                let (here, there) = (i64::from(state.target()), count(hash.as_ref(), &field));
                drop(state);
                if here != there && self.in_order(&field) {
                    self.found
                        .violated(format!("{field} counts {here}, in Redis {there}"));
                }
            }
        }
        // Shortly before the key expires, the client no longer lists a hold whose lease ends.
        let ends = |hash: &Hash| {
            hash.until_ms
                .is_some_and(|it| it < self.found.now_ms() + ENDS_MS)
        };
        let hash = hash.filter(|hash| !ends(hash));
        let fields = hash.iter().flat_map(|hash| hash.counts.keys());
        for field in fields {
            let is_known = listed.contains(field)
                || self.reached_twice.contains(field)
                || self.kept.has_lingered(field)
                || is_redissons(field);
            if !is_known && self.in_order(field) {
                self.found
                    .violated(format!("no owner holds {field}, and it was not undone"));
            }
        }
    }

    /// The check when every remaining call was abandoned long ago: no such call keeps the lock.
    pub(super) fn look_at_left(&mut self) {
        let hash = self.redis.hash(KEY, self.found.now_ms());
        for client in 0..self.found.clients.len() {
            for hold in self.found.clients[client].0.holds.all() {
                let field = self.found.clients[client].0.field(&hold);
                let is_pending = hold.state().phase == HoldPhase::Pending;
                if is_pending && count(hash.as_ref(), &field) > 0 {
                    self.found
                        .violated(format!("{field} is kept for a call that was left"));
                }
            }
        }
    }

    /// The holds that the watchdog must be able to keep while no fault occurs.
    pub(super) fn watched(&self) -> Vec<(String, Arc<Hold>)> {
        let mut watched = Vec::new();
        for (core, _) in &self.found.clients {
            let now = core.clock.now();
            for hold in core.holds.all() {
                let kept = {
                    let state = hold.state();
                    state.is_valid(now) && state.is_renewed()
                };
                if kept {
                    watched.push((core.field(&hold), hold));
                }
            }
        }
        watched
    }

    pub(super) fn look_whether_kept(&mut self, (field, hold): &(String, Arc<Hold>)) {
        let kept = hold.state().is_living() || self.forced.contains(field);
        self.found.claim(kept, || {
            format!("the watchdog did not keep {field} on a calm network")
        });
    }

    /// The checks when every lease has ended.
    pub(super) fn look_at_the_end(&mut self) {
        let hash = self.redis.hash(KEY, self.found.now_ms());
        self.found.claim(hash.is_none(), || {
            format!("left behind: {}", shown(hash.as_ref()))
        });
        for client in 0..self.found.clients.len() {
            let left = self.found.clients[client].0.holds.all().len();
            self.found.claim(left == 0, || {
                format!("client {client} still lists {left} holds")
            });
        }
    }

    /// Whether a command deleted it, or its key expired at the end of a least time.
    pub(super) fn was_deleted(&self, field: &str) -> bool {
        let hash = self.redis.hash(KEY, self.found.now_ms());
        let is_there = count(hash.as_ref(), field) > 0;
        self.deleted.contains(field) || (self.kept.has_lingered(field) && !is_there)
    }

    /// An acquire with a least time returned a guard.
    pub(super) fn keep(&mut self, field: &str, least: LeastTime) {
        let now = self.network.now();
        self.found
            .note(|| format!("{field} is kept for {} ms at least", least.ms));
        if let Err(wrong) = self.kept.promise(field, least, now) {
            self.found.violated(wrong);
        }
    }

    /// An unlock returned that the lock is kept for this time.
    pub(super) fn look_at_kept(&mut self, field: &str, rest: Duration) {
        self.seen.least.kept += 1;
        let hash = self.redis.hash(KEY, self.found.now_ms());
        let (forced, now) = (self.forced.contains(field), self.network.now());
        let is_there = self
            .kept
            .is_there_for(field, rest, hash.as_ref(), forced, now);
        self.found.claim(is_there, || {
            format!(
                "{field} is said to be kept for {rest:?}: {}",
                shown(hash.as_ref())
            )
        });
    }

    fn see_kept(
        &mut self,
        command: &SimulatedCommand<'_>,
        delivery: &Delivery,
        value: &Value,
        hashes: [Option<&Hash>; 2],
    ) {
        let now = self.network.now();
        let command = command.keeping();
        match self.kept.see(&command, delivery, value, hashes, now) {
            Ok(lingered) => lingered.iter().for_each(|it| self.seen.least.count(it)),
            Err(wrong) => self.found.violated(wrong),
        }
    }

    /// Whether no command about the hold's count was overtaken by a later one.
    fn in_order(&self, field: &str) -> bool {
        self.order.is_kept(field, self.network.last_sent(field))
    }
}

impl Observes for Observer {
    /// Executes a command and checks its effect.
    fn execute(&mut self, delivery: &Delivery) -> Value {
        if delivery.is_redissons {
            return self.execute_redissons(delivery);
        }
        let now_ms = self.found.now_ms();
        let command = SimulatedCommand::of(&delivery.args);
        if self.tokens.lose_counter(&mut self.redis, now_ms) {
            self.seen.counters_lost += 1;
            self.found.note(|| "the counter is deleted".to_owned());
        }
        let before = self.redis.hash(KEY, now_ms);
        self.look_at_awaited(before.is_some(), before.is_some());
        let value = match self.network.execute(delivery) {
            Some(value) => {
                let name = delivery.args[0].as_str();
                self.seen.killed += u64::from(name == "CLIENT");
                let listens = name != "CLIENT" && self.lock == LockKind::Spin;
                self.found
                    .claim(!listens, || format!("{:?} of a spin lock", delivery.args));
                value
            }
            None => self.redis.execute(&delivery.args, now_ms),
        };
        let after = self.redis.hash(KEY, now_ms);
        self.seen.executed += 1;
        self.seen.copies += u64::from(delivery.copy);
        self.found.note(|| {
            let copy = if delivery.copy { " (again)" } else { "" };
            format!(
                "#{} on {}{copy}: {command:?} -> {value:?}; {}",
                delivery.serial,
                delivery.connection,
                shown(after.as_ref())
            )
        });
        if delivery.copy {
            let fields = command.counted().into_iter();
            self.reached_twice.extend(fields.map(str::to_owned));
        }
        let ran = !matches!(&value, Value::ServerError(_));
        if ran {
            self.account(&command, delivery.serial, before.as_ref(), after.as_ref());
            let none = Counts::new();
            let counts = [&before, &after].map(|hash| hash.as_ref().map_or(&none, |it| &it.counts));
            match self.tokens.see(command.granting(), &value, counts) {
                Ok(is_new) => self.seen.tokens += u64::from(is_new),
                Err(wrong) => self.found.violated(wrong),
            }
            let hashes = [before.as_ref(), after.as_ref()];
            self.look_at_polls(&command, hashes[0]);
            self.see_kept(&command, delivery, &value, hashes);
        }
        self.compare(&command, before.as_ref(), after.as_ref());
        self.see_change(false, before.as_ref(), after.as_ref());
        let is_freed = before.is_some() && after.is_none();
        let listens = is_freed && self.network.redisson_listens(CHANNEL);
        let (published, woke_all) = self.send_published();
        // A list of waiting clients does not hide a waiter of Redisson.
        let is_notified = woke_all || !listens || self.lock == LockKind::Spin;
        self.found.claim(is_notified, || {
            "a release wakes no waiter of Redisson".to_owned()
        });
        let is_silent = published == 0 || self.lock != LockKind::Spin;
        self.found
            .claim(is_silent, || "a spin lock publishes".to_owned());
        self.look();
        value
    }

    fn refuse(&mut self, delivery: &Delivery, error: &str) {
        if let SimulatedCommand::Count {
            field,
            acquires: false,
            ..
        } = SimulatedCommand::of(&delivery.args)
        {
            self.order.note_refused(field, error);
        }
    }

    /// The check at every moment: a hold that its client considers valid exists in Redis, for longer
    /// than the client considers it valid. A hash has one holder, so two holds cannot be considered
    /// valid at once.
    fn look(&mut self) {
        let hash = self.redis.hash(KEY, self.found.now_ms());
        if hash.as_ref().is_some_and(|hash| hash.counts.len() > 1) {
            self.found
                .violated(format!("two holders in Redis: {}", shown(hash.as_ref())));
        }
        let is_held = hash.is_some();
        self.look_at_awaited(is_held, is_held);
        let now = self.network.now();
        if let Err(wrong) = self.kept.look(hash.as_ref(), &self.forced, now) {
            self.found.violated(wrong);
        }
        if self.lock == LockKind::NonReentrant {
            let own = hash.iter().flat_map(|hash| &hash.counts);
            let mut own = own.filter(|(field, _)| !is_redissons(field));
            let twice = own.find(|(_, count)| **count != 1);
            self.found.claim(twice.is_none(), || {
                format!("a non-reentrant lock: {twice:?}")
            });
        }
        for client in 0..self.found.clients.len() {
            for hold in self.found.clients[client].0.holds.all() {
                self.seen.local += u64::from(hold.state().local > 0);
                if let Some(wrong) = self.wrong_with(client, &hold, hash.as_ref()) {
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

fn count(hash: Option<&Hash>, field: &str) -> i64 {
    let count = hash.and_then(|hash| hash.counts.get(field));
    count.copied().unwrap_or(0)
}

fn shown(hash: Option<&Hash>) -> String {
    match hash {
        None => "nothing".to_owned(),
        Some(hash) => format!("{:?} until {:?} ms", hash.counts, hash.until_ms),
    }
}

/// Whether a field is that of a Redisson client: it has no number of a hold.
pub(super) fn is_redissons(field: &str) -> bool {
    !field.contains('.')
}

/// The one lock of a run, and its channel.
pub(super) const KEY: &str = "lock";
pub(super) const CHANNEL: &str = "redisson_lock__channel:{lock}";
/// A message and a command.
const SOON_MS: u64 = 100;

/// Longer than the client's deduction from the longest lease for clocks that run at different rates.
const ENDS_MS: u64 = 60;
