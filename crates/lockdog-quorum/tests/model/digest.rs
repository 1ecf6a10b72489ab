//! Which states count as the same.
//!
//! All instances are alike, and so are the two clients: states that differ only in their order are the
//! same. So are states that differ only in the number of earlier acquisitions, or in what is left of an
//! acquisition that is over.

use std::hash::{Hash, Hasher};

use super::client::{Client, is_over};
use super::instance::{Holder, Id, Instance, Message, Register};
use super::world::World;
use crate::Quorum;
use crate::member::{Member, MemberState};

/// A state of the core with its digests, which are read much more often than they change.
#[derive(Debug, PartialEq)]
pub(super) struct Core {
    pub(super) quorum: Quorum,
    whole: u64,
    members: [u64; 4],
}

impl Core {
    pub(super) fn new(quorum: Quorum) -> Self {
        let mut members = [0; 4];
        for (index, member) in quorum.members.iter().enumerate() {
            if !is_over(&quorum) {
                members[index] = self::member(member, quorum.round());
            }
        }
        let Quorum {
            rules,
            members: _,
            phase,
            round,
            deadline,
            renewed,
            leased_until,
            next,
            token,
        } = &quorum;
        let whole = if is_over(&quorum) {
            1
        } else {
            let times = (deadline, renewed, leased_until, next);
            digest(&(rules, phase, round, times, token))
        };
        Self {
            quorum,
            whole,
            members,
        }
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.digest());
    }
}

impl World {
    /// Equal for states that count as the same.
    pub(super) fn digest(&self) -> u64 {
        let Self {
            ticks,
            instances: _,
            clients,
            spent,
            shown,
            out_of_order,
            revived,
        } = self;
        let mut mixer = Mixer::default();
        (ticks, spent, shown, out_of_order, revived).hash(&mut mixer);
        let [one, other] = [client(&clients[0]), client(&clients[1])];
        let columns = if one < other {
            self.columns([0, 1])
        } else if other < one {
            self.columns([1, 0])
        } else {
            self.columns([0, 1]).min(self.columns([1, 0]))
        };
        mixer.write_u64(one.min(other));
        mixer.write_u64(one.max(other));
        mixer.write_u64(columns);
        mixer.finish()
    }

    /// The digest of the full state, with nothing merged.
    pub(super) fn exact(&self) -> u64 {
        let Self {
            ticks,
            instances,
            clients,
            spent,
            shown,
            out_of_order,
            revived,
        } = self;
        let mut mixer = Mixer::default();
        (ticks, &instances[..], spent, shown, out_of_order, revived).hash(&mut mixer);
        for client in clients {
            let Client {
                core,
                numbers,
                won,
                floor,
                token,
            } = client;
            (client.quorum(), numbers, won, floor, token, core.is_some()).hash(&mut mixer);
        }
        mixer.finish()
    }

    /// What concerns each instance, independent of its index.
    fn columns(&self, order: [usize; 2]) -> u64 {
        let mut columns = [0; 4];
        for (index, instance) in self.instances.iter().enumerate() {
            let mut mixer = Mixer::default();
            for client in order {
                let core = &self.clients[client].core;
                mixer.write_u64(core.as_ref().map_or(0, |core| core.members[index]));
            }
            let Instance {
                holder,
                register,
                reborn,
                messages,
            } = instance;
            let name = |id: Id| {
                let client = usize::from(id.client);
                let age = self.clients[client].numbers[index] - id.number;
                u64::from(age) * 2 + u64::from(client == order[0])
            };
            let (id, until) = match holder {
                Some(Holder { id, until }) => (1 + name(*id), until.0),
                None => (0, 0),
            };
            mixer.write_u64(id);
            mixer.write_u64(until);
            let Register {
                value,
                writer,
                fresh,
            } = register;
            mixer.write_u64(writer.map_or(0, |id| 1 + name(id)));
            mixer.write_u64(u64::from(*value) * 2 + u64::from(*fresh));
            mixer.write_u64(reborn.map_or(0, |moment| moment.0));
            // A sum, because the order depends on the names.
            let mut sum = 0_u64;
            for message in messages.all() {
                let Message {
                    id,
                    round,
                    lease,
                    awaited,
                    body,
                } = *message;
                let mut mixer = Mixer::default();
                mixer.write_u64(name(id));
                mixer.write_u64(u64::from(round) * 2 + u64::from(awaited));
                mixer.write_u32(lease);
                body.hash(&mut mixer);
                sum = sum.wrapping_add(mixer.finish());
            }
            mixer.write_u64(sum);
            columns[index] = mixer.finish();
        }
        columns.sort_unstable();
        let mut mixer = Mixer::default();
        for column in columns {
            mixer.write_u64(column);
        }
        mixer.finish()
    }
}

/// A client without its knowledge of single instances.
fn client(client: &Client) -> u64 {
    let Client {
        core,
        numbers: _,
        won,
        floor,
        token,
    } = client;
    let mut mixer = Mixer::default();
    mixer.write_u64(core.as_ref().map_or(0, |core| core.whole));
    mixer.write_u64(u64::from(*won));
    mixer.write_u64(u64::from(*floor) * 256 + u64::from(*token));
    mixer.finish()
}

/// What is known about one instance, without parts that no longer have an effect: when it was last
/// asked, and what is only reported.
fn member(member: &Member, round: u32) -> u64 {
    let Member {
        state,
        until,
        asked_until,
        taken_in,
        asked_in,
        answered_in,
        acked_in,
        register,
        outcome: _,
    } = member;
    let counts = matches!(state, MemberState::Held | MemberState::Asked);
    let until = counts.then_some(until);
    let rounds = [asked_in, answered_in, acked_in].map(|it| *it == round);
    digest(&(state, until, asked_until, taken_in, rounds, register))
}

fn digest(value: &impl Hash) -> u64 {
    let mut mixer = Mixer::default();
    value.hash(&mut mixer);
    mixer.finish()
}

/// Multiplies and folds, as `ahash` does. The standard library's hasher took half of the time, because
/// tests are not optimized.
struct Mixer(u64);

impl Default for Mixer {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}
