//! What all parties of a run share: the time, a network with faults, randomness, and the records.

use std::collections::BTreeMap;
use std::time::Duration;

use super::chance::Chance;
use super::instance::Look;
use super::plan::{Faults, Plan, Ways};
use super::seen::{Seen, Sight};
use super::tokens::Tokens;

/// One acquisition of one instance, never used again.
pub(super) type Id = u32;

/// A command to an instance.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    /// On a new connection: asks for the identity.
    Hello,
    /// Asks whether the instance is alive.
    Probe,
    Take {
        id: Id,
        lease: Duration,
        /// Values written before this are not trusted: the client saw the instance restart.
        since_ms: Option<u64>,
    },
    Extend {
        id: Id,
        lease: Duration,
    },
    Mark {
        id: Id,
        token: u64,
        lease: Duration,
    },
    Release {
        id: Id,
    },
}

/// The reply of an instance.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    /// Its identity, and its clock.
    Welcome(u32, u64),
    Pong,
    Taken(Look),
    Busy(Option<Duration>, Look),
    /// It lost its data, and grants nothing for this time.
    Refused(Duration),
    Extended,
    Marked,
    Conflict(u64),
    NotOurs,
    Released,
    /// The connection to the instance of this identity is broken.
    Reset(u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) client: usize,
    pub(super) instance: usize,
    /// The identity of the instance that its connection leads to; any for a new one.
    pub(super) identity: Option<u32>,
    pub(super) serial: u32,
    pub(super) command: Command,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Request(Request),
    Reply {
        client: usize,
        instance: usize,
        serial: u32,
        reply: Reply,
    },
    /// An instance reports that its lock was released.
    Message {
        client: usize,
        instance: usize,
    },
    Timer {
        client: usize,
        timer: Timer,
    },
    /// A fault of the plan.
    PlannedFault(usize),
    Start {
        instance: usize,
    },
    Thaw {
        client: usize,
    },
    Calm,
    Finish,
    /// A check for what is left behind.
    Sweep,
    /// Every client must have held the lock by now.
    Due,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Timer {
    /// A call is not awaited any longer.
    Call { instance: usize, serial: u32 },
    /// A quorum asked for a tick.
    Tick { attempt: u32, generation: u32 },
    /// The script continues.
    Script { generation: u32 },
}

impl Event {
    /// The client that the event belongs to, if any.
    pub(super) fn client(&self) -> Option<usize> {
        match *self {
            Self::Reply { client, .. }
            | Self::Message { client, .. }
            | Self::Timer { client, .. } => Some(client),
            _ => None,
        }
    }
}

pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    /// True time since the beginning, in nanoseconds.
    pub(super) now: u64,
    pub(super) chance: Chance,
    /// No more faults happen.
    pub(super) calm: bool,
    faults: Faults,
    queue: BTreeMap<(u64, u32), Event>,
    number: u32,
    cuts: Vec<Cut>,
    /// The client of each acquisition, and whether that client has nothing left to do for it.
    acquisitions: Vec<(usize, bool)>,
    pub(super) tokens: Tokens,
    pub(super) seen: Seen,
    pub(super) violation: Option<String>,
    trace: Option<Vec<String>>,
}

