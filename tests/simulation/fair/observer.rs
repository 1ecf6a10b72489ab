//! Compares the clients with the server, and checks invariants FA1 to FA8 and 1 to 7 of the design.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::command::{FairCommand, KEY, LEADER_KEY, PLACES, PRESENCE, QUEUE};
use super::contest::HoldName;
use super::election::{Shown, Terms};
use super::patience::Patience;
use super::plan::Plan;
use super::task::Report;
use super::vacancy::{Candidates, Vacancy};
use super::watches::{StreamId, Watches};
use crate::hold::{Hold, HoldPhase};
use crate::simulation::findings::Findings;
use crate::simulation::kept::{Kept, KeptSeen};
use crate::simulation::keys::Hash;
use crate::simulation::network::{Delivery, Faults, Network};
use crate::simulation::observer::is_redissons;
use crate::simulation::redis::Redis;
use crate::simulation::world::Observes;

pub(super) struct Observer {
    pub(super) redis: Redis,
    network: Arc<Network>,
    pub(super) found: Findings,
    patience: Patience,
    /// The fields that each wait has used.
    waits: HashMap<String, u64>,
    /// The first waiter of a free lock, and the time since which it is the first.
    free_since: Option<(String, u64)>,
    /// Set in a run without faults.
    vacancy: Option<Vacancy>,
    /// The terms of an election.
    terms: Terms,
    watches: Watches,
    kept: Kept,
    limits: Limits,
    /// The command by which each field asked for a place.
    entered_by: HashMap<String, u64>,
    lost: HashSet<(usize, u64)>,
    /// The last executed command about each hold.
    executed: HashMap<String, u64>,
    /// The last sent one of these commands.
    newest: HashMap<String, u64>,
    /// Fields that took a place by a command that had run before, or that ran after a later one: others
    /// pass them once their presence has expired.
    late: HashSet<String>,
    /// Fields that a command deleted, and those that a force unlock deleted.
    deleted: HashSet<String>,
    forced: HashSet<String>,
    pub(super) seen: Seen,
}

/// How often each case occurred that the simulation is meant to test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) executed: u64,
    pub(super) copies: u64,
    /// Waiters that took a place.
    pub(super) entered: u64,
    pub(super) grants: u64,
    pub(super) transfers: u64,
    /// Waiters that released their places.
    pub(super) left: u64,
    /// Waiters that lost their places because they sent nothing.
    pub(super) dropped: u64,
    pub(super) losses: u64,
    pub(super) forced: u64,
    /// Commands of Redisson.
    pub(super) redissons: u64,
    /// Grants to a waiter of Redisson that had a place.
    pub(super) redissons_turns: u64,
    /// Grants to a waiter of lockdog while one of Redisson waits behind it.
    pub(super) before_redisson: u64,
    /// Clients that died, and those of them that held the lock.
    pub(super) deaths: u64,
    pub(super) dead_leaders: u64,
    /// Locks without a holder for which calls waited, in runs without faults, and those whose holder
    /// had died.
    pub(super) vacancies: u64,
    pub(super) after_deaths: u64,
    pub(super) terms: u64,
    pub(super) counters_lost: u64,
    pub(super) proclaimed: u64,
    /// Answers of the server with the leader's value.
    pub(super) shown: u64,
    /// Calls that returned a leader.
    pub(super) asked: u64,
    pub(super) erased: u64,
    /// Leaders that streams reported, those that followed others, those after a pause, and those whose time was bound.
    pub(super) observed: u64,
    pub(super) changes: u64,
    pub(super) resumed: u64,
    pub(super) in_time: u64,
    /// Counts of locks with a least time.
    pub(super) least: KeptSeen,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.executed += other.executed;
        self.copies += other.copies;
        self.entered += other.entered;
        self.grants += other.grants;
        self.transfers += other.transfers;
        self.left += other.left;
        self.dropped += other.dropped;
        self.losses += other.losses;
        self.forced += other.forced;
        self.redissons += other.redissons;
        self.redissons_turns += other.redissons_turns;
        self.before_redisson += other.before_redisson;
        self.deaths += other.deaths;
        self.dead_leaders += other.dead_leaders;
        self.vacancies += other.vacancies;
        self.after_deaths += other.after_deaths;
        self.terms += other.terms;
        self.counters_lost += other.counters_lost;
        self.proclaimed += other.proclaimed;
        self.shown += other.shown;
        self.asked += other.asked;
        self.erased += other.erased;
        self.observed += other.observed;
        self.changes += other.changes;
        self.resumed += other.resumed;
        self.in_time += other.in_time;
        self.least.add(&other.least);
    }
}

