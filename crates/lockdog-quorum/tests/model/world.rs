//! A state of the model, and what can happen in it.

use std::ops::{Deref, DerefMut};

use stateright::{Model, Property};

use super::client::{Client, is_over};
use super::instance::{Instance, Message, Register};
use super::setting::{Setting, Spent};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct World {
    pub(super) ticks: u8,
    pub(super) instances: Instances,
    pub(super) clients: [Client; 2],
    pub(super) spent: Spent,
    /// The tokens that were shown, one bit each.
    pub(super) shown: u32,
    /// A token was shown twice, or is not larger than all that were shown before its acquisition began.
    pub(super) out_of_order: bool,
    /// An acquisition that was over became valid again.
    pub(super) revived: bool,
}

/// Three or four.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Instances {
    all: [Instance; 4],
    count: usize,
}

impl Deref for Instances {
    type Target = [Instance];

    fn deref(&self) -> &[Instance] {
        &self.all[..self.count]
    }
}

impl DerefMut for Instances {
    fn deref_mut(&mut self) -> &mut [Instance] {
        &mut self.all[..self.count]
    }
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Move {
    /// Time passes.
    Pass,
    /// A client begins to acquire; the flag says whether it renews.
    Begin(usize, bool),
    /// A client notices that time has passed, in time or late.
    Wake(usize),
    Unlock(usize),
    /// A further claim of a client asks for a longer lease.
    Lengthen(usize),
    /// A message to or from an instance arrives.
    Deliver(usize, Message),
    /// A message arrives, and will arrive again.
    Double(usize, Message),
    /// A client is notified that no answer to this request comes.
    Fail(usize, Message),
    /// An instance restarts without its data.
    Restart(usize),
    /// An instance loses the lock early, for example by its clock.
    Lose(usize),
}

impl Model for Setting {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        let register = |value: u8| Register {
            value,
            ..Register::default()
        };
        let instance = |value: u8| Instance {
            register: register(value),
            ..Instance::default()
        };
        vec![World {
            ticks: 0,
            instances: Instances {
                all: self.registers.map(instance),
                count: self.instances,
            },
            clients: Default::default(),
            spent: Spent::default(),
            shown: 0,
            out_of_order: false,
            revived: false,
        }]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        self.reached.note_expanded();
        let (now, spent, limits) = (self.moment(world.ticks), &world.spent, &self.limits);
        let may_begin = spent.begun < limits.begun;
        let mut clients = world.clients.iter();
        if !may_begin && clients.all(|it| it.quorum().is_none_or(is_over)) {
            // No client will be valid any more, whatever happens.
            return;
        }
        if world.ticks < self.ticks {
            moves.push(Move::Pass);
        }
        for (index, client) in world.clients.iter().enumerate() {
            let Some(quorum) = client.quorum().filter(|it| !is_over(it)) else {
                if may_begin {
                    moves.push(Move::Begin(index, false));
                }
                if may_begin && spent.renewed < limits.renewed {
                    moves.push(Move::Begin(index, true));
                }
                continue;
            };
            if quorum.wake_at() <= now {
                moves.push(Move::Wake(index));
            }
            if self.cancels || quorum.is_living() {
                moves.push(Move::Unlock(index));
            }
            if quorum.is_living() && spent.lengthened < limits.lengthened {
                moves.push(Move::Lengthen(index));
            }
        }
        for (index, instance) in world.instances.iter().enumerate() {
            for (place, &message) in instance.messages.all().iter().enumerate() {
                if place > 0 && instance.messages.all()[place - 1] == message {
                    continue;
                }
                moves.push(Move::Deliver(index, message));
                if spent.doubled < limits.doubled {
                    moves.push(Move::Double(index, message));
                }
                let client = &world.clients[usize::from(message.id.client)];
                let is_over = client.quorum().is_none_or(is_over);
                if message.awaited && !is_over && spent.failed < limits.failed {
                    moves.push(Move::Fail(index, message));
                }
            }
            let has_data = instance.holder.is_some() || instance.register.value > 0;
            if has_data && spent.restarted < limits.restarted {
                moves.push(Move::Restart(index));
            }
            if instance.holder.is_some() && spent.lost < limits.lost {
                moves.push(Move::Lose(index));
            }
        }
    }

    fn next_state(&self, world: &World, step: Move) -> Option<World> {
        let mut next = world.clone();
        next.make(self, step);
        next.tidy(self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        // One property for all promises, because the checker takes long to look up each.
        let keeps_all = |setting: &Self, world: &World| world.broken(setting).is_none();
        vec![Property::always("every promise is kept", keeps_all)]
    }
}
