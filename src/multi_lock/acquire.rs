//! One round: an attempt to acquire every member, at which all are held or none is.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tracing::{Instrument, Span};

use super::members::{Member, Members};
use super::wait::Seat;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::hold::{Standing, Terms};
use crate::lock::released;
use crate::owner::Owner;
use crate::request::{Wait, Wish};
use crate::session::{Acquiring, AllTaken, Claim, Core, Together};

/// One call to acquire a multi lock.
///
/// The clients of the members may have clocks of their own, so moments do not go from one to another:
/// the call's are of the first member's client.
pub(super) struct Call<'a> {
    name: &'a str,
    pub(super) members: &'a Members,
    pub(super) owner: Owner,
    /// For each group.
    terms: Vec<Terms>,
    wait: Wait,
    pub(super) began: Moment,
    pub(super) deadline: Option<Moment>,
}

/// What a round came to; without all, nothing of it is held.
pub(super) enum Round {
    /// A claim on each member, in their order, for good.
    Taken(Vec<Claim>),
    Blocked(Blocked),
    /// A hold was given up by others while it was being acquired: as if it had not been asked for.
    Again,
    /// All was granted, and part of it over again by then.
    TooLate,
}

/// A member that somebody else has.
pub(super) struct Blocked {
    pub(super) member: usize,
    /// How long that one's lock lives on, if it has an end.
    pub(super) ttl: Option<Duration>,
    /// Others were acquired and given back for it.
    pub(super) collided: bool,
}

/// A failure, and the members that it is about.
pub(super) struct Trouble {
    pub(super) about: Range<usize>,
    pub(super) error: Error,
}