/// The limits in a run without faults.
struct Limits {
    without_faults: bool,
    silence_ms: u64,
    poll_cap_ms: u64,
}

impl Limits {
    fn of(plan: &Plan) -> Self {
        let world = &plan.world;
        let kill = world.faults.kill;
        let without = Faults {
            kill,
            ..Faults::default()
        };
        Self {
            without_faults: world.faults == without && world.pauses.is_empty(),
            silence_ms: world.silence_ms,
            poll_cap_ms: world.poll_cap_ms,
        }
    }

    /// How long one waiter may be the first and not take the free lock. `is_known`: another waiter of
    /// its client is polled, and finds that the first one is not polled. Without such a waiter, others
    /// wait until its presence expires.
    fn longest_free_ms(&self, is_known: bool) -> u64 {
        let found = TAKEN_OVER_MS + 3 * self.poll_cap_ms;
        match is_known {
            true => found,
            false => found + self.silence_ms,
        }
    }
}

/// The state of the lock on the server.
#[derive(Debug)]
pub(super) struct LockState {
    pub(super) holders: BTreeMap<String, i64>,
    pub(super) until_ms: Option<u64>,
    pub(super) queue: Vec<String>,
    places: BTreeMap<String, f64>,
    presence: BTreeMap<String, f64>,
}

impl LockState {
    /// Whether a waiter has shown that it is present. A waiter of Redisson counts as present until the
    /// time of its score.
    fn is_there(&self, field: &str, now_ms: u64) -> bool {
        let until = match is_redissons(field) {
            true => self.places.get(field),
            false => self.presence.get(field),
        };
        until.is_some_and(|until| *until > now_ms as f64)
    }
}

impl Observer {
    pub(super) fn new(
        redis: Redis,
        network: Arc<Network>,
        found: Findings,
        patience: Patience,
        plan: &Plan,
    ) -> Self {
        let limits = Limits::of(plan);
        Self {
            redis,
            network,
            found,
            patience,
            waits: HashMap::new(),
            free_since: None,
            vacancy: limits
                .without_faults
                .then(|| Vacancy::new(plan, TAKEN_OVER_MS)),
            terms: Terms::new(plan.is_election),
            watches: Watches::new(&plan.world),
            kept: Kept::new(&plan.world),
            limits,
            entered_by: HashMap::new(),
            lost: HashSet::new(),
            executed: HashMap::new(),
            newest: HashMap::new(),
            late: HashSet::new(),
            deleted: HashSet::new(),
            forced: HashSet::new(),
            seen: Seen::default(),
        }
    }

    pub(super) fn process(&mut self, report: Report) {
        match report {
            Report::Says(line) => self.found.note(|| line),
            Report::Released(name) => {
                let field = self.field_of(name);
                self.released(&field);
            }
            Report::Keeps(name, least) => {
                let (field, now) = (self.field_of(name), self.network.now());
                self.found
                    .note(|| format!("{field} is kept for {} ms at least", least.ms));
                if let Err(wrong) = self.kept.promise(&field, least, now) {
                    self.found.violated(wrong);
                }
            }
            Report::Kept(name, rest) => {
                let field = self.field_of(name);
                self.look_at_kept(&field, rest);
            }
            Report::Leads { owner, term } => {
                let field = self.terms.field_of(term);
                let is_own = field.is_some_and(|field| owner_of(field) == owner);
                self.found
                    .claim(is_own, || format!("{owner} leads in the term {term}"));
            }
            Report::Asked { began, leader } => self.asked(began, &leader),
            Report::Observes(stream) => self.watches.begin(stream, self.found.now_ms()),
            Report::LooksAway(stream) => self.watches.pause(stream),
            Report::Observed {
                stream,
                began,
                leader,
            } => self.observed(stream, began, leader),
            Report::Erases => {
                let now = self.found.now_ms();
                let was = self.terms.erase(&mut self.redis, now);
                self.seen.erased += u64::from(was);
                self.found
                    .note(|| "what the leader said is deleted".to_owned());
            }
        }
    }

