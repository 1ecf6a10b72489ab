//! The sequential object of a fair lock with its queue. The other objects are in `objects`.

use super::search::Sequential;

/// A fair lock: its holder, and the waiters in the order of their entries.
///
/// A grant goes to the first waiter only (FA3). So waiters that entered one after the other are granted in that order
/// (FA4), and waiters whose entries overlap in time in either order. The object is exact, with these limits:
///
/// - A call that takes a free lock at once also enters the queue: it enters and is granted in one command, so no
///   waiter may be before it.
/// - A waiter that leaves without an answer leaves at any time after that, or never.
/// - A place is lost only by [`FairCall::Expire`], and only by the first waiter, because a script drops no other one.
///   The history says from when on this may happen. The object does not require that it happens then (FA6). A waiter
///   that was dropped enters again at the end.
/// - The histories have waiters of lockdog only. A script of Redisson drops a waiter of lockdog at its score, and the
///   waiter comes back to the front. `interop::fair` checks the order of a queue of both.
/// - A client gives up the place of a waiter that is not polled for a poll cap. The histories have no such waiter.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct FairQueue {
    holder: Option<u32>,
    waiting: Vec<u32>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum FairCall {
    /// The hold takes the last place in the queue.
    Enter(u32),
    /// It has the lock from now on.
    Grant(u32),
    /// It releases the lock or leaves the queue.
    Leave(u32),
    /// It is first and not present any more, and loses its place.
    Expire(u32),
    /// What the server has.
    Seen {
        holder: Option<u32>,
        waiting: Vec<u32>,
    },
}

impl FairCall {
    /// The hold that it changes.
    pub(super) fn hold(&self) -> Option<u32> {
        match *self {
            Self::Enter(hold) | Self::Grant(hold) | Self::Leave(hold) | Self::Expire(hold) => {
                Some(hold)
            }
            Self::Seen { .. } => None,
        }
    }
}

impl Sequential for FairQueue {
    type Call = FairCall;

    fn is_read(call: &FairCall) -> bool {
        matches!(call, FairCall::Seen { .. })
    }

    fn after(&self, call: &FairCall) -> Option<Self> {
        let is_first = |hold| self.waiting.first() == Some(hold);
        let mut next = self.clone();
        let fits = match call {
            FairCall::Enter(hold) => {
                next.waiting.push(*hold);
                self.holder != Some(*hold) && !self.waiting.contains(hold)
            }
            FairCall::Grant(hold) => {
                next.waiting.retain(|it| it != hold);
                next.holder = Some(*hold);
                self.holder.is_none() && is_first(hold)
            }
            FairCall::Leave(hold) => {
                next.waiting.retain(|it| it != hold);
                next.holder = self.holder.filter(|it| it != hold);
                next != *self
            }
            FairCall::Expire(hold) => {
                next.waiting.retain(|it| it != hold);
                is_first(hold)
            }
            FairCall::Seen { holder, waiting } => {
                self.holder == *holder && self.waiting == *waiting
            }
        };
        fits.then_some(next)
    }
}
