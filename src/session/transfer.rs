//! Hands a lock to the next owner of the same client, in one command.
//!
//! One command ends one hold and begins the next, and its answer is the next owner's grant. So the lock
//! is never free in between, and the next owner starts only after Redis has confirmed the grant
//! (design: invariant 1).

use std::sync::Arc;
use std::time::Duration;

use super::acquire::PendingAcquire;
use super::{Core, Session};
use crate::hold::{Hold, Streak, StreakEnd, TurnGuard};
use crate::key::{QueueSide, Script};
use crate::observe::End;
use crate::script::{self, HandOver, TransferReply};
use crate::server::{Failure, SendingPermit, Sent, TimeBox};
use crate::wait::{HandedOver, QueueEntry, Receiver, WaitRequest, WaiterKind};

/// A hand-over in flight. If it is dropped before it is complete, the background undoes its effect for
/// the receiver, and the receiver contends for itself.
pub(super) struct Transfer {
    receiver: Receiver,
    script: &'static Script,
    next: Next,
    lease: Duration,
    /// Of a semaphore, how many permits it hands over; 0 for a lock.
    permits: u32,
    finished: bool,
}

/// The hold that begins.
enum Next {
    /// Made for the hand-over, which undoes it unless the receiver takes it.
    New(PendingAcquire),
    /// The receiver's own hold, which waits in the server's queue. If the hand-over fails, the receiver
    /// sends a query.
    Queued(QueueEntry),
}

impl Next {
    fn hold(&self) -> &Arc<Hold> {
        match self {
            Self::New(next) => next.hold(),
            Self::Queued(entry) => &entry.hold,
        }
    }

    fn permit(&self) -> Option<SendingPermit> {
        match self {
            Self::New(next) => next.command().map(TurnGuard::permit),
            Self::Queued(entry) => entry.permit.clone(),
        }
    }

    fn give_to_receiver(&mut self, sent: &Sent) -> HandedOver {
        match self {
            Self::New(next) => next.give_to_receiver(sent),
            Self::Queued(entry) => HandedOver {
                hold: entry.hold.clone(),
                command: None,
                sent: sent.clone(),
            },
        }
    }
}

impl Transfer {
    /// Starts a hand-over if three conditions hold: locks of this kind are handed over, a waiter of
    /// this client can take what `hold` is about to release, and the streak may continue. If the streak
    /// has ended, other clients get the lock. `weight` is that of the claim that ended last.
    pub(super) fn begin(
        session: &Arc<Session>,
        hold: &Hold,
        weight: u32,
        TimeBox { now, until }: TimeBox,
    ) -> Option<Self> {
        let core = session.core();
        let script = hold.key().kind().scripts.transfer?;
        let queue = hold.key().kind().queue;
        // The server's queue decides which client is next, so the streak needs no limit.
        if queue == QueueSide::Client {
            let streak: Streak = hold.state().streak.as_deref().copied().unwrap_or_default();
            match streak.next(core.settings.hand_overs, now) {
                StreakEnd::HandOver => {}
                StreakEnd::Release => return None,
                StreakEnd::Yield(others) => {
                    core.waiters.back_off(hold.key(), others, now);
                    return None;
                }
            }
        }
        let (permits, kind) = match hold.key().kind().is_counted() {
            true => (weight, WaiterKind::Permits(weight)),
            false => (0, WaiterKind::Sole),
        };
        let receiver = core.waiters.receiver(hold.key(), kind, now)?;
        let WaitRequest { owner, terms, .. } = *receiver.request();
        let lease = terms?.lease;
        let next = match queue {
            QueueSide::Client => {
                let next = PendingAcquire::first(session, hold.key(), owner);
                Next::New(match permits {
                    0 => next,
                    _ => next.with_permits(permits),
                })
            }
            QueueSide::Server => Next::Queued(receiver.queue_entry()?),
        };
        core.holds.change(next.hold(), |state| {
            state.sending(until, lease);
            // The unlock may be abandoned with the hand-over in flight.
            state.require_acceptance(core.left_after(until));
        });
        if !receiver.announce(next.hold()) {
            return None;
        }
        hold.state().handing_on = true;
        Some(Self {
            receiver,
            script,
            next,
            lease,
            permits,
            finished: false,
        })
    }

    /// Sends the command.
    ///
    /// # Cancel safety
    ///
    /// `sent` says what may have run. [`Transfer::abandon`] has to be called then.
    pub(super) async fn send(
        &self,
        core: &Core,
        hold: &Hold,
        time: TimeBox,
        sent: &mut Sent,
    ) -> Result<TransferReply, Failure> {
        let (from, to) = (core.field(hold), core.field(self.next.hold()));
        if let Some(permit) = self.next.permit() {
            sent.needs(permit);
        }
        let in_doubt = !hold.state().certain;
        script::transfer(
            &core.server,
            hold.key(),
            &HandOver {
                script: self.script,
                ends: &from,
                begins: &to,
                lease: self.lease,
                queue_timeouts: core.settings.queue_timeouts,
                list: core.waiters.list_of(hold.key()).as_deref(),
                permits: self.permits,
                in_doubt,
            },
            time,
            sent,
        )
        .await
    }

    /// Informs the receiver of the answer. Returns true if the receiver got the lock.
    pub(super) fn finish(
        &mut self,
        session: &Arc<Session>,
        hold: &Hold,
        answer: &Result<TransferReply, Failure>,
        sent: &Sent,
    ) -> bool {
        self.finished = true;
        let Ok(TransferReply::Handed {
            ended_first,
            listening,
            token,
        }) = *answer
        else {
            let is_no = matches!(answer, Ok(_) | Err(Failure::Refused { .. }));
            self.fail(hold, sent, is_no && sent.is_answered());
            return false;
        };
        let core = session.core();
        let now = core.clock.now();
        let streak = matches!(self.next, Next::New(_)).then(|| {
            let own = u32::from(core.waiters.listens_unlisted(hold.key()));
            let others = listening.map(|listening| listening.saturating_sub(own));
            // The hold that ends passes its streak on.
            let mut streak = hold.state().streak.take().unwrap_or_default();
            streak.lengthen(others, now);
            streak
        });
        core.holds.change(self.next.hold(), |state| {
            state.streak = streak;
            state.handed_over = true;
            state.require_acceptance(now + core.settings.poll_cap);
        });
        self.next.hold().note_token(token);
        if ended_first || sent.repeated {
            hold.state().ended_as = End::HandedOn;
            core.totals.count_hand_over();
        }
        let handed = self.next.give_to_receiver(sent);
        if let Some(declined) = self.receiver.deliver(handed, now) {
            match self.next {
                // Dropping it undoes the grant and wakes the next waiter.
                Next::New(_) => drop(PendingAcquire::handed(session, declined)),
                // The receiver's next query finds the grant. If the receiver leaves instead, it gives its
                // place back, which undoes the grant. If it has left before, the server did not grant.
                Next::Queued(_) => self.receiver.wake(),
            }
        }
        true
    }

    /// Notes that the answer is unknown, unless the hand-over is complete.
    pub(super) fn abandon(&mut self, hold: &Hold, sent: &Sent) {
        if !self.finished {
            self.fail(hold, sent, false);
        }
    }

    /// The receiver does not get the lock by this. `refused`: the answer was a definite no.
    fn fail(&mut self, hold: &Hold, sent: &Sent, refused: bool) {
        hold.state().handing_on = false;
        match &mut self.next {
            Next::New(next) => next.note(sent, refused),
            // The command may still be granted.
            Next::Queued(_) if !refused => self.receiver.lose_answer(),
            Next::Queued(_) => {}
        }
    }
}