    /// This client has died.
    pub(super) fn die(&mut self, client: usize) {
        self.found.note(|| format!("client{client} dies"));
        self.found.dead = Some(client);
        self.watches.die(client);
        self.seen.deaths += 1;
        let mut holders = self.on_server().holders.into_keys();
        let led = holders.any(|it| self.found.is_of_dead(&it));
        self.seen.dead_leaders += u64::from(led);
    }

    fn asked(&mut self, began: u64, leader: &Option<Shown>) {
        self.seen.asked += u64::from(leader.is_some());
        let is_answer = self.terms.is_answer_since(began, leader);
        self.found.claim(is_answer, || {
            format!("a call returned {leader:?}, which the server did not answer")
        });
    }

    fn observed(&mut self, stream: StreamId, began: u64, leader: Option<Shown>) {
        self.found.note(|| format!("{stream:?}: {leader:?}"));
        let is_answer = self.terms.is_answer_since(began, &leader);
        self.found.claim(is_answer, || {
            format!("{stream:?} reported {leader:?}, which the server did not answer")
        });
        let is_outdated = leader.as_ref().is_some_and(|it| self.terms.is_outdated(it));
        match self.watches.report(stream, leader, is_outdated) {
            Ok(news) => {
                self.seen.observed += 1;
                self.seen.changes += u64::from(news.is_change);
                self.seen.resumed += u64::from(news.is_resumed);
                self.seen.in_time += u64::from(news.is_change && self.limits.without_faults);
            }
            Err(wrong) => self.found.violated(wrong),
        }
    }

    /// Sends the published messages.
    fn send_published(&mut self) {
        for (channel, text) in self.redis.take_published() {
            self.network.publish(&channel, &text);
            if channel == LEADER_KEY {
                self.watches.note_published(self.found.now_ms());
            }
        }
    }

    /// In a run without faults a stream reports a change in time.
    fn look_at_watches(&mut self, on_server: &LockState) {
        if self.watches.are_none() || !self.limits.without_faults {
            return;
        }
        let now = self.found.now_ms();
        let leader = Shown::now(&self.redis, &on_server.holders, now);
        if let Err(wrong) = self.watches.look(leader, now) {
            self.found.violated(wrong);
        }
    }

    fn field_of(&self, name: HoldName) -> String {
        match name {
            HoldName::Field(field) => field,
            HoldName::Term(term) => self.terms.field_of(term).unwrap_or_default().to_owned(),
        }
    }

    /// An unlock returned that the lock is kept for this time.
    fn look_at_kept(&mut self, field: &str, rest: Duration) {
        self.seen.least.kept += 1;
        let hash = self.redis.hash(KEY, self.found.now_ms());
        let (forced, now) = (self.forced.contains(field), self.network.now());
        let is_there = self
            .kept
            .is_there_for(field, rest, hash.as_ref(), forced, now);
        self.found.claim(is_there, || {
            format!("{field} is said to be kept for {rest:?}: {hash:?}")
        });
    }

    fn see_kept(
        &mut self,
        command: &FairCommand<'_>,
        delivery: &Delivery,
        value: &Value,
        [before, after]: [&LockState; 2],
    ) {
        let hash = |on_server: &LockState| Hash {
            counts: on_server.holders.clone(),
            mode: None,
            until_ms: on_server.until_ms,
        };
        let (before, after, now) = (hash(before), hash(after), self.network.now());
        let hashes = [Some(&before), Some(&after)];
        let command = command.keeping();
        match self.kept.see(&command, delivery, value, hashes, now) {
            Ok(lingered) => lingered.iter().for_each(|it| self.seen.least.count(it)),
            Err(wrong) => self.found.violated(wrong),
        }
    }

    fn released(&mut self, field: &str) {
        let is_there = self.on_server().holders.contains_key(field);
        let has_expired = self.kept.has_lingered(field) && !is_there;
        let is_deleted = self.deleted.contains(field) || has_expired;
        self.found
            .claim(is_deleted, || format!("{field} is said to be released"));
    }

