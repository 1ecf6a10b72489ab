//! One instance of the model: what the Lua scripts do there, and its messages under way.

use std::time::Duration;

use super::bag::Bag;
use super::setting::kept;
use crate::Moment;
use crate::quarantine;

#[derive(Clone, Copy, Debug, Default, Hash, PartialEq)]
pub(super) struct Instance {
    /// The current holder of the lock here; `None` if the lease is over.
    pub(super) holder: Option<Holder>,
    pub(super) register: Register,
    /// When it lost its data.
    pub(super) reborn: Option<Moment>,
    pub(super) messages: Bag,
}

/// One acquisition of this instance: its client, and its number among that client's acquisitions here.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Id {
    pub(super) client: u8,
    pub(super) number: u8,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq)]
pub(super) struct Holder {
    pub(super) id: Id,
    pub(super) until: Moment,
}

/// The register of the fencing tokens.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq)]
pub(super) struct Register {
    /// 0: no token was written here.
    pub(super) value: u8,
    /// The acquisition that wrote the value.
    pub(super) writer: Option<Id>,
    /// The data was lost, and no token was written since.
    pub(super) fresh: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Message {
    pub(super) id: Id,
    pub(super) round: u8,
    /// The requested lease in milliseconds; 0 for requests without a lease.
    pub(super) lease: u32,
    /// The answer is awaited.
    pub(super) awaited: bool,
    pub(super) body: Body,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Body {
    #[default]
    Take,
    Extend,
    Mark(u8),
    Release,
    Taken(Look),
    Busy(Look),
    Quarantined,
    Extended,
    Marked,
    Conflict(u8),
    NotOurs,
}

/// The reading of the register in an answer.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Look {
    pub(super) value: u8,
    pub(super) fresh: bool,
}

impl Message {
    pub(super) fn release(id: Id) -> Self {
        Self {
            id,
            round: 0,
            lease: 0,
            awaited: false,
            body: Body::Release,
        }
    }

    pub(super) fn is_request(&self) -> bool {
        matches!(
            self.body,
            Body::Take | Body::Extend | Body::Mark(_) | Body::Release
        )
    }

    pub(super) fn is_of(&self, client: usize) -> bool {
        usize::from(self.id.client) == client
    }
}

impl Instance {
    pub(super) fn is_held_by(&self, id: Id) -> bool {
        self.holder.is_some_and(|holder| holder.id == id)
    }

    /// Whether the acquisition holds the lock here, or may still get it.
    pub(super) fn may_be_held_by(&self, id: Id) -> bool {
        self.grants(id, |_| true) > 0
    }

    /// How often the acquisition holds it here, or may still get it by messages that count.
    fn grants(&self, id: Id, counts: impl Fn(&Message) -> bool) -> usize {
        let messages = self.messages.all().iter();
        let takes = messages.filter(|it| it.body == Body::Take && it.id == id && counts(it));
        usize::from(self.is_held_by(id)) + takes.count()
    }

    /// Executes a request; returns the answer of its script.
    pub(super) fn serve(&mut self, request: Message, longest: Duration, now: Moment) -> Body {
        let id = request.id;
        let is_ours = self.is_held_by(id);
        let mut until = now + kept(Duration::from_millis(request.lease.into()));
        if let Some(holder) = self.holder {
            // A re-acquire never shortens the lease.
            until = until.max(holder.until);
        }
        match request.body {
            Body::Take => {
                if quarantine::left(self.reborn, longest, now).is_some() {
                    return Body::Quarantined;
                }
                if self.holder.is_some() && !is_ours {
                    return Body::Busy(self.look());
                }
                self.holder = Some(Holder { id, until });
                Body::Taken(self.look())
            }
            Body::Extend if is_ours => {
                self.holder = Some(Holder { id, until });
                Body::Extended
            }
            Body::Mark(token) if is_ours => {
                let register = &mut self.register;
                if register.value < token {
                    *register = Register {
                        value: token,
                        writer: Some(id),
                        fresh: false,
                    };
                } else if register.value != token || register.writer != Some(id) {
                    return Body::Conflict(register.value);
                }
                self.holder = Some(Holder { id, until });
                Body::Marked
            }
            Body::Release if is_ours => {
                self.holder = None;
                Body::Release
            }
            _ => Body::NotOurs,
        }
    }

    fn look(&self) -> Look {
        Look {
            value: self.register.value,
            fresh: self.register.fresh,
        }
    }

    pub(super) fn expire(&mut self, now: Moment) {
        if self.holder.is_some_and(|holder| holder.until <= now) {
            self.holder = None;
        }
    }

    /// Restarts without its data.
    pub(super) fn restart(&mut self, now: Moment) {
        self.holder = None;
        self.register = Register {
            fresh: true,
            ..Register::default()
        };
        self.reborn = Some(now);
    }

    /// No answer to this client is awaited any more. Acquisitions that wait for a grant only to release
    /// it continue to do so.
    pub(super) fn silence(&mut self, client: usize) {
        let all = self.messages;
        for &message in all.all() {
            if message.awaited && message.is_of(client) {
                let awaited = false;
                self.messages.remove(message);
                self.messages.add(Message { awaited, ..message });
                if matches!(message.body, Body::Take | Body::Taken(_)) {
                    self.messages.add(Message::release(message.id));
                }
            }
        }
    }

    /// Removes messages that can have no effect any more, whenever they arrive. Some acquisitions are
    /// `closing`: they release each grant that they receive.
    pub(super) fn forget_what_is_idle(&mut self, closing: impl Fn(Id) -> bool) {
        let all = self.messages;
        for (place, &message) in all.all().iter().enumerate() {
            let id = message.id;
            let is_idle = match message.body {
                Body::Take => false,
                // Each release needs a grant of its own, and one message that will not bring another
                // grant.
                Body::Release => {
                    let same = all.all()[..place].iter().filter(|it| **it == message);
                    let grants = self.grants(id, |take| !(take.awaited && closing(id)));
                    same.count() >= grants
                }
                Body::Extend | Body::Mark(_) => !message.awaited && !self.may_be_held_by(id),
                _ => !message.awaited,
            };
            if is_idle {
                self.messages.remove(message);
            }
        }
        // Only if it may still write its token again.
        let writer = self.register.writer;
        self.register.writer = writer.filter(|id| self.may_be_held_by(*id));
    }
}
