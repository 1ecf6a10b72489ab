//! One instance: an in-memory version of `lua/red_lock` and `lua/lock`.

use std::time::Duration;

use super::plan::{Keeps, Wall};
use super::world::{Command, Id, Reply};
use crate::Moment;
use crate::quarantine;

pub(super) struct Instance {
    wall: Wall,
    /// How far its clock was set.
    stepped_ms: i64,
    data: Data,
    /// Its data before each of its newest writes.
    older: Vec<Data>,
    /// Changes at each restart.
    pub(super) identity: u32,
    pub(super) up: bool,
    /// It is frozen until then.
    pub(super) paused_until: u64,
    /// How long it grants nothing after a loss of its data, if it records such losses.
    quarantine: Option<Duration>,
    /// Acquisitions whose lock it lost early.
    pub(super) lost: Vec<Id>,
    /// How often it granted the lock.
    pub(super) grants: u64,
}

#[derive(Clone, Copy, Default)]
struct Data {
    lock: Option<Holder>,
    register: Option<Register>,
    epoch: Option<Epoch>,
}

/// The holder of the lock.
#[derive(Clone, Copy)]
pub(super) struct Holder {
    pub(super) id: Id,
    /// The last millisecond in which the key exists.
    until_ms: u64,
}

#[derive(Clone, Copy)]
struct Register {
    token: u64,
    written_ms: u64,
    by: Id,
}

#[derive(Clone, Copy)]
struct Epoch {
    identity: u32,
    /// `None` if the data was marked as complete.
    since_ms: Option<u64>,
}

/// A reading of the register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) token: Option<u64>,
    /// The instance's clock, in microseconds.
    pub(super) time: u64,
    /// The register may be too small: it was not written since the data was lost.
    pub(super) fresh: bool,
}

impl Instance {
    pub(super) fn new(wall: Wall, quarantine: Option<Duration>) -> Self {
        let provisioned = Epoch {
            identity: 0,
            since_ms: None,
        };
        Self {
            wall,
            stepped_ms: 0,
            data: Data {
                epoch: Some(provisioned),
                ..Data::default()
            },
            older: Vec::new(),
            identity: 0,
            up: true,
            paused_until: 0,
            quarantine,
            lost: Vec::new(),
            grants: 0,
        }
    }

    /// Its own clock, in nanoseconds.
    fn clock(&self, now: u64) -> u64 {
        let set = self.wall.offset_ms.saturating_add_signed(self.stepped_ms);
        set * 1_000_000 + now * self.wall.rate / 1_000_000
    }

    fn clock_ms(&self, now: u64) -> u64 {
        self.clock(now) / 1_000_000
    }

    /// The current holder of the lock.
    pub(super) fn holder(&self, now: u64) -> Option<Holder> {
        let now_ms = self.clock_ms(now);
        self.data.lock.filter(|lock| lock.until_ms >= now_ms)
    }

    /// How much longer it keeps the lock for `id`, in true nanoseconds.
    pub(super) fn keeps(&self, id: Id, now: u64) -> u64 {
        match self.holder(now) {
            Some(lock) if lock.id == id => {
                let left = (lock.until_ms + 1) * 1_000_000 - self.clock(now);
                left * 1_000_000 / self.wall.rate
            }
            _ => 0,
        }
    }

    /// It would grant its lock to any client.
    pub(super) fn is_free(&self, now: u64) -> bool {
        let now_ms = self.clock_ms(now);
        let is_quarantined = self.quarantine.is_some_and(|period| {
            let known = self.data.epoch.filter(|it| it.identity == self.identity);
            known.is_none_or(|epoch| left(epoch.since_ms, period, now_ms).is_some())
        });
        self.holder(now).is_none() && !is_quarantined
    }

    /// Executes a command. The flag says whether it freed the lock, so that waiters get a message.
    pub(super) fn execute(&mut self, command: Command, now: u64) -> (Reply, bool) {
        let reply = match command {
            Command::Hello => Reply::Welcome(self.identity, self.clock_ms(now)),
            Command::Probe => Reply::Pong,
            Command::Take {
                id,
                lease,
                since_ms,
            } => self.take(id, lease, since_ms, now),
            Command::Extend { id, lease } => self.extend(id, lease, now),
            Command::Mark { id, token, lease } => self.mark(id, token, lease, now),
            Command::Release { id } => {
                let frees = self.release(id, now);
                return (Reply::Released, frees);
            }
        };
        (reply, false)
    }

