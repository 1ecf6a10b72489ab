//! A client's path to one instance: its connection, its pending calls, and what must be undone.

use std::time::Duration;

use super::clock::Clock;
use super::seen::Sight;
use super::world::{Command, Event, Id, Reply, Request, Timer, World};
use crate::Moment;

pub(super) struct Lane {
    client: usize,
    instance: usize,
    clock: Clock,
    /// The identity of the instance that the connection leads to.
    link: Option<u32>,
    /// The last identity that the instance reported.
    known: Option<u32>,
    /// When a change of its identity was detected.
    pub(super) reborn: Option<Moment>,
    /// The instance's own clock at that time: registers written before may be too small.
    pub(super) since_ms: Option<u64>,
    /// It did not answer in time, and is asked nothing more until it answers.
    pub(super) suspect: bool,
    calls: Vec<Call>,
    serial: u32,
}

struct Call {
    serial: u32,
    what: What,
    command: Command,
}

#[derive(Clone, Copy)]
enum What {
    Hello,
    Probe {
        pause: Duration,
    },
    Ask(Ask),
    /// Undoes an acquisition, repeatedly, until its lease is over.
    Settle {
        id: Id,
        until: Moment,
        pause: Duration,
    },
}

impl What {
    /// Its caller has stopped.
    fn is_left(&self) -> bool {
        matches!(self, Self::Ask(ask) if ask.left)
    }
}

/// A query that a quorum needs an answer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) attempt: u32,
    pub(super) round: u32,
    pub(super) id: Id,
    pub(super) takes: bool,
    /// Its caller has stopped: neither the answer nor its absence is reported.
    pub(super) left: bool,
    /// Values written before this are not trusted.
    pub(super) since_ms: Option<u64>,
    /// Until when its answer is awaited, while the others continue without it.
    pub(super) late_until: Option<Moment>,
    /// When its effect is over.
    pub(super) ends: Moment,
}