struct Cut {
    client: usize,
    instances: u8,
    ways: Ways,
    until: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(plan: &'a Plan, traced: bool) -> Self {
        Self {
            plan,
            now: 0,
            chance: Chance::new(plan.seed, 2),
            calm: false,
            faults: plan.network,
            queue: BTreeMap::new(),
            number: 0,
            cuts: Vec::new(),
            acquisitions: Vec::new(),
            tokens: Tokens::default(),
            seen: Seen::default(),
            violation: None,
            trace: traced.then(Vec::new),
        }
    }

    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.queue.insert((at.max(self.now), self.number), event);
    }

    /// The next event; advances the time to it.
    pub(super) fn next(&mut self) -> Option<Event> {
        let ((at, _), event) = self.queue.pop_first()?;
        self.now = at;
        self.seen.events += 1;
        Some(event)
    }

    pub(super) fn request(&mut self, request: Request) {
        let (client, instance) = (request.client, request.instance);
        self.carry(client, instance, Ways::Requests, Event::Request(request));
    }

    pub(super) fn reply(&mut self, request: &Request, reply: Reply) {
        let (client, instance) = (request.client, request.instance);
        let event = Event::Reply {
            client,
            instance,
            serial: request.serial,
            reply,
        };
        self.carry(client, instance, Ways::Replies, event);
    }

    /// A message is never doubled: receiving it twice has no further effect.
    pub(super) fn message(&mut self, client: usize, instance: usize) {
        let event = Event::Message { client, instance };
        if !self.is_cut(client, instance, Ways::Replies) && !self.drops() {
            let at = self.now + self.delay();
            self.at(at, event);
        }
    }

    /// Notifies a client that its connection to the instance is broken.
    pub(super) fn reset(&mut self, client: usize, instance: usize, identity: u32) {
        let event = Event::Reply {
            client,
            instance,
            serial: 0,
            reply: Reply::Reset(identity),
        };
        self.carry(client, instance, Ways::Replies, event);
    }

    fn carry(&mut self, client: usize, instance: usize, way: Ways, event: Event) {
        if self.is_cut(client, instance, way) || self.drops() {
            self.seen.saw(Sight::Dropped);
            return self.note(|| format!("lost: {event:?}"));
        }
        if self.chance.percent(self.faults.doubled) {
            self.seen.saw(Sight::Doubled);
            let at = self.now + self.late();
            self.at(at, event);
        }
        let at = self.now + self.delay();
        self.at(at, event);
    }

    /// The caller of a request to acquire stops before the answer.
    pub(super) fn leaves(&mut self) -> bool {
        self.faults.left > 0 && self.chance.percent(self.faults.left)
    }

    fn drops(&mut self) -> bool {
        self.faults.dropped > 0 && self.chance.percent(self.faults.dropped)
    }

    fn is_cut(&self, client: usize, instance: usize, way: Ways) -> bool {
        self.cuts.iter().any(|cut| {
            cut.client == client
                && cut.until > self.now
                && cut.instances & 1 << instance != 0
                && (cut.ways == Ways::Both || cut.ways == way)
        })
    }

    pub(super) fn cut(&mut self, client: usize, instances: u8, ways: Ways, until: u64) {
        self.cuts.push(Cut {
            client,
            instances,
            ways,
            until,
        });
    }

    /// Usually a few milliseconds.
    fn delay(&mut self) -> u64 {
        if self.chance.percent(self.faults.slow) {
            self.late()
        } else {
            self.chance.within(50_000, LONGEST_DELAY)
        }
    }

    fn late(&mut self) -> u64 {
        let late = self.chance.within(0, self.faults.slow_ms.max(3)) * 1_000_000;
        if late > 20_000_000 {
            self.seen.saw(Sight::Late);
        }
        late
    }

    /// From now on no more faults happen; messages under way still arrive.
    pub(super) fn be_calm(&mut self) {
        self.calm = true;
        self.faults = Faults::default();
        self.cuts.clear();
    }

    pub(super) fn fresh_id(&mut self, client: usize) -> Id {
        self.acquisitions.push((client, false));
        self.acquisitions.len() as Id
    }

    pub(super) fn owner(&self, id: Id) -> usize {
        self.acquisitions[id as usize - 1].0
    }

    pub(super) fn note_closed(&mut self, id: Id) {
        self.acquisitions[id as usize - 1].1 = true;
    }

    pub(super) fn is_closed(&self, id: Id) -> bool {
        self.acquisitions[id as usize - 1].1
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.3} ms  {}", self.now as f64 / 1e6, line()));
        }
    }

    pub(super) fn claim(&mut self, is_true: bool, what: impl FnOnce() -> String) {
        if !is_true {
            let what = what();
            self.note(|| format!("VIOLATION {what}"));
            self.violation.get_or_insert(what);
        }
    }

    pub(super) fn trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }
}

/// One way, without faults.
pub(super) const LONGEST_DELAY: u64 = 3_000_000;
