//! The sequential objects.

use std::collections::BTreeMap;

use super::search::Sequential;

/// A lock of any kind with one holder.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct OneHolder {
    /// The hold, and its count.
    holder: Option<(u32, u32)>,
    token: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LockCall {
    /// The first acquire of a hold. Only a fenced lock has tokens; of others they are 0.
    Acquire {
        hold: u32,
        token: u64,
    },
    /// The count that a further acquire led to.
    Again {
        hold: u32,
        count: u32,
    },
    /// It was not acquired. `others`: other calls for it were under way and may have held it.
    Busy {
        others: bool,
    },
    /// The count that was left.
    Release {
        hold: u32,
        left: u32,
    },
    IsLocked(bool),
}

impl Sequential for OneHolder {
    type Call = LockCall;

    fn acquires(call: &LockCall) -> Option<LockCall> {
        match *call {
            LockCall::Acquire { token, .. } => Some(LockCall::Acquire { hold: 0, token }),
            _ => None,
        }
    }

    fn is_read(call: &LockCall) -> bool {
        matches!(call, LockCall::Busy { .. } | LockCall::IsLocked(_))
    }

    fn after(&self, call: &LockCall) -> Option<Self> {
        let with = |holder, token| Some(Self { holder, token });
        match (*call, self.holder) {
            (LockCall::Acquire { hold, token }, None) if token == 0 || token > self.token => {
                with(Some((hold, 1)), self.token.max(token))
            }
            (LockCall::Again { hold, count }, Some((holder, has)))
                if holder == hold && count == has + 1 =>
            {
                with(Some((hold, count)), self.token)
            }
            (LockCall::Release { hold, left }, Some((holder, has)))
                if holder == hold && left == has - 1 =>
            {
                with(Some((hold, left)).filter(|_| left > 0), self.token)
            }
            (LockCall::Busy { others }, holder) if others || holder.is_some() => Some(self.clone()),
            (LockCall::IsLocked(answer), holder) if answer == holder.is_some() => {
                Some(self.clone())
            }
            _ => None,
        }
    }
}

/// A read/write lock. Each hold is acquired once.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Register {
    writer: Option<u32>,
    /// In ascending order.
    readers: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RegisterCall {
    Read(u32),
    Write(u32),
    /// Of either mode.
    Release(u32),
    /// As for [`LockCall::Busy`].
    Busy {
        writes: bool,
        others: bool,
    },
    /// A reader becomes the writer; the reverse.
    Upgrade(u32),
    Downgrade(u32),
    /// Whether a writer has it.
    IsWritten(bool),
}

impl Sequential for Register {
    type Call = RegisterCall;

    fn acquires(call: &RegisterCall) -> Option<RegisterCall> {
        match *call {
            RegisterCall::Read(_) => Some(RegisterCall::Read(0)),
            RegisterCall::Write(_) => Some(RegisterCall::Write(0)),
            _ => None,
        }
    }

    fn is_read(call: &RegisterCall) -> bool {
        matches!(call, RegisterCall::Busy { .. } | RegisterCall::IsWritten(_))
    }

    fn after(&self, call: &RegisterCall) -> Option<Self> {
        let is_free = self.writer.is_none() && self.readers.is_empty();
        let mut next = self.clone();
        let fits = match *call {
            RegisterCall::Read(hold) => {
                let at = self.readers.partition_point(|it| *it < hold);
                next.readers.insert(at, hold);
                self.writer.is_none()
            }
            RegisterCall::Write(hold) => next.writer.replace(hold).is_none() && is_free,
            RegisterCall::Release(hold) => {
                next.writer = self.writer.filter(|it| *it != hold);
                next.readers.retain(|it| *it != hold);
                next != *self
            }
            RegisterCall::Busy { writes, others } => {
                others || self.writer.is_some() || (writes && !is_free)
            }
            RegisterCall::Upgrade(hold) => {
                next = Self {
                    writer: Some(hold),
                    readers: Vec::new(),
                };
                self.readers == [hold] && self.writer.is_none()
            }
            RegisterCall::Downgrade(hold) => {
                next = Self {
                    writer: None,
                    readers: vec![hold],
                };
                self.writer == Some(hold)
            }
            RegisterCall::IsWritten(answer) => answer == self.writer.is_some(),
        };
        fits.then_some(next)
    }
}

/// A semaphore of either kind.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Permits {
    pub(super) free: u32,
    /// Each request that has some, and how many.
    taken: BTreeMap<u32, u32>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PermitsCall {
    Acquire {
        request: u32,
        permits: u32,
    },
    /// As for [`LockCall::Busy`].
    Busy {
        permits: u32,
        others: bool,
    },
    /// Some of what the request has.
    Release {
        request: u32,
        permits: u32,
    },
    Free(u32),
}