impl<'a> Call<'a> {
    /// Checks everything that can be checked before a command is sent.
    pub(super) fn new(
        name: &'a str,
        members: &'a Members,
        owner: Owner,
        wish: &Wish,
        wait: Wait,
    ) -> Result<Self> {
        let mut terms = Vec::with_capacity(members.groups().len());
        for group in members.groups() {
            let core = members.list()[group.start].core();
            core.open()?;
            terms.push(wish.terms(&core.settings)?);
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
            deadline: match wait {
                Wait::ForEver => None,
                Wait::AtMost(wait) => Some(began + wait),
                Wait::Not => Some(began + core.server.command_timeout()),
            },
        })
    }

    pub(super) async fn acquire(&self) -> Result<Option<Vec<Claim>>> {
        let span = self.span();
        let outcome = self.attempts().instrument(span.clone()).await;
        let waited = self.now().since(self.began);
        span.record("waited_ms", waited.as_millis() as u64);
        span.record(
            "outcome",
            match &outcome {
                Ok(Some(_)) => "acquired",
                Ok(None) => "busy",
                Err(_) => "failed",
            },
        );
        outcome
    }

    async fn attempts(&self) -> Result<Option<Vec<Claim>>> {
        let claims = match self.wait {
            Wait::Not => self.try_once().await?,
            Wait::ForEver | Wait::AtMost(_) => self.wait().await?,
        };
        if claims.is_some() {
            for member in self.members.list() {
                member.core().waiters.wake_owner(&member.key, self.owner);
            }
        }
        Ok(claims)
    }

    fn span(&self) -> Span {
        tracing::debug_span!(
            "acquire",
            lock = self.name,
            owner = %self.owner,
            outcome = tracing::field::Empty,
            waited_ms = tracing::field::Empty,
        )
    }

    /// One attempt, beside whoever else of these clients contends.
    async fn try_once(&self) -> Result<Option<Vec<Claim>>> {
        for member in self.members.list() {
            // A guard dropped just now must not look like somebody else's lock.
            self.released(member).await?;
        }
        loop {
            let round = self.round(None, None).await;
            match round.map_err(|trouble| self.named(trouble))? {
                Round::Taken(claims) => return Ok(Some(claims)),
                // Meanwhile another branch of this owner may have got it.
                Round::Blocked(Blocked { member, .. }) if self.holds(member) => {}
                Round::Blocked(_) => return Ok(None),
                Round::Again => {}
                Round::TooLate => return Err(self.too_late()),
            }
        }
    }

    /// Asks the `lead` group, and all others once that is granted; without a lead all at the same
    /// time.
    ///
    /// # Cancel safety
    ///
    /// What was acquired is given back in the background.
    pub(super) async fn round(
        &self,
        lead: Option<usize>,
        seat: Option<&Seat>,
    ) -> Result<Round, Trouble> {
        let began = self.now();
        let mut taken: Vec<Option<Claim>> = Vec::new();
        taken.resize_with(self.members.list().len(), || None);
        let (first, rest): (Vec<usize>, Vec<usize>) =
            (0..self.members.groups().len()).partition(|group| lead.is_none_or(|l| l == *group));
        for groups in [first, rest] {
            if let Some(end) = self.take(&groups, &mut taken, seat).await? {
                return Ok(end);
            }
        }
        Ok(self.confirm(taken.into_iter().flatten().collect(), began))
    }

    /// Acquires these groups, all at the same time. What the round has come to, if it ends here.
    async fn take(
        &self,
        groups: &[usize],
        taken: &mut [Option<Claim>],
        seat: Option<&Seat>,
    ) -> Result<Option<Round>, Trouble> {
        let mut under_way = FuturesUnordered::new();
        for group in groups {
            let (places, acquires) = self.prepare(*group, taken, seat).await?;
            if !acquires.is_empty() {
                under_way.push(self.send(*group, places, acquires));
            }
        }
        while let Some((group, places, outcome)) = under_way.next().await {
            if let Some(seat) = seat
                && self.members.groups()[group].contains(&seat.member)
            {
                seat.place.attempted();
            }
            let others = !under_way.is_empty() || taken.iter().any(Option::is_some);
            match outcome? {
                AllTaken::Granted(claims) => {
                    for (place, claim) in places.into_iter().zip(claims) {
                        taken[place] = Some(claim);
                    }
                }
                AllTaken::Busy(which, ttl) => {
                    return Ok(Some(Round::Blocked(Blocked {
                        member: places[which],
                        ttl,
                        collided: others,
                    })));
                }
                AllTaken::Ended => return Ok(Some(Round::Again)),
                AllTaken::TooLate => return Ok(Some(Round::TooLate)),
                AllTaken::Lost(lost) => {
                    return Err(Trouble {
                        about: self.members.groups()[group].clone(),
                        error: Error::Lost(lost),
                    });
                }
            }
        }
        Ok(None)
    }

    /// What there is to ask for in a group, and for which members; others are counted here at once.
    async fn prepare(
        &self,
        group: usize,
        taken: &mut [Option<Claim>],
        seat: Option<&Seat>,
    ) -> Result<(Vec<usize>, Vec<Acquiring>), Trouble> {
        let range = self.members.groups()[group].clone();
        let mut places = Vec::with_capacity(range.len());
        let mut acquires = Vec::with_capacity(range.len());
        for place in range {
            let member = &self.members.list()[place];
            let acquiring = match self.begin(member, group).await {
                Ok(Begun::Counted(claim)) => {
                    taken[place] = Some(claim);
                    continue;
                }
                Ok(Begun::Asking(acquiring)) => acquiring,
                Err(error) => {
                    let about = place..place + 1;
                    return Err(Trouble { about, error });
                }
            };
            if let Some(seat) = seat
                && seat.member == place
            {
                let now = member.core().clock.now();
                seat.place.attempting(acquiring.hold(), now);
            }
            places.push(place);
            acquires.push(acquiring);
        }
        Ok((places, acquires))
    }

    async fn begin(&self, member: &Member, group: usize) -> Result<Begun> {
        let Member { session, key, .. } = member;
        let core = member.core();
        let hold = match core.holds.standing(key, self.owner) {
            Standing::Holding(hold) => hold,
            Standing::Lost(lost) => return Err(Error::Lost(lost)),
            Standing::Forgotten(hold) => {
                core.report_lost(&hold);
                let acquiring = Acquiring::first(session, key, self.owner);
                return Ok(Begun::Asking(acquiring));
            }
            Standing::Acquiring | Standing::Nothing => {
                let acquiring = Acquiring::first(session, key, self.owner);
                return Ok(Begun::Asking(acquiring));
            }
        };
        if let Some(claim) = Claim::again(session, key, self.owner, &self.terms[group]) {
            return Ok(Begun::Counted(claim));
        }
        let now = core.clock.now();
        let until = self.until(core, now);
        let acquiring = Acquiring::again(session, hold, now, until).await?;
        Ok(Begun::Asking(acquiring))
    }

    async fn send(
        &self,
        group: usize,
        places: Vec<usize>,
        acquires: Vec<Acquiring>,
    ) -> (usize, Vec<usize>, Result<AllTaken, Trouble>) {
        let range = self.members.groups()[group].clone();
        let member = &self.members.list()[range.start];
        let core = member.core();
        let now = core.clock.now();
        let until = self.until(core, now);
        let together = Together::new(&member.session, acquires);
        let taken = together.attempt(self.terms[group].lease, now, until).await;
        let taken = taken.map_err(|(which, error)| {
            let about = which.map_or(range, |which| places[which]..places[which] + 1);
            Trouble { about, error }
        });
        (group, places, taken)
    }

    /// Makes the claims of a round that `began` then ones for good, if all are still valid.
    fn confirm(&self, mut claims: Vec<Claim>, began: Moment) -> Round {
        let age = self.now().since(began);
        let members = self.members.list();
        let is_over = |(claim, member): (&Claim, &Member)| {
            !claim.hold().state().is_valid(member.core().clock.now())
        };
        if claims.len() < members.len() || claims.iter().zip(members).any(is_over) {
            return Round::TooLate;
        }
        for (place, claim) in claims.iter_mut().enumerate() {
            let terms = &self.terms[self.members.group_of(place)];
            let then = members[place].core().clock.now().minus(age);
            let bound = terms.max_hold.map_or(Moment::NEVER, |bound| then + bound);
            claim.confirm(terms, bound);
        }
        Round::Taken(claims)
    }

    /// Waits until what its client gave up on a member is settled, or the deadline has come.
    async fn released(&self, member: &Member) -> Result<()> {
        let core = member.core();
        let Some(releasing) = core.holds.releasing(&member.key) else {
            return Ok(());
        };
        let now = core.clock.now();
        let deadline = self.left().map(|left| now + left);
        released(core, &releasing, self.owner, deadline, now).await
    }

    /// The failure, with the names of those that it is about.
    pub(super) fn named(&self, trouble: Trouble) -> Error {
        self.members.about(trouble.about, trouble.error)
    }

    /// The owner holds this member.
    pub(super) fn holds(&self, member: usize) -> bool {
        let member = &self.members.list()[member];
        let standing = member.core().holds.standing(&member.key, self.owner);
        matches!(standing, Standing::Holding(_) | Standing::Lost(_))
    }

    pub(super) fn now(&self) -> Moment {
        self.members.list()[0].core().clock.now()
    }

    /// The time that is left to the call; `None` if it waits for ever.
    pub(super) fn left(&self) -> Option<Duration> {
        let now = self.now();
        self.deadline.map(|deadline| deadline.since(now))
    }

    /// Up to when, on the clock of this client, one attempt may go on that begins now.
    fn until(&self, core: &Arc<Core>, now: Moment) -> Moment {
        let patience = core.server.command_timeout();
        let left = self.left().map(|left| left.max(GRACE));
        now + left.map_or(patience, |left| left.min(patience))
    }

    pub(super) fn too_late(&self) -> Error {
        Error::timeout(self.now().since(self.began))
    }
}

/// How the acquire of a member begins.
enum Begun {
    /// It is done: nobody has to be asked.
    Counted(Claim),
    Asking(Acquiring),
}

/// An attempt that begins within the caller's wait may take this long, even if the wait ends before.
const GRACE: Duration = Duration::from_millis(100);
