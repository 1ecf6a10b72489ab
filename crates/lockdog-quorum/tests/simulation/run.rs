//! One run: the clients and instances of a plan, the planned faults, and the observer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::client::Client;
use super::instance::Instance;
use super::observer::{self, SWEEP_MS, Sweeper};
use super::plan::{Keeps, Plan, What};
use super::seen::{Seen, Sight};
use super::world::{Command, Event, Reply, Request, World};
use crate::quarantine;

/// The outcome of a run.
pub(super) struct Outcome {
    pub(super) violation: Option<String>,
    pub(super) seen: Seen,
    pub(super) trace: Vec<String>,
}

pub(super) fn run(plan: &Plan, traced: bool) -> Outcome {
    let mut run = Run::new(plan, traced);
    let ended = catch_unwind(AssertUnwindSafe(|| run.go()));
    let world = &mut run.world;
    world.claim(ended.is_ok(), || "it panicked".to_owned());
    Outcome {
        violation: world.violation.take(),
        seen: world.seen.clone(),
        trace: world.trace(),
    }
}

struct Run<'a> {
    world: World<'a>,
    clients: Vec<Client<'a>>,
    instances: Vec<Instance>,
    sweeper: Sweeper,
    is_ending: bool,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, traced: bool) -> Self {
        let world = World::new(plan, traced);
        let max_lease = Duration::from_millis(plan.longest_lease_ms());
        let quarantine = plan.epochs.then_some(max_lease);
        let walls = plan.walls.iter();
        let scripts = plan.scripts.iter().enumerate();
        Self {
            clients: scripts
                .map(|(number, script)| Client::new(number, script, &world))
                .collect(),
            instances: walls.map(|wall| Instance::new(*wall, quarantine)).collect(),
            world,
            sweeper: Sweeper::default(),
            is_ending: false,
        }
    }

    fn go(&mut self) {
        let plan = self.world.plan;
        for (index, planned_fault) in plan.planned_faults.iter().enumerate() {
            self.world
                .at(ns(planned_fault.at_ms), Event::PlannedFault(index));
        }
        self.world.at(ns(plan.calm_ms), Event::Calm);
        self.world.at(ns(plan.finish_ms), Event::Finish);
        for index in 0..self.clients.len() {
            self.clients[index].go_on(&mut self.world);
            self.look(index);
        }
        while self.world.violation.is_none() {
            let Some(event) = self.world.next() else {
                return;
            };
            if matches!(event, Event::End) {
                return observer::look_at_the_end(&self.instances, &mut self.world);
            }
            self.happen(event);
            let events = self.world.seen.events;
            self.world
                .claim(events < MOST_EVENTS, || "it goes on and on".to_owned());
        }
    }

    fn happen(&mut self, event: Event) {
        let world = &mut self.world;
        if let Some(index) = event.client() {
            let client = &mut self.clients[index];
            if client.dead {
                return;
            }
            if client.is_frozen(world) {
                let until = client.frozen_until;
                return world.at(until, event);
            }
            world.note(|| format!("{event:?}"));
            client.handle(event, world);
            self.look(index);
            return;
        }
        match event {
            Event::Request(request) => self.deliver(request),
            Event::PlannedFault(index) => {
                let what = world.plan.planned_faults[index].what;
                world.note(|| format!("{what:?}"));
                self.inject(what);
            }
            Event::Start { instance } => self.start(instance),
            Event::Thaw { client } => {
                // Before it receives anything, it continues with its pending work.
                let client = &self.clients[client];
                if !client.dead {
                    client.write(world);
                }
            }
            Event::Calm => {
                world.note(|| "calm".to_owned());
                world.be_calm();
                for instance in 0..self.instances.len() {
                    self.start(instance);
                }
                let at = self.world.now + ns(AFTER_CALM_MS);
                self.world.at(at, Event::Sweep);
            }
            Event::Finish => self.finish(),
            Event::Sweep => {
                self.sweeper.sweep(&self.clients, &self.instances, world);
                let at = self.world.now + ns(SWEEP_MS);
                self.world.at(at, Event::Sweep);
            }
            Event::Due => observer::look_at_progress(&self.clients, world),
            Event::End | Event::Reply { .. } | Event::Message { .. } | Event::Timer { .. } => {}
        }
    }

    fn look(&mut self, client: usize) {
        let (clients, instances) = (&mut self.clients, &self.instances);
        observer::look_at_client(client, clients, instances, &mut self.world);
        self.end_if_done();
    }

    fn end_if_done(&mut self) {
        let plan = self.world.plan;
        if !self.is_ending && self.clients.iter().all(Client::is_done) {
            self.is_ending = true;
            // Messages sent before the calm phase still arrive, and their grants last for a lease.
            let latest = ns(plan.calm_ms + 2 * plan.watchdog_lease_ms + 10);
            let lease = plan.longest_lease_ms() + 2 * plan.watchdog_lease_ms;
            let at = self.world.now.max(latest) + ns(lease + lease / 50);
            self.world.at(at, Event::End);
        }
    }

    fn deliver(&mut self, request: Request) {
        let world = &mut self.world;
        let instance = &mut self.instances[request.instance];
        if instance.paused_until > world.now {
            let until = instance.paused_until;
            return world.at(until, Event::Request(request));
        }
        if !instance.up {
            return;
        }
        if let Some(identity) = request.identity
            && identity != instance.identity
        {
            return world.reset(request.client, request.instance, identity);
        }
        let (reply, frees) = instance.execute(request.command, world.now);
        world.note(|| format!("{request:?} -> {reply:?}"));
        if let (Command::Take { id, .. }, Reply::Taken(_)) = (request.command, reply)
            && world.is_closed(id)
        {
            world.seen.saw(Sight::Orphan);
        }
        world.reply(&request, reply);
        if frees {
            for client in &self.clients {
                if client.is_waiting() {
                    world.message(client.number, request.instance);
                }
            }
        }
        let instance = &self.instances[request.instance];
        observer::look_at_instance(request.instance, &self.clients, instance, world);
    }

    fn inject(&mut self, what: What) {
        let world = &mut self.world;
        let (now, calm) = (world.now, ns(world.plan.calm_ms));
        let until = |ms| (now + ns(ms)).min(calm);
        match what {
            What::Crash {
                instance: index,
                keeps,
                down_ms,
            } => {
                let instance = &mut self.instances[index];
                if !instance.up {
                    return;
                }
                world.seen.saw(match keeps {
                    Keeps::All => Sight::CrashKept,
                    Keeps::Older => Sight::CrashTruncated,
                    Keeps::Nothing => Sight::CrashEmpty,
                });
                instance.crash(keeps);
                let identity = instance.identity;
                world.at(until(down_ms), Event::Start { instance: index });
                for client in 0..self.clients.len() {
                    // A machine that crashes sends no notification.
                    if world.chance.percent(50) {
                        world.reset(client, index, identity);
                    }
                }
            }
            What::Pause { instance, ms } => self.instances[instance].paused_until = until(ms),
            What::Step { instance, ms } => {
                world.seen.saw(Sight::ClockStep);
                self.instances[instance].step(ms);
            }
            What::Jump { instance, ms } => {
                let instance = &mut self.instances[instance];
                if ms > 0 {
                    note_early_loss(instance, &self.clients, world);
                    instance.lose();
                }
                instance.step(ms);
            }
            What::Evict { instance, register } => {
                let instance = &mut self.instances[instance];
                note_early_loss(instance, &self.clients, world);
                instance.evict(register);
            }
            What::Cut {
                client,
                instances,
                ways,
                ms,
            } => world.cut(client, instances, ways, until(ms)),
            What::Break { client, instance } => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.lanes[instance].disconnect(world);
                }
            }
            What::Freeze { client, ms } => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.freeze(until(ms), world);
                }
            }
            What::Die { client } => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.die(world);
                }
            }
        }
    }

    fn start(&mut self, index: usize) {
        self.instances[index].start();
    }

    fn finish(&mut self) {
        self.world.note(|| "finish".to_owned());
        for index in 0..self.clients.len() {
            if !self.clients[index].dead {
                self.clients[index].finish(&mut self.world);
                self.look(index);
            }
        }
        self.end_if_done();
        let plan = self.world.plan;
        let lease = Duration::from_millis(plan.longest_lease_ms());
        let clients = self.clients.len() as u32;
        let each = 2 * lease + Duration::from_millis(2 * plan.poll_cap_ms + 500);
        let bound = quarantine::period(lease) + 2 * lease + clients * each;
        let due = self.world.now + bound.as_nanos() as u64;
        self.world.at(due, Event::Due);
    }
}

fn note_early_loss(instance: &Instance, clients: &[Client<'_>], world: &mut World<'_>) {
    if let Some(lock) = instance.holder(world.now) {
        let owner = &clients[world.owner(lock.id)];
        if owner.believes(world) && owner.wants(lock.id) {
            world.seen.saw(Sight::EarlyLoss);
        }
    }
}

fn ns(ms: u64) -> u64 {
    ms * 1_000_000
}

/// Far above the size of any plan.
const MOST_EVENTS: u64 = 30_000;
/// After this time, everything is undone that had to wait for a connection.
const AFTER_CALM_MS: u64 = 400;
