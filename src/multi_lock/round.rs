//! One round: an attempt to acquire every member. It ends with all members held or none.

use std::pin::pin;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::acquire::MultiLockCall;
use super::members::LockMember;
use super::outcome::{Blocked, MultiRound, Trouble};
use super::round_claims::RoundClaims;
use crate::clock::Moment;
use crate::contend::QueuePlace;
use crate::error::{Error, Result};
use crate::hold::OwnerState;
use crate::key::Mode;
use crate::session::{BatchAcquire, BatchAttempt, Claim, PendingAcquire};

impl MultiLockCall<'_> {
    /// Asks the `lead` group first, and all others once that is granted. Without a lead it asks all
    /// groups in parallel. `turn` is the member that was granted in its server's queue already.
    ///
    /// # Cancel safety
    ///
    /// What was acquired is released in the background.
    pub(super) async fn round(
        &self,
        lead: Option<usize>,
        place: Option<&QueuePlace>,
        turn: Option<MemberTurn>,
    ) -> Result<MultiRound, Trouble> {
        let members = self.members.list();
        let claims = RoundClaims::new(members[0].core(), members.len());
        let round = pin!(self.round_into(&claims, lead, place, turn));
        claims.drive(round).await
    }

    async fn round_into(
        &self,
        claims: &RoundClaims,
        lead: Option<usize>,
        place: Option<&QueuePlace>,
        turn: Option<MemberTurn>,
    ) -> Result<MultiRound, Trouble> {
        let mut taken = Taken {
            claims,
            is_fresh: false,
            began: None,
        };
        let mut groups: Vec<usize> = (0..self.members.groups().len()).collect();
        if let Some(turn) = turn {
            let member = turn.member;
            claims.put(member, turn.claim);
            taken.is_fresh = true;
            taken.began = Some(turn.began);
            // A member with a queue on the server is the only one of its group.
            groups.retain(|group| *group != self.members.group_of(member));
        }
        let is_first = |group: &usize| lead.is_none_or(|lead| lead == *group);
        let (first, rest): (Vec<usize>, Vec<usize>) = groups.into_iter().partition(is_first);
        for groups in [first, rest] {
            if let Some(end) = self.take(&groups, &mut taken, place).await? {
                return Ok(end);
            }
        }
        let began = taken.began.unwrap_or_else(|| self.now());
        Ok(match claims.take() {
            Some(claims) => self.finish(claims.into_iter().flatten().collect(), began),
            // The call's future was not polled, so the client's thread gave the claims back.
            None => MultiRound::Again,
        })
    }

    /// Acquires these groups in parallel. Returns the outcome if the round ends here.
    async fn take(
        &self,
        groups: &[usize],
        taken: &mut Taken<'_>,
        place: Option<&QueuePlace>,
    ) -> Result<Option<MultiRound>, Trouble> {
        let mut under_way = FuturesUnordered::new();
        let mut fresh = 0;
        for group in groups {
            let (places, acquires) = self.prepare(*group, taken, place).await?;
            if !acquires.is_empty() {
                let is_fresh = acquires.iter().any(PendingAcquire::is_first);
                fresh += usize::from(is_fresh);
                let sent = self.send(*group, places, acquires);
                under_way.push(async move { (is_fresh, sent.await) });
            }
        }
        // Read after the preparation, which may have waited for another command of the owner.
        taken.began.get_or_insert_with(|| self.now());
        loop {
            if !under_way.is_empty() {
                taken.claims.watch();
            }
            let Some((is_fresh, (group, places, outcome))) = under_way.next().await else {
                return Ok(None);
            };
            fresh -= usize::from(is_fresh);
            if let Some(place) = place
                && self.members.groups()[group].contains(&place.at)
            {
                place.waiter.attempted();
            }
            match outcome? {
                BatchAttempt::Granted { claims, .. } => {
                    taken.is_fresh |= is_fresh;
                    for (waiter, claim) in places.into_iter().zip(claims) {
                        taken.claims.put(waiter, claim);
                    }
                }
                BatchAttempt::Busy(which, ttl) => {
                    return Ok(Some(MultiRound::Blocked(Blocked {
                        member: places[which],
                        ttl,
                        collided: taken.is_fresh || fresh > 0,
                    })));
                }
                BatchAttempt::Ended => return Ok(Some(MultiRound::Again)),
                BatchAttempt::TooLate => return Ok(Some(MultiRound::TooLate)),
                BatchAttempt::Lost(lost) => {
                    return Err(Trouble {
                        about: self.members.groups()[group].clone(),
                        error: Error::Lost(lost),
                        had_full_timeout: false,
                    });
                }
            }
        }
    }

    /// The acquires to send for a group, with their members. Members that need no command are counted
    /// immediately.
    async fn prepare(
        &self,
        group: usize,
        taken: &mut Taken<'_>,
        place: Option<&QueuePlace>,
    ) -> Result<(Vec<usize>, Vec<PendingAcquire>), Trouble> {
        let range = self.members.groups()[group].clone();
        let mut places = Vec::with_capacity(range.len());
        let mut acquires = Vec::with_capacity(range.len());
        for waiter in range {
            let member = &self.members.list()[waiter];
            let acquiring = match self.begin(member, group, taken.claims).await {
                Ok(Begun::Counted(claim)) => {
                    taken.claims.put(waiter, claim);
                    continue;
                }
                Ok(Begun::Asking(acquiring)) => acquiring,
                Err(error) => {
                    // It may have waited for another command of its owner, but it sent none.
                    return Err(Trouble {
                        about: waiter..waiter + 1,
                        error,
                        had_full_timeout: false,
                    });
                }
            };
            if let Some(place) = place
                && place.at == waiter
            {
                let now = member.core().clock.now();
                place.waiter.attempting(acquiring.hold(), now);
            }
            places.push(waiter);
            acquires.push(acquiring);
        }
        Ok((places, acquires))
    }

    async fn begin(
        &self,
        member: &LockMember,
        group: usize,
        claims: &RoundClaims,
    ) -> Result<Begun> {
        let LockMember { session, key, .. } = member;
        let core = member.core();
        let hold = match self.owner_state(member) {
            OwnerState::Holding(hold) => hold,
            OwnerState::Lost(_, lost) => return Err(Error::Lost(lost)),
            OwnerState::Acquiring | OwnerState::Nothing => {
                return Ok(Begun::Asking(self.first(member)));
            }
        };
        if let Some(claim) = Claim::again(session, key, self.owner, &self.terms[group]) {
            return Ok(Begun::Counted(claim));
        }
        let now = core.clock.now();
        let until = self.until(core, now);
        // It may wait for another command of the hold.
        claims.watch();
        let acquiring = PendingAcquire::again(session, hold, now, until).await?;
        Ok(Begun::Asking(acquiring))
    }

    fn first(&self, member: &LockMember) -> PendingAcquire {
        let LockMember { session, key, .. } = member;
        let mut acquiring = PendingAcquire::first(session, key, self.owner);
        // The call holds nothing while it waits, so it announces no writer. Its reads still let the announced
        // writers of others go first.
        let reads = key.mode() == Some(Mode::Read);
        acquiring.modes.gives_way = reads.then(|| self.waited());
        acquiring
    }

    async fn send(
        &self,
        group: usize,
        places: Vec<usize>,
        acquires: Vec<PendingAcquire>,
    ) -> (usize, Vec<usize>, Result<BatchAttempt, Trouble>) {
        let range = self.members.groups()[group].clone();
        let member = &self.members.list()[range.start];
        let core = member.core();
        let now = core.clock.now();
        let until = self.until(core, now);
        let together = BatchAcquire::new(&member.session, acquires);
        let taken = together.attempt(self.terms[group].lease, now, until).await;
        let taken = taken.map_err(|(which, error)| {
            let about = which.map_or(range, |which| places[which]..places[which] + 1);
            Trouble {
                about,
                error,
                had_full_timeout: Self::has_full_timeout(core, now, until),
            }
        });
        (group, places, taken)
    }

    /// Confirms the claims of a round whose first command was sent at `began`, if all are still valid.
    fn finish(&self, mut claims: Vec<Claim>, began: Moment) -> MultiRound {
        let age = self.now().since(began);
        let members = self.members.list();
        let is_over = |(claim, member): (&Claim, &LockMember)| {
            !claim.hold().state().is_valid(member.core().clock.now())
        };
        if claims.len() < members.len() || claims.iter().zip(members).any(is_over) {
            return MultiRound::TooLate;
        }
        for (waiter, claim) in claims.iter_mut().enumerate() {
            let terms = &self.terms[self.members.group_of(waiter)];
            let then = members[waiter].core().clock.now().minus(age);
            let bound = terms.max_hold.map_or(Moment::NEVER, |bound| then + bound);
            claim.confirm(terms, bound);
        }
        MultiRound::Taken(claims)
    }
}

/// A member that a round begins with: the call was the first in its server's queue.
pub(super) struct MemberTurn {
    pub(super) member: usize,
    pub(super) claim: Claim,
    /// Before its command was sent.
    pub(super) began: Moment,
}

/// What a round has acquired so far.
struct Taken<'a> {
    claims: &'a RoundClaims,
    /// Some of the claims are on members that the owner did not hold before.
    is_fresh: bool,
    /// Before the first command was sent.
    began: Option<Moment>,
}

/// How the acquire of a member begins.
enum Begun {
    /// It is counted locally: no server has to be asked.
    Counted(Claim),
    Asking(PendingAcquire),
}
