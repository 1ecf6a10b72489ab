//! One call to acquire a multi lock: a single attempt, or a wait.

use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument, Span};

use super::members::{LockMember, MemberGroups};
use super::outcome::{Blocked, MultiRound, Trouble};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::hold::{OwnerState, Terms};
use crate::key::Mode;
use crate::lock::released;
use crate::lock_request::{
    AcquireOptions, FIRST_ATTEMPT, WaitLimit, acquire_span, record, record_server,
};
use crate::observe::LockRef;
use crate::owner::Owner;
use crate::session::{Claim, Core};

/// One call to acquire a multi lock.
///
/// The clients of the members may have different clocks, so a moment of one clock is never used on
/// another. The call's own moments are of the first member's client.
pub(super) struct MultiLockCall<'a> {
    name: &'a str,
    pub(super) members: &'a MemberGroups,
    pub(super) owner: Owner,
    /// For each group.
    pub(super) terms: Vec<Terms>,
    wait: WaitLimit,
    pub(super) began: Moment,
    pub(super) deadline: Option<Moment>,
}

impl<'a> MultiLockCall<'a> {
    /// Checks everything that can be checked before a command is sent.
    pub(super) fn new(
        name: &'a str,
        members: &'a MemberGroups,
        owner: Owner,
        options: &AcquireOptions,
        wait: WaitLimit,
    ) -> Result<Self> {
        let mut terms = Vec::with_capacity(members.groups().len());
        for group in members.groups() {
            let core = members.list()[group.start].core();
            core.ensure_open()?;
            terms.push(options.terms(&core.settings)?);
        }
        let core = members.list()[0].core();
        let began = core.clock.now();
        Ok(Self {
            name,
            members,
            owner,
            terms,
            wait,
            began,
            deadline: wait.deadline(began, core.server.command_timeout()),
        })
    }

    pub(super) async fn acquire(&self) -> Result<Option<Vec<Claim>>> {
        let span = self.span();
        let members = self.members.list().iter();
        record_server(
            &span,
            members.map(|member| (&member.core().server, member.key.key())),
        );
        let outcome = self.attempts().instrument(span.clone()).await;
        let waited = self.now().since(self.began);
        record(&span, &outcome, waited);
        // The time in the last error covers only a part of the call.
        outcome.map_err(|error| error.after(waited))
    }

    async fn attempts(&self) -> Result<Option<Vec<Claim>>> {
        let claims = match self.wait {
            WaitLimit::Not => self.try_once().await?,
            WaitLimit::ForEver | WaitLimit::AtMost(_) => self.wait().await?,
        };
        if claims.is_some() {
            for member in self.members.list() {
                member.core().waiters.wake_owner(&member.key, self.owner);
            }
        }
        Ok(claims)
    }

    fn span(&self) -> Span {
        acquire_span!("lockdog::lock", lock = self.name, owner = %self.owner)
    }

