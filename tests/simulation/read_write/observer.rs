//! Compares the clients with the server, and checks invariants RW1 to RW7 of the design.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::command::{ANNOUNCEMENT, KEY, RwCommand, timeout_of, timeout_of_acquire};
use crate::hold::{Hold, HoldPhase};
use crate::key::{Mode, WRITER};
use crate::simulation::findings::Findings;
use crate::simulation::keys::Hash;
use crate::simulation::network::{Delivery, Network};
use crate::simulation::redis::Redis;
use crate::simulation::world::Observes;

pub(super) struct Observer {
    pub(super) redis: Redis,
    network: Arc<Network>,
    pub(super) found: Findings,
    lost: HashSet<(usize, u64)>,
    /// The last executed command about each hold's count.
    executed: HashMap<String, u64>,
    /// Fields that one command has reached twice: the second delivery may have created them again.
    reached_twice: HashSet<String>,
    /// Owners that have left a hold to its lease.
    left: HashSet<String>,
    pub(super) seen: Seen,
}

/// How often each case occurred that the simulation is meant to test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) executed: u64,
    pub(super) copies: u64,
    /// Copies of upgrades and of inner unlocks, most of them after the answers.
    pub(super) copied_upgrades: u64,
    pub(super) copied_inner: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Reads that were granted while other readers held the lock.
    pub(super) shared: u64,
    /// Grants to an owner that holds the other mode.
    pub(super) both_modes: u64,
    pub(super) announced: u64,
    pub(super) upgrades: u64,
    /// Write holds that were lost at their deadlines while their owners held reads.
    pub(super) outlived: u64,
    pub(super) renewals: u64,
    pub(super) losses: u64,
    pub(super) crowds: u64,
    pub(super) together: u64,
    /// Unlocks after which the key's TTL is shorter.
    pub(super) trimmed: u64,
    /// Grants to Redisson, some of them while readers of lockdog held the lock.
    pub(super) redissons: u64,
    pub(super) redissons_beside: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.executed += other.executed;
        self.copies += other.copies;
        self.copied_upgrades += other.copied_upgrades;
        self.copied_inner += other.copied_inner;
        self.reads += other.reads;
        self.writes += other.writes;
        self.shared += other.shared;
        self.both_modes += other.both_modes;
        self.announced += other.announced;
        self.upgrades += other.upgrades;
        self.outlived += other.outlived;
        self.renewals += other.renewals;
        self.losses += other.losses;
        self.crowds += other.crowds;
        self.together += other.together;
        self.trimmed += other.trimmed;
        self.redissons += other.redissons;
        self.redissons_beside += other.redissons_beside;
    }
}

impl Observer {
    pub(super) fn new(redis: Redis, network: Arc<Network>, found: Findings) -> Self {
        Self {
            redis,
            network,
            found,
            lost: HashSet::new(),
            executed: HashMap::new(),
            reached_twice: HashSet::new(),
            left: HashSet::new(),
            seen: Seen::default(),
        }
    }

    pub(super) fn left(&mut self, field: String) {
        self.left.insert(owner_of(&field).to_owned());
    }

    fn hash(&self) -> Option<Hash> {
        self.redis.hash(KEY, self.found.now_ms())
    }

    fn account(&mut self, command: &RwCommand<'_>, serial: u64, before: &Hash, after: &Hash) {
        match command {
            RwCommand::Acquire { field, upgrades } => {
                let is_new = |field| !before.counts.contains_key(field);
                if is_new(*field) && after.counts.contains_key(*field) {
                    let writes = field.ends_with(WRITER);
                    self.seen.reads += u64::from(!writes);
                    self.seen.writes += u64::from(writes);
                    self.seen.upgrades += u64::from(*upgrades);
                    let others = before.counts.keys();
                    let is_own = |other: &&String| owner_of(other) == owner_of(field);
                    let both = others.clone().any(|other| is_own(&other));
                    self.seen.both_modes += u64::from(both);
                    self.seen.shared += u64::from(!both && others.len() > 0);
                }
                self.seen.announced += u64::from(self.is_announced());
            }
            RwCommand::Renew { .. } => self.seen.renewals += 1,
            RwCommand::Lower { .. } | RwCommand::Other => {}
        }
        if !matches!(command, RwCommand::Renew { .. }) {
            for field in command.fields() {
                self.executed.insert((*field).to_owned(), serial);
            }
        }
    }