impl Lane {
    pub(super) fn new(client: usize, instance: usize, clock: Clock, cold: bool) -> Self {
        let identity = (!cold).then_some(0);
        Self {
            client,
            instance,
            clock,
            link: identity,
            known: identity,
            reborn: None,
            since_ms: None,
            suspect: false,
            calls: Vec::new(),
            serial: 0,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    pub(super) fn ask(
        &mut self,
        ask: Ask,
        command: Command,
        limit: Duration,
        world: &mut World<'_>,
    ) {
        self.call(What::Ask(ask), command, limit, world);
    }

    /// Undoes what an acquisition did, or may still do.
    pub(super) fn settle(&mut self, id: Id, until: Moment, pause: Duration, world: &mut World<'_>) {
        let what = What::Settle { id, until, pause };
        self.call(what, Command::Release { id }, pause, world);
    }

    /// Removes a request whose caller has stopped.
    pub(super) fn withdraw(&mut self, id: Id) {
        let is_it = |call: &Call| matches!(call.what, What::Ask(ask) if ask.takes && ask.id == id);
        self.calls.retain(|call| !is_it(call));
    }

    fn call(&mut self, what: What, command: Command, limit: Duration, world: &mut World<'_>) {
        self.serial += 1;
        let serial = self.serial;
        self.calls.push(Call {
            serial,
            what,
            command,
        });
        if !what.is_left() {
            self.wait(serial, limit, world);
        }
        if matches!(what, What::Hello) || self.is_connected() {
            self.send(serial, command, world);
        } else {
            self.connect(world);
        }
    }

    fn wait(&self, serial: u32, limit: Duration, world: &mut World<'_>) {
        let ends = self.clock.local(world.now) + limit;
        let timer = Timer::Call {
            instance: self.instance,
            serial,
        };
        let client = self.client;
        world.at(self.clock.true_time(ends), Event::Timer { client, timer });
    }

    fn send(&self, serial: u32, command: Command, world: &mut World<'_>) {
        world.request(Request {
            client: self.client,
            instance: self.instance,
            identity: self.link,
            serial,
            command,
        });
    }

    fn connect(&mut self, world: &mut World<'_>) {
        let is_hello = |call: &Call| matches!(call.what, What::Hello);
        if !self.calls.iter().any(is_hello) {
            self.call(What::Hello, Command::Hello, CONNECT, world);
        }
    }

    /// The connection is broken. Unanswered commands are sent again on the next one.
    pub(super) fn disconnect(&mut self, world: &mut World<'_>) {
        self.link = None;
        if !self.calls.is_empty() {
            self.connect(world);
        }
    }

    /// Processes a message of the instance: the answer to a call, if it is one.
    pub(super) fn receive(
        &mut self,
        serial: u32,
        reply: Reply,
        world: &mut World<'_>,
    ) -> Option<(Ask, Reply)> {
        if let Reply::Reset(identity) = reply {
            if self.link == Some(identity) {
                self.disconnect(world);
            }
            return None;
        }
        // However late the answer, the instance is alive.
        self.suspect = false;
        let call = self.remove(serial)?;
        match (call.what, reply) {
            (What::Hello, Reply::Welcome(identity, clock_ms)) => {
                self.meet(identity, clock_ms, world);
            }
            (What::Settle { id, .. }, _) => world.note_closed(id),
            (What::Ask(ask), reply) if !ask.left => return Some((ask, reply)),
            (What::Hello | What::Probe { .. } | What::Ask(_), _) => {}
        }
        None
    }

    /// A new connection leads to an instance of this identity; the first identity is trusted.
    fn meet(&mut self, identity: u32, clock_ms: u64, world: &mut World<'_>) {
        if self.known.is_some_and(|known| known != identity) {
            self.reborn = Some(self.clock.local(world.now));
            self.since_ms = Some(clock_ms);
        }
        self.known = Some(identity);
        self.link = Some(identity);
        for call in self.calls.iter().filter(|call| !call.what.is_left()) {
            world.seen.saw(Sight::SentAgain);
            self.send(call.serial, call.command, world);
        }
    }

    /// Stops waiting for a call. Returns the call that failed, if any.
    pub(super) fn give_up(&mut self, serial: u32, world: &mut World<'_>) -> Option<Ask> {
        let call = self.remove(serial)?;
        let mut failed = None;
        if !self.suspect {
            world.seen.saw(Sight::Suspect);
        }
        self.suspect = true;
        match call.what {
            What::Hello => {
                if !self.calls.is_empty() {
                    self.connect(world);
                }
            }
            What::Probe { pause } => self.probe((pause * 2).min(LONGEST_PAUSE), world),
            What::Settle { id, until, pause } => {
                if self.clock.local(world.now) < until {
                    self.settle(id, until, (pause * 2).min(LONGEST_PAUSE), world);
                } else {
                    world.note_closed(id);
                }
            }
            What::Ask(ask) => match ask.late_until {
                Some(until) => {
                    // The others continue without it; an answer may still come.
                    let what = What::Ask(Ask {
                        late_until: None,
                        ..ask
                    });
                    let left = until.since(self.clock.local(world.now));
                    self.calls.push(Call { what, ..call });
                    self.wait(serial, left, world);
                }
                None => {
                    failed = Some(ask);
                    if ask.takes {
                        self.settle(ask.id, ask.ends, SHORTEST_PAUSE, world);
                    }
                }
            },
        }
        let is_question =
            |call: &Call| matches!(call.what, What::Probe { .. } | What::Settle { .. });
        if !self.calls.iter().any(is_question) {
            self.probe(SHORTEST_PAUSE, world);
        }
        failed
    }

    fn probe(&mut self, pause: Duration, world: &mut World<'_>) {
        self.call(What::Probe { pause }, Command::Probe, pause, world);
    }

    fn remove(&mut self, serial: u32) -> Option<Call> {
        let found = self.calls.iter().position(|call| call.serial == serial)?;
        Some(self.calls.remove(found))
    }
}

const CONNECT: Duration = Duration::from_millis(50);
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