impl Permits {
    pub(super) fn new(free: u32) -> Self {
        Self {
            free,
            taken: BTreeMap::new(),
        }
    }
}

impl Sequential for Permits {
    type Call = PermitsCall;

    fn acquires(call: &PermitsCall) -> Option<PermitsCall> {
        match *call {
            PermitsCall::Acquire { permits, .. } => Some(PermitsCall::Acquire {
                request: 0,
                permits,
            }),
            _ => None,
        }
    }

    fn is_read(call: &PermitsCall) -> bool {
        matches!(call, PermitsCall::Busy { .. } | PermitsCall::Free(_))
    }

    fn number(&self) -> Option<u32> {
        Some(self.free)
    }

    fn after(&self, call: &PermitsCall) -> Option<Self> {
        let mut next = self.clone();
        match *call {
            PermitsCall::Acquire { request, permits } => {
                next.free = self.free.checked_sub(permits)?;
                *next.taken.entry(request).or_default() += permits;
            }
            PermitsCall::Release { request, permits } => {
                let left = self.taken.get(&request)?.checked_sub(permits)?;
                next.free += permits;
                match left {
                    0 => drop(next.taken.remove(&request)),
                    _ => drop(next.taken.insert(request, left)),
                }
            }
            PermitsCall::Busy { permits, others } if others || self.free < permits => {}
            PermitsCall::Free(free) if free == self.free => {}
            PermitsCall::Busy { .. } | PermitsCall::Free(_) => return None,
        }
        Some(next)
    }
}

/// A latch: its count, if it has one.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Count(u64);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CountCall {
    /// Whether it was set. An unknown outcome is one that was.
    TrySet {
        count: u64,
        is_set: bool,
    },
    CountDown,
    /// A wait ended.
    Opened,
    Count(u64),
}

impl Sequential for Count {
    type Call = CountCall;

    fn is_read(call: &CountCall) -> bool {
        match call {
            CountCall::Opened | CountCall::Count(_) => true,
            CountCall::TrySet { is_set, .. } => !is_set,
            CountCall::CountDown => false,
        }
    }

    fn after(&self, call: &CountCall) -> Option<Self> {
        match *call {
            CountCall::TrySet { count, is_set } if is_set == (self.0 == 0) => Some(match is_set {
                true => Self(count),
                false => self.clone(),
            }),
            CountCall::CountDown => Some(Self(self.0.saturating_sub(1))),
            CountCall::Opened if self.0 == 0 => Some(self.clone()),
            CountCall::Count(count) if count == self.0 => Some(self.clone()),
            _ => None,
        }
    }
}

/// The values of a group, and who has each.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Values([Option<u32>; 4]);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ValuesCall {
    /// A bit for each value.
    Acquire {
        hold: u32,
        values: u8,
    },
    /// As for [`LockCall::Busy`].
    Busy {
        values: u8,
        others: bool,
    },
    Release {
        hold: u32,
    },
    /// Whether one of them is taken.
    AreTaken {
        values: u8,
        answer: bool,
    },
}

impl Values {
    fn any_of(&self, values: u8) -> bool {
        let mut all = self.0.iter().enumerate();
        all.any(|(i, has)| values >> i & 1 == 1 && has.is_some())
    }
}

impl Sequential for Values {
    type Call = ValuesCall;

    fn acquires(call: &ValuesCall) -> Option<ValuesCall> {
        match *call {
            ValuesCall::Acquire { values, .. } => Some(ValuesCall::Acquire { hold: 0, values }),
            _ => None,
        }
    }

    fn is_read(call: &ValuesCall) -> bool {
        matches!(call, ValuesCall::Busy { .. } | ValuesCall::AreTaken { .. })
    }

    fn after(&self, call: &ValuesCall) -> Option<Self> {
        let mut next = self.clone();
        let fits = match *call {
            ValuesCall::Acquire { hold, values } => {
                let all = next.0.iter_mut().enumerate();
                for (_, has) in all.filter(|(i, _)| values >> i & 1 == 1) {
                    *has = Some(hold);
                }
                !self.any_of(values)
            }
            ValuesCall::Release { hold } => {
                let own = next.0.iter_mut().filter(|has| **has == Some(hold));
                own.for_each(|has| *has = None);
                next != *self
            }
            ValuesCall::Busy { values, others } => others || self.any_of(values),
            ValuesCall::AreTaken { values, answer } => answer == self.any_of(values),
        };
        fits.then_some(next)
    }
}