    /// Executes a command of Redisson. It must change no hold of another owner.
    fn execute_redissons(&mut self, delivery: &Delivery) -> Value {
        let before = self.hash().unwrap_or_default();
        let value = self.redis.execute(&delivery.args, self.found.now_ms());
        let after = self.hash().unwrap_or_default();
        self.found.note(|| {
            format!(
                "Redisson: {:?} -> {value:?}; {:?} {:?} until {:?}",
                &delivery.args[3..],
                after.mode,
                after.counts,
                after.until_ms
            )
        });
        let is_new = |field: &&String| !before.counts.contains_key(*field);
        if after.counts.keys().any(|it| is_new(&it)) {
            self.seen.redissons += 1;
            let beside = after.counts.keys().any(|it| !is_redissons(it));
            self.seen.redissons_beside += u64::from(beside);
        }
        for (field, count) in before.counts.iter().filter(|it| !is_redissons(it.0)) {
            // It deletes the fields of readers whose leases have ended.
            let is_over = self.over(&before).contains(field);
            let is_same = after.counts.get(field) == Some(count);
            self.found.claim(is_same || is_over, || {
                format!("Redisson changed {field}: {before:?} {after:?}")
            });
        }
        self.look_at_mode(&after);
        self.look();
        value
    }

    /// RW7: a command changes no other hold. It may remove readers whose leases have ended.
    fn compare(&mut self, command: &RwCommand<'_>, before: &Hash, after: &Hash, over: &[String]) {
        let own = command.fields();
        for (field, count) in &before.counts {
            let is_same = after.counts.get(field) == Some(count);
            if !is_same && !own.contains(&field.as_str()) && !over.contains(field) {
                self.found
                    .violated(format!("{command:?} changed {field}: {before:?} {after:?}"));
            }
        }
        for field in after.counts.keys() {
            let is_new = !before.counts.contains_key(field);
            if is_new && !own.contains(&field.as_str()) {
                self.found.violated(format!("{command:?} made {field}"));
            }
        }
    }

    /// The remaining time of a reader's longest lease, in ms. `None`: it has ended.
    fn reads_for(&self, field: &str, count: i64) -> Option<i64> {
        let now_ms = self.found.now_ms();
        let ends =
            (1..=count).filter_map(|n| self.redis.until_ms(&timeout_of_acquire(field, n), now_ms));
        ends.max().map(|ends| (ends - now_ms) as i64)
    }

    /// RW3: after an unlock that leaves readers, the key does not outlive their leases by much, or it
    /// lasts as long as before, and the lease of the ended hold was not near that. `mine`: the
    /// remaining lease of the ended hold.
    fn look_at_ttl(
        &mut self,
        command: &RwCommand<'_>,
        mine: Option<i64>,
        [before, after]: [&Hash; 2],
    ) {
        let RwCommand::Lower { field, .. } = command else {
            return;
        };
        let ended = before.counts.contains_key(*field) && !after.counts.contains_key(*field);
        let is_read = after.mode.as_deref() == Some("read");
        let (true, true, Some(until)) = (ended, is_read, after.until_ms) else {
            return;
        };
        let readers = after.counts.iter();
        let longest = readers
            .filter_map(|(field, count)| self.reads_for(field, *count))
            .max();
        let left = (until - self.found.now_ms()) as i64;
        let is_short = longest.is_some_and(|longest| left <= longest * 8 / 7 + 1);
        // Its whole lease was not shorter than the remaining one.
        let mine = mine.unwrap_or(0);
        let is_far = !field.ends_with(WRITER) && mine + mine / 4 < left;
        self.seen.trimmed += u64::from(before.until_ms > after.until_ms);
        let is_right = is_short || (is_far && before.until_ms == after.until_ms);
        self.found.claim(is_right, || {
            format!("{command:?} left {left} ms, and the longest lease has {longest:?}: {before:?}")
        });
    }