    pub(super) fn shown(&self) -> LockRef<'_> {
        self.members.shown(self.name, self.owner)
    }

    /// One attempt, beside the contenders of these clients.
    async fn try_once(&self) -> Result<Option<Vec<Claim>>> {
        loop {
            for member in self.members.list() {
                // A guard dropped just now must not look like another owner's lock, nor what the last round
                // acquired and released.
                self.released(member).await?;
            }
            let round = self.round(None, None, None).await;
            match round.map_err(|trouble| self.named(trouble))? {
                MultiRound::Taken(claims) => return Ok(Some(claims)),
                // Another call of this owner may have acquired it meanwhile.
                MultiRound::Blocked(Blocked { member, .. }) if self.may_reenter(member) => {}
                MultiRound::Blocked(_) => return Ok(None),
                MultiRound::Again => {}
                MultiRound::TooLate => return Err(self.too_late()),
            }
        }
    }

    /// Waits until the member's client has settled a hold that it is releasing, or until the deadline.
    async fn released(&self, member: &LockMember) -> Result<()> {
        let core = member.core();
        let Some(releasing) = core.holds.releasing(&member.key) else {
            return Ok(());
        };
        let now = core.clock.now();
        let deadline = self.left().map(|left| now + left);
        released(core, &releasing, self.owner, deadline, now).await
    }

    /// The error, with the names of the members that it is about.
    pub(super) fn named(&self, trouble: Trouble) -> Error {
        self.members.about(trouble.about, trouble.error)
    }

    /// Fails if the owner holds a member that is not reentrant, or lost such a member and still has a guard of
    /// it.
    pub(super) fn refuse_held(&self) -> Result<()> {
        for (at, member) in self.members.list().iter().enumerate() {
            self.refuse_deadlock(at, member)?;
            if member.key.kind().reentrant {
                continue;
            }
            let core = member.core();
            let error: Error = match core.owner_state(&member.key, self.owner) {
                OwnerState::Holding(hold) => hold.already_held(core.clock.now()).into(),
                OwnerState::Lost(_, lost) => Error::Lost(lost),
                OwnerState::Acquiring | OwnerState::Nothing => continue,
            };
            return Err(self.members.about(at..at + 1, error));
        }
        Ok(())
    }

    /// Fails if the call would wait for its own owner: without limit for a write lock that the owner reads, or
    /// for values of a group some of which the owner holds by another lock.
    fn refuse_deadlock(&self, at: usize, member: &LockMember) -> Result<()> {
        if !member.key.values().is_empty()
            && let Some(overlapping) = member.core().holds.overlapping(&member.key, self.owner)
        {
            return Err(self.members.about(at..at + 1, overlapping.would_deadlock()));
        }
        let is_write = member.key.mode() == Some(Mode::Write);
        if is_write
            && self.deadline.is_none()
            && let Some(reads) = member.core().holds.partner_of(&member.key, self.owner)
        {
            return Err(self.members.about(at..at + 1, reads.would_deadlock()));
        }
        Ok(())
    }

    /// What the owner has of this member. A member that is not reentrant counts as nothing: only another call of
    /// the owner can hold it, and this call waits for that one as for another owner.
    pub(super) fn owner_state(&self, member: &LockMember) -> OwnerState {
        if !member.key.kind().reentrant {
            return OwnerState::Nothing;
        }
        member.core().owner_state(&member.key, self.owner)
    }

    /// Whether the owner holds or lost this member: the next round re-enters it, or reports the loss.
    pub(super) fn may_reenter(&self, member: usize) -> bool {
        let state = self.owner_state(&self.members.list()[member]);
        matches!(state, OwnerState::Holding(_) | OwnerState::Lost(..))
    }

    /// Whether the call asks for this member without the contender's role: it re-enters, or its owner writes and
    /// it wants to read. The other waiters of the client may wait for that owner.
    pub(super) fn may_overtake(&self, at: usize) -> bool {
        let member = &self.members.list()[at];
        let holds = &member.core().holds;
        self.may_reenter(at) || holds.reads_own_write(&member.key, self.owner)
    }

    pub(super) fn now(&self) -> Moment {
        self.members.list()[0].core().clock.now()
    }

    /// The time left to the call; `None` if it has no limit.
    pub(super) fn left(&self) -> Option<Duration> {
        let now = self.now();
        self.deadline.map(|deadline| deadline.since(now))
    }

    /// When an attempt that begins now has to end, on the clock of this client.
    pub(super) fn until(&self, core: &Arc<Core>, now: Moment) -> Moment {
        let timeout = core.server.command_timeout();
        let ends = self
            .deadline
            .map(|deadline| deadline.max(self.began + FIRST_ATTEMPT));
        let left = ends.map(|ends| ends.since(self.now()));
        now + left.map_or(timeout, |left| left.min(timeout))
    }

    /// Whether an attempt at this client from `now` to `until` has a whole command timeout. If not, a
    /// timeout means that the caller has no more time, not that the server does not answer.
    pub(super) fn has_full_timeout(core: &Core, now: Moment, until: Moment) -> bool {
        until.since(now) >= core.server.command_timeout()
    }

    pub(super) fn too_late(&self) -> Error {
        Error::timeout(self.waited())
    }

    pub(super) fn waited(&self) -> Duration {
        self.now().since(self.began)
    }

    /// When the call has to end, on the clock of this client.
    pub(super) fn deadline_of(&self, core: &Core) -> Option<Moment> {
        let deadline = self.deadline?;
        let own = self.members.list()[0].core();
        if own.id == core.id {
            return Some(deadline);
        }
        let (now, then) = (own.clock.now(), core.clock.now());
        // A deadline that has passed must stay one: the result is then not later than that clock's now.
        Some(then.minus(now.since(deadline)) + deadline.since(now))
    }
}