    fn on_server(&self) -> LockState {
        let now = self.found.now_ms();
        let hash = self.redis.hash(KEY, now).unwrap_or_default();
        let (queue, places) = self.redis.queued(QUEUE, PLACES, now);
        LockState {
            holders: hash.counts,
            until_ms: hash.until_ms,
            queue,
            places,
            presence: self.redis.queued(QUEUE, PRESENCE, now).1,
        }
    }

    /// FA1 and FA2, for the commands of every client.
    fn look_at_server(&mut self, after: &LockState) {
        let mut wrong = |what: String| self.found.violated(what);
        if after.holders.len() > 1 {
            wrong(format!("there are two holders: {:?}", after.holders));
        }
        let listed: HashSet<&String> = after.queue.iter().collect();
        if listed.len() != after.queue.len() || listed != after.places.keys().collect() {
            wrong(format!("left {:?} and {:?}", after.queue, after.places));
        }
    }

    /// Executes a command of Redisson. It removes none of lockdog's waiters, and does not free another's lock.
    fn execute_redissons(&mut self, delivery: &Delivery) -> Value {
        let before = self.on_server();
        self.look_at_vacancy(&before);
        let value = self.redis.execute(&delivery.args, self.found.now_ms());
        let after = self.on_server();
        self.found.note(|| {
            format!(
                "Redisson: {:?} -> {value:?}; {:?} holds, {:?} wait",
                &delivery.args[3..],
                after.holders.keys(),
                after.queue
            )
        });
        self.seen.redissons += 1;
        let is_granted = |field: &&String| {
            before.places.contains_key(*field) && after.holders.contains_key(*field)
        };
        let own = before.queue.iter().filter(|it| is_redissons(it));
        self.seen.redissons_turns += own.filter(is_granted).count() as u64;
        for field in before.queue.iter().chain(before.holders.keys()) {
            let is_in = after.queue.contains(field) || after.holders.contains_key(field);
            self.found.claim(is_in || is_redissons(field), || {
                format!("Redisson removed {field}: {before:?}")
            });
        }
        self.look_at_server(&after);
        self.send_published();
        self.look();
        value
    }

    fn compare(&mut self, command: &FairCommand<'_>, before: &LockState, after: &LockState) {
        let now = self.found.now_ms();
        self.look_at_server(after);
        let waits = before.queue.iter().filter(|it| self.is_patient(it));
        let patient: HashSet<&String> = waits.collect();
        let mut wrong = |what: String| self.found.violated(format!("{command:?} {what}"));
        let listed: HashSet<&String> = after.queue.iter().collect();
        // FA3.
        let granted: Vec<&String> = after
            .holders
            .keys()
            .filter(|field| !before.holders.contains_key(*field))
            .collect();
        for field in &granted {
            let is_there = |it: &&String| before.is_there(it, now) || command.shows(it);
            let first = before.queue.iter().find(is_there);
            if first.is_some_and(|first| first != *field) {
                wrong(format!("granted {field}, and {first:?} is first"));
            }
            if !command.fields().contains(&field.as_str()) {
                wrong(format!("granted {field}"));
            }
        }
        // FA4: the waiters that stay keep their order, and new ones join at the end.
        let stay: Vec<&String> = before
            .queue
            .iter()
            .filter(|it| listed.contains(it))
            .collect();
        if !after.queue.iter().take(stay.len()).eq(stay.iter().copied()) {
            wrong(format!("made {:?} of {:?}", after.queue, before.queue));
        }
        for field in before.queue.iter().filter(|it| !listed.contains(it)) {
            let is_own = command.fields().contains(&field.as_str());
            if !is_own && before.is_there(field, now) {
                wrong(format!("removed {field}, which is there"));
            }
            // Each poll of a waiter comes from its place. With a short poll cap, other waiters may
            // count a waiter as not polled while it pauses between two steps.
            let is_patient = self.limits.poll_cap_ms > PAUSES_MS && patient.contains(field);
            if is_own && is_patient && before.is_there(field, now) && !granted.contains(&field) {
                wrong(format!("gave the place of {field} back, which still waits"));
            }
        }
    }

