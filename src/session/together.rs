//! Acquiring several locks of one client by one command: all of them, or none.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::{Acquiring, Attempt};
use super::replicas::acknowledge;
use super::{Claim, Core, Session};
use crate::clock::Moment;
use crate::error::{Error, Lost, LostReason};
use crate::hold::{Command, Terms};
use crate::script::{self, AllAcquired, Wanted};
use crate::server::{Allotted, Failure, Sent};

/// Acquires under way that succeed or fail as one. Dropped before they came to an end, they are
/// undone in the background (design: invariant 6).
pub(crate) struct Together {
    session: Arc<Session>,
    parts: Vec<Acquiring>,
    sent: Sent,
    /// The parts know what was sent, and what it came to.
    noted: bool,
}

/// What one attempt at all of them came to. Locks are named by their places among the acquires.
pub(crate) enum AllTaken {
    /// One claim for each, in their order.
    Granted(Vec<Claim>),
    /// Somebody else has this one; its TTL, if it has one.
    Busy(usize, Option<Duration>),
    /// A hold that was to be re-entered was lost.
    Lost(Lost),
    /// One of the holds was given up while the command was under way: this is no grant.
    Ended,
    /// It was granted, and answered after the deadline of one of them: this is no grant.
    TooLate,
}

impl Together {
    /// What these acquires, all of this client, do as one.
    pub(crate) fn new(session: &Arc<Session>, parts: Vec<Acquiring>) -> Self {
        Self {
            session: session.clone(),
            parts,
            sent: Sent::default(),
            noted: false,
        }
    }

    /// Sends the command, from `now` on, and again while there is time and reason to. The claims
    /// that it gives have neither a watchdog nor a bound: they are to be confirmed.
    ///
    /// An error comes with the acquire that it is about, if it is about one.
    ///
    /// # Cancel safety
    ///
    /// Whatever the command does is undone in the background.
    pub(crate) async fn attempt(
        mut self,
        lease: Duration,
        now: Moment,
        until: Moment,
    ) -> Result<AllTaken, (Option<usize>, Error)> {
        let session = self.session.clone();
        let core = session.core();
        // Looked at after the holds were entered: the end of the client misses neither.
        core.open().map_err(|error| (None, error))?;
        for part in &self.parts {
            let possible = core.can_be_acknowledged(part.hold().key().key());
            possible.map_err(|error| (None, error))?;
            let vouched = part.is_vouched_for(lease, now);
            vouched.map_err(|failure| (None, failure.into()))?;
        }
        let mut targets = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            match part.target(lease, now, until) {
                Some(target) => targets.push(target),
                None => return Ok(gone(part)),
            }
        }
        let time = Allotted { now, until };
        let Some(acquired) = self.send(core, &targets, lease, time).await else {
            return Ok(AllTaken::Ended);
        };
        let is_no = matches!(
            &acquired,
            Ok(AllAcquired::Busy(..) | AllAcquired::Gone(_)) | Err((_, Failure::Refused { .. }))
        );
        let refused = is_no && self.sent.is_answered();
        self.note(refused);
        match acquired.map_err(|(which, failure)| (which, failure.into()))? {
            AllAcquired::Granted => {
                let acknowledged = self.acknowledged(until).await;
                acknowledged.map_err(|error| (None, error))?;
                self.take_in(lease).map_err(|error| (None, error))
            }
            AllAcquired::Busy(which, ttl) => Ok(AllTaken::Busy(which, ttl)),
            AllAcquired::Gone(which) => {
                core.lose(self.parts[which].hold(), LostReason::NotOurs);
                Ok(gone(&self.parts[which]))
            }
        }
    }

    /// Waits for the replicas behind the grant of all of them.
    async fn acknowledged(&mut self, until: Moment) -> Result<(), Error> {
        if self.session.core().server.ack().is_off() {
            return Ok(());
        }
        let mut parts: Vec<&mut Acquiring> = self.parts.iter_mut().collect();
        // Boxed: it is large, and part of every acquire otherwise.
        Box::pin(acknowledge(&mut parts, until)).await
    }

    async fn send(
        &mut self,
        core: &Core,
        targets: &[u32],
        lease: Duration,
        time: Allotted,
    ) -> Option<Result<AllAcquired, (Option<usize>, Failure)>> {
        let turns: Vec<&Command> = self.parts.iter().filter_map(Acquiring::command).collect();
        self.sent = Sent::with(turns.iter().map(|turn| turn.permit()));
        let wanted: Vec<Wanted<'_>> = self
            .parts
            .iter()
            .zip(targets)
            .map(|(part, target)| Wanted {
                key: part.hold().key(),
                field: core.field(part.hold()),
                target: *target,
            })
            .collect();
        let sending = script::acquire_all(&core.server, &wanted, lease, time, &mut self.sent);
        Command::attend(&turns, pin!(sending)).await
    }

    fn note(&mut self, refused: bool) {
        self.noted = true;
        for part in &mut self.parts {
            part.note(&self.sent, refused);
        }
    }

    /// Takes in what was granted. If one of them is no grant, the others are given back.
    fn take_in(&mut self, lease: Duration) -> Result<AllTaken, Error> {
        let terms = Terms {
            lease,
            watched: false,
            max_hold: None,
            local: false,
        };
        let mut claims = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            match part.take_in(&terms)? {
                Attempt::Granted(claim) => claims.push(claim),
                Attempt::TooLate => return Ok(AllTaken::TooLate),
                Attempt::Lost(lost) => return Ok(AllTaken::Lost(lost)),
                Attempt::Busy(_) | Attempt::Ended => return Ok(AllTaken::Ended),
            }
        }
        Ok(AllTaken::Granted(claims))
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        if !self.noted {
            // Nobody saw an answer, so that each of them has to be undone.
            self.note(false);
        }
    }
}

fn gone(part: &Acquiring) -> AllTaken {
    match part.gone() {
        Attempt::Lost(lost) => AllTaken::Lost(lost),
        _ => AllTaken::Ended,
    }
}