    fn take(&mut self, id: Id, lease: Duration, seen_ms: Option<u64>, now: u64) -> Reply {
        let now_ms = self.clock_ms(now);
        let mut since_ms = seen_ms;
        if let Some(period) = self.quarantine {
            let known = self.data.epoch.filter(|epoch| {
                epoch.identity == self.identity
                    && epoch.since_ms.is_none_or(|since_ms| since_ms <= now_ms)
            });
            let epoch = known.unwrap_or(Epoch {
                identity: self.identity,
                since_ms: Some(now_ms),
            });
            self.data.epoch = Some(epoch);
            since_ms = since_ms.max(epoch.since_ms);
            if let Some(left) = left(epoch.since_ms, period, now_ms) {
                return Reply::Refused(left);
            }
        }
        if let Some(lock) = self.holder(now).filter(|lock| lock.id != id) {
            let ttl = Duration::from_millis(lock.until_ms - now_ms);
            return Reply::Busy(Some(ttl), self.look(since_ms, now));
        }
        self.write();
        self.set(id, lease, now_ms);
        self.grants += 1;
        Reply::Taken(self.look(since_ms, now))
    }

    fn extend(&mut self, id: Id, lease: Duration, now: u64) -> Reply {
        if self.holder(now).is_none_or(|lock| lock.id != id) {
            return Reply::NotOurs;
        }
        self.write();
        self.set(id, lease, self.clock_ms(now));
        Reply::Extended
    }

    fn mark(&mut self, id: Id, token: u64, lease: Duration, now: u64) -> Reply {
        if self.holder(now).is_none_or(|lock| lock.id != id) {
            return Reply::NotOurs;
        }
        let now_ms = self.clock_ms(now);
        match self.data.register {
            Some(register) if register.token == token && register.by == id => {}
            Some(register) if register.token >= token => return Reply::Conflict(register.token),
            _ => {
                self.write();
                self.data.register = Some(Register {
                    token,
                    written_ms: now_ms,
                    by: id,
                });
            }
        }
        self.set(id, lease, now_ms);
        Reply::Marked
    }

    fn release(&mut self, id: Id, now: u64) -> bool {
        let is_there = self.holder(now).is_some_and(|lock| lock.id == id);
        if is_there {
            self.write();
            self.data.lock = None;
        }
        is_there
    }

    /// No script shortens the TTL of a living hold.
    fn set(&mut self, id: Id, lease: Duration, now_ms: u64) {
        let until_ms = now_ms + lease.as_millis() as u64;
        let before = self.data.lock.filter(|lock| lock.id == id);
        let until_ms = before.map_or(until_ms, |lock| lock.until_ms.max(until_ms));
        self.data.lock = Some(Holder { id, until_ms });
    }

    fn look(&self, since_ms: Option<u64>, now: u64) -> Look {
        let written = self.data.register.map(|register| register.written_ms);
        let fresh = since_ms
            .is_some_and(|since_ms| written.is_none_or(|written_ms| written_ms <= since_ms));
        Look {
            token: self.data.register.map(|register| register.token),
            time: self.clock(now) / 1000,
            fresh,
        }
    }

    fn write(&mut self) {
        if self.older.len() == REMEMBERED {
            self.older.remove(0);
        }
        self.older.push(self.data);
    }

    pub(super) fn crash(&mut self, keeps: Keeps) {
        self.up = false;
        match keeps {
            Keeps::All => {}
            Keeps::Older => {
                self.lose();
                self.data = self.older.first().copied().unwrap_or(self.data);
            }
            Keeps::Nothing => {
                self.lose();
                self.data = Data::default();
            }
        }
        self.older.clear();
    }

    pub(super) fn start(&mut self) {
        if !self.up {
            self.up = true;
            self.identity += 1;
        }
    }

    /// Sets its clock.
    pub(super) fn step(&mut self, ms: i64) {
        self.stepped_ms += ms;
    }

    pub(super) fn evict(&mut self, register: bool) {
        self.lose();
        self.data.lock = None;
        if register {
            self.data.register = None;
        }
    }

    /// The current holder cannot rely on the lock any more.
    pub(super) fn lose(&mut self) {
        self.lost.extend(self.data.lock.map(|lock| lock.id));
    }
}

/// What is left of its quarantine.
fn left(since_ms: Option<u64>, max_lease: Duration, now_ms: u64) -> Option<Duration> {
    let moment = |ms: u64| Moment(ms * 1_000_000);
    quarantine::left(since_ms.map(moment), max_lease, moment(now_ms))
}

/// How many of the newest writes may not be on disk yet.
const REMEMBERED: usize = 4;