    fn account(
        &mut self,
        command: &FairCommand<'_>,
        serial: u64,
        before: &LockState,
        after: &LockState,
    ) {
        let now = self.found.now_ms();
        for field in after.queue.iter().filter(|it| !before.queue.contains(it)) {
            self.seen.entered += 1;
            if self.newest.get(field).is_some_and(|last| *last >= serial) {
                self.late.insert(field.clone());
            }
        }
        let granted = after
            .holders
            .keys()
            .any(|it| !before.holders.contains_key(it));
        self.seen.grants += u64::from(granted);
        let awaits = after.queue.iter().any(|it| is_redissons(it));
        self.seen.before_redisson += u64::from(granted && awaits);
        self.seen.transfers +=
            u64::from(granted && matches!(command, FairCommand::Transfer { .. }));
        for field in before.queue.iter().filter(|it| !after.queue.contains(it)) {
            match before.is_there(field, now) {
                true => self.seen.left += u64::from(!after.holders.contains_key(field)),
                false => self.seen.dropped += 1,
            }
        }
        for field in before
            .holders
            .keys()
            .filter(|it| !after.holders.contains_key(*it))
        {
            self.deleted.insert(field.clone());
            if matches!(command, FairCommand::Force { .. }) {
                self.forced.insert(field.clone());
                self.seen.forced += 1;
            }
        }
        if let FairCommand::Look {
            field,
            mode: "enter",
            ..
        } = command
        {
            let first = *self.entered_by.entry((*field).to_owned()).or_insert(serial);
            // A call that was not polled for a while finds that its command has timed out, and sends it
            // again.
            if first != serial && self.limits.without_faults && self.is_patient(field) {
                self.found
                    .violated(format!("{field} asks for a place for the second time"));
            }
        }
        if !matches!(command, FairCommand::Renew { .. }) {
            for field in command.fields() {
                self.executed.insert(field.to_owned(), serial);
                let newest = self.newest.entry(field.to_owned()).or_default();
                *newest = serial.max(*newest);
            }
        }
    }

    /// LE1 and LE3.
    fn look_at_terms(
        &mut self,
        command: &FairCommand<'_>,
        value: &Value,
        had_value: bool,
        [before, after]: [&LockState; 2],
    ) {
        let holders = [&before.holders, &after.holders];
        match self.terms.see_grant(command, value, holders) {
            Ok(begins) => self.seen.terms += u64::from(begins),
            Err(wrong) => self.found.violated(wrong),
        }
        let (redis, now_ms) = (&self.redis, self.found.now_ms());
        let said =
            self.terms
                .see_proclaimed(command, value, &after.holders, had_value, redis, now_ms);
        match said {
            Ok(is_published) => self.seen.proclaimed += u64::from(is_published),
            Err(wrong) => self.found.violated(wrong),
        }
        if *command == FairCommand::AskLeader {
            let (believed, now) = (self.believed(), self.network.now());
            let holders = &after.holders;
            match self.terms.see_leader(value, holders, &believed, now) {
                Ok(is_shown) => self.seen.shown += u64::from(is_shown),
                Err(wrong) => self.found.violated(wrong),
            }
        }
    }

    /// The holds that their clients consider valid.
    fn believed(&self) -> Vec<String> {
        let mut believed = Vec::new();
        for (_, core) in self.found.living() {
            let now = core.clock.now();
            let holds = core.holds.all();
            let valid = holds.iter().filter(|hold| hold.state().is_valid(now));
            believed.extend(valid.map(|hold| core.field(hold)));
        }
        believed
    }

    /// LE4. The check runs before a command, too, because the command may end the state that is
    /// checked.
    fn look_at_vacancy(&mut self, on_server: &LockState) {
        let Some(mut vacancy) = self.vacancy.take() else {
            return;
        };
        let looked = vacancy.look(self.found.now_ms(), on_server, self);
        self.vacancy = Some(vacancy);
        match looked {
            Ok(None) => {}
            Ok(Some(after_death)) => {
                self.seen.vacancies += 1;
                self.seen.after_deaths += u64::from(after_death);
            }
            Err(wrong) => self.found.violated(wrong),
        }
    }

    /// Whether the call waits, and its future is polled until the end of the wait. The waiter continues
    /// with another field when its client deleted this one, which a grant without an answer had made,
    /// by a force unlock.
    fn is_patient(&self, field: &str) -> bool {
        self.patience.is_of(&self.waits, field)
            && !self.late.contains(field)
            && !self.forced.contains(field)
    }