    /// The readers in the hash whose leases have ended.
    fn over(&self, hash: &Hash) -> Vec<String> {
        let now_ms = self.found.now_ms();
        let fields = hash.counts.keys();
        let readers = fields.filter(|field| !field.ends_with(WRITER));
        // A script sees no time left in the last millisecond.
        let is_over = |until: Option<u64>| until.is_none_or(|until| until <= now_ms);
        readers
            .filter(|field| is_over(self.redis.until_ms(&timeout_of(field), now_ms)))
            .cloned()
            .collect()
    }

    /// RW1.
    fn look_at_mode(&mut self, hash: &Hash) {
        let fields = || hash.counts.keys();
        let writers: Vec<&String> = fields().filter(|it| it.ends_with(WRITER)).collect();
        let is_right = match (hash.mode.as_deref(), &writers[..]) {
            (None, []) => hash.counts.is_empty(),
            (Some("read"), []) => !hash.counts.is_empty(),
            (Some("write"), [writer]) => fields().all(|it| owner_of(it) == owner_of(writer)),
            _ => false,
        };
        self.found
            .claim(is_right, || format!("the mode is wrong: {hash:?}"));
    }

    /// RW5: Redis has each valid hold up to its deadline, so a renewal finds it.
    fn wrong_with(&mut self, client: usize, hold: &Hold, hash: &Hash) -> Option<String> {
        let (core, clock) = &self.found.clients[client];
        let now = core.clock.now();
        let (phase, valid, deadline) = {
            let state = hold.state();
            (state.phase, state.is_valid(now), state.deadline)
        };
        let id = (client, hold.number());
        if matches!(phase, HoldPhase::Lost(_)) && self.lost.insert(id) {
            self.seen.losses += 1;
            let reads = core.holds.partner_of(hold.key(), hold.owner()).is_some();
            let writes = hold.key().mode() == Some(Mode::Write);
            self.seen.outlived += u64::from(writes && reads);
        }
        if !valid {
            return None;
        }
        if self.lost.contains(&id) {
            return Some(format!("hold {id:?} was lost and is valid again"));
        }
        let field = core.field(hold);
        let until = clock.at_server(deadline);
        if !hash.counts.contains_key(&field) {
            return Some(format!("{field} is believed in, and Redis has {hash:?}"));
        }
        let mut kept = vec![("its key", hash.until_ms)];
        if !field.ends_with(WRITER) {
            let timeout = self
                .redis
                .until_ms(&timeout_of(&field), self.found.now_ms());
            kept.push(("its timeout key", Some(timeout.unwrap_or(0))));
        }
        kept.into_iter().find_map(|(what, ends)| {
            let ends = ends.map_or(u64::MAX, |ends| (ends + 1) * 1_000_000);
            (until > ends).then(|| {
                let beyond = (until - ends) as f64 / 1e6;
                format!("{field} is believed in for {beyond} ms longer than {what}")
            })
        })
    }

    /// RW2: while a write hold is valid, no hold of another owner is valid.
    fn look_at_guards(&mut self) {
        let mut valid = Vec::new();
        for (core, _) in &self.found.clients {
            let now = core.clock.now();
            for hold in core.holds.all() {
                if hold.state().is_valid(now) {
                    valid.push(core.field(&hold));
                }
            }
        }
        let writer = valid.iter().find(|field| field.ends_with(WRITER));
        if let Some(writer) = writer {
            let is_right = valid.iter().all(|it| owner_of(it) == owner_of(writer));
            self.found
                .claim(is_right, || format!("a writer is not alone: {valid:?}"));
        }
    }

    fn is_announced(&self) -> bool {
        let names = self.redis.names(self.found.now_ms());
        names.iter().any(|name| name == ANNOUNCEMENT)
    }

    /// RW6: a writer is announced to readers only, or the readers would starve among writers.
    fn look_at_announcement(&mut self, was_announced: bool, before: &Hash) {
        if !was_announced && self.is_announced() {
            let is_right = before.mode.as_deref() == Some("read");
            self.found
                .claim(is_right, || format!("announced beside {before:?}"));
        }
    }