    /// The checks without faults: a waiter that is polled shows that it is present (FA4), and a lock
    /// for which it waits does not stay free (FA6, FA7).
    fn look_at_patient_waiters(&mut self, on_server: &LockState) {
        let now = self.found.now_ms();
        let waits = on_server.queue.iter().filter(|it| self.is_patient(it));
        let patient: Vec<String> = waits.cloned().collect();
        let absent = patient.iter().find(|it| !on_server.is_there(it, now));
        // A contender may be abandoned during its poll. It takes this time until another waiter has its
        // role.
        if self.limits.silence_ms >= TAKEN_OVER_MS
            && let Some(absent) = absent
        {
            self.found.violated(format!(
                "{absent} waits, and does not show it: {on_server:?}"
            ));
        }
        let head = on_server
            .queue
            .iter()
            .find(|it| on_server.is_there(it, now));
        // A waiter of Redisson takes the lock at its next poll, or never.
        let head = head.filter(|it| !is_redissons(it));
        let Some(head) = head.filter(|_| on_server.holders.is_empty() && !patient.is_empty())
        else {
            self.free_since = None;
            return;
        };
        let since = match &self.free_since {
            Some((first, since)) if first == head => *since,
            _ => now,
        };
        self.free_since = Some((head.clone(), since));
        let is_known = patient.iter().any(|it| client_of(it) == client_of(head));
        let longest = self.limits.longest_free_ms(is_known);
        self.found.claim(now - since <= longest, || {
            format!("free and awaited for {} ms: {on_server:?}", now - since)
        });
    }

    fn look_at_hold(&mut self, client: usize, hold: &Hold, on_server: &LockState) {
        let (core, clock) = &self.found.clients[client];
        let field = core.field(hold);
        let (phase, valid, deadline) = {
            let state = hold.state();
            (
                state.phase,
                state.is_valid(core.clock.now()),
                state.deadline,
            )
        };
        let until = clock.at_server(deadline) as f64 / 1e6;
        if phase == HoldPhase::Pending
            && let Some(wait) = self.patience.wait_of(owner_of(&field))
        {
            self.waits.entry(field.clone()).or_insert(wait);
        }
        let id = (client, hold.number());
        if matches!(phase, HoldPhase::Lost(_)) && self.lost.insert(id) {
            self.seen.losses += 1;
        }
        // The holder does not learn of a force unlock before its next renewal.
        if !valid || self.forced.contains(&field) {
            return;
        }
        if self.lost.contains(&id) {
            self.found
                .violated(format!("{field} was lost and is valid again"));
        }
        let until_ms = on_server.until_ms.unwrap_or(u64::MAX) as f64;
        if !on_server.holders.contains_key(&field) {
            self.found.violated(format!(
                "{field} is believed in, and Redis has {on_server:?}"
            ));
        } else if until > until_ms + 1.0 {
            let beyond = until - until_ms;
            self.found.violated(format!(
                "{field} is believed in for {beyond} ms longer than Redis keeps it"
            ));
        }
    }

    /// The checks when no command is in flight and no job is pending.
    pub(super) fn look_at_rest(&mut self) {
        let mut listed = HashSet::new();
        for (_, core) in self.found.living() {
            listed.extend(core.holds.all().iter().map(|hold| core.field(hold)));
        }
        let on_server = self.on_server();
        for field in on_server.queue.iter().chain(on_server.presence.keys()) {
            let is_undone = self.executed.get(field).copied() == self.network.last_sent(field);
            let is_known =
                listed.contains(field) || is_redissons(field) || self.found.is_of_dead(field);
            if !is_known && is_undone && !self.late.contains(field) {
                self.found
                    .violated(format!("no waiter has the place of {field}"));
            }
        }
    }

    /// How long a place of Redisson lasts at most from now on.
    pub(super) fn redissons_last_ms(&self) -> u64 {
        let places = self.on_server().places;
        let own = places.into_iter().filter(|(field, _)| is_redissons(field));
        let last = own.map(|(_, ends)| ends).fold(0.0, f64::max);
        (last as u64).saturating_sub(self.found.now_ms())
    }

    /// The checks when every lease has ended.
    pub(super) fn look_at_the_end(&mut self) {
        let living = self.found.living();
        let left: usize = living.map(|(_, core)| core.holds.all().len()).sum();
        self.found
            .claim(left == 0, || format!("the clients still list {left} holds"));
    }

    /// FA8: the last acquires have removed the entries that late commands left.
    pub(super) fn look_whether_all_left(&mut self) {
        let on_server = self.on_server();
        let is_empty = on_server.holders.is_empty() && on_server.queue.is_empty();
        self.found
            .claim(is_empty, || format!("left is {on_server:?}"));
        // LE3: a leader's value ends with its hold.
        let said = self.redis.text(LEADER_KEY, self.found.now_ms());
        self.found.claim(said.is_none(), || {
            format!("no client leads, and the value is {said:?}")
        });
    }
}

impl Candidates for Observer {
    fn is_active(&self, field: &str) -> bool {
        self.is_patient(field)
    }

    fn is_dead(&self, field: &str) -> bool {
        self.found.is_of_dead(field)
    }

    fn is_redissons(&self, field: &str) -> bool {
        is_redissons(field)
    }
}

impl Observes for Observer {
    fn execute(&mut self, delivery: &Delivery) -> Value {
        if delivery.is_redissons {
            return self.execute_redissons(delivery);
        }
        let now_ms = self.found.now_ms();
        let command = FairCommand::of(&delivery.args);
        if self.terms.lose_counter(&mut self.redis, now_ms) {
            self.seen.counters_lost += 1;
            self.found.note(|| "the counter is deleted".to_owned());
        }
        let before = self.on_server();
        let had_value = self.redis.exists(LEADER_KEY, now_ms);
        self.look_at_vacancy(&before);
        let value = match self.network.execute(delivery) {
            Some(value) => value,
            None => self.redis.execute(&delivery.args, now_ms),
        };
        let after = self.on_server();
        self.seen.executed += 1;
        self.seen.copies += u64::from(delivery.copy);
        self.found.note(|| {
            let copy = if delivery.copy { " (again)" } else { "" };
            format!(
                "#{} on {}{copy}: {command:?} -> {value:?}; {:?} holds, {:?} wait",
                delivery.serial,
                delivery.connection,
                after.holders.keys(),
                after.queue
            )
        });
        self.compare(&command, &before, &after);
        if let (FairCommand::Look { field, .. }, Value::Int(-5)) = (&command, &value) {
            // The waiter has lost its place, and asks for another one.
            self.entered_by.remove(*field);
        }
        // A client sends a script again that the server does not have. A refused proclamation is checked, too.
        let is_unknown = matches!(&value, Value::ServerError(error) if error.code() != "LATERTERM");
        if !is_unknown {
            self.account(&command, delivery.serial, &before, &after);
            self.look_at_terms(&command, &value, had_value, [&before, &after]);
            self.see_kept(&command, delivery, &value, [&before, &after]);
        }
        self.send_published();
        self.look();
        value
    }

    fn look(&mut self) {
        let on_server = self.on_server();
        let living = self.found.living();
        let numbers: Vec<usize> = living.map(|(number, _)| number).collect();
        for client in numbers {
            for hold in self.found.clients[client].0.holds.all() {
                self.look_at_hold(client, &hold, &on_server);
            }
        }
        if self.limits.without_faults {
            self.look_at_patient_waiters(&on_server);
        }
        self.look_at_vacancy(&on_server);
        self.look_at_watches(&on_server);
        if self.kept.is_used() {
            let hash = self.redis.hash(KEY, self.found.now_ms());
            let looked = self
                .kept
                .look(hash.as_ref(), &self.forced, self.network.now());
            if let Err(wrong) = looked {
                self.found.violated(wrong);
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

fn client_of(field: &str) -> &str {
    field.split_once(':').map_or(field, |(client, _)| client)
}

/// How long a waiter may pause between its steps.
const PAUSES_MS: u64 = 160;

/// The command timeout, a poll cap, the time for which a waiter counts as present, and the client's
/// random additions to them.
const TAKEN_OVER_MS: u64 = 1_700;

/// The owner in a field, `<client uuid>:<owner>.<number of the hold>`.
pub(super) fn owner_of(field: &str) -> &str {
    let owner = field.split_once(':').map_or(field, |(_, owner)| owner);
    owner.rsplit_once('.').map_or(owner, |(owner, _)| owner)
}