    /// The checks when no command is in flight and no job is pending.
    pub(super) fn look_at_rest(&mut self) {
        let Some(hash) = self.hash() else { return };
        let mut listed = HashSet::new();
        for (core, _) in &self.found.clients {
            for hold in core.holds.all() {
                let state = hold.state();
                let is_over = matches!(state.phase, HoldPhase::Lost(_))
                    && core.clock.now().since(state.deadline) > LATE;
                drop(state);
                let reads = core.holds.partner_of(hold.key(), hold.owner()).is_some();
                let is_outlived = hold.key().mode() == Some(Mode::Write) && reads;
                if !(is_outlived && is_over) {
                    listed.insert(core.field(&hold));
                }
            }
        }
        // Shortly before it expires, the client no longer lists a hold whose lease ends.
        let now_ms = self.found.now_ms();
        let ends = |until: Option<u64>| until.is_some_and(|it| it < now_ms + ENDS_MS);
        if ends(hash.until_ms) {
            return;
        }
        for field in hash.counts.keys() {
            let writes = field.ends_with(WRITER);
            let reads_no_more = !writes && {
                let until = self.redis.until_ms(&timeout_of(field), now_ms);
                until.is_none() || ends(until)
            };
            let is_known = listed.contains(field)
                || self.left.contains(owner_of(field))
                || self.reached_twice.contains(field)
                || reads_no_more;
            if !is_known && self.executed.get(field).copied() == self.network.last_sent(field) {
                self.found
                    .violated(format!("no owner holds {field}, and it was not undone"));
            }
        }
    }

    /// RW4.
    pub(super) fn look_whether_empty(&mut self) {
        let names = self.redis.names(self.found.now_ms());
        self.found
            .claim(names.is_empty(), || format!("left behind: {names:?}"));
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
        let command = RwCommand::of(&delivery.args);
        let before = self.hash().unwrap_or_default();
        let over = self.over(&before);
        let mine = match command {
            RwCommand::Lower { field, .. } => self.reads_for(field, 1),
            _ => None,
        };
        let was_announced = self.is_announced();
        let value = match delivery.args[0].as_str() {
            "CLIENT" if delivery.args[1] == "KILL" => self.network.kill(&delivery.args[3]),
            _ => self.redis.execute(&delivery.args, now_ms),
        };
        let after = self.hash().unwrap_or_default();
        self.seen.executed += 1;
        self.seen.copies += u64::from(delivery.copy);
        self.found.note(|| {
            let copy = if delivery.copy { " (again)" } else { "" };
            format!(
                "#{} on {}{copy}: {command:?} -> {value:?}; {:?} {:?} until {:?}",
                delivery.serial, delivery.connection, after.mode, after.counts, after.until_ms,
            )
        });
        if delivery.copy {
            match command {
                RwCommand::Acquire { upgrades: true, .. } => self.seen.copied_upgrades += 1,
                RwCommand::Lower { is_inner: true, .. } => self.seen.copied_inner += 1,
                _ => {}
            }
            self.reached_twice
                .extend(super::command::counted(&delivery.args));
        }
        if !matches!(&value, Value::ServerError(_)) {
            self.account(&command, delivery.serial, &before, &after);
        }
        self.compare(&command, &before, &after, &over);
        self.look_at_mode(&after);
        self.look_at_ttl(&command, mine, [&before, &after]);
        self.look_at_announcement(was_announced, &before);
        self.look();
        value
    }

    fn look(&mut self) {
        let hash = self.hash().unwrap_or_default();
        for client in 0..self.found.clients.len() {
            for hold in self.found.clients[client].0.holds.all() {
                if let Some(wrong) = self.wrong_with(client, &hold, &hash) {
                    self.found.violated(wrong);
                }
            }
        }
        self.look_at_guards();
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

/// The client and the owner of a field.
fn owner_of(field: &str) -> &str {
    let field = field.strip_suffix(WRITER).unwrap_or(field);
    field.rsplit_once('.').map_or(field, |(owner, _)| owner)
}

/// The settlement of a write hold that its owner's read hold outlives has been answered by then.
const LATE: Duration = Duration::from_millis(700);

/// Longer than the client's deduction from the longest lease for clocks that run at different rates.
const ENDS_MS: u64 = 60;
