//! What one owner holds, or is acquiring, on many instances.

use std::any::Any;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio_util::sync::CancellationToken;

use super::Inner;
use super::order::{Order, Question};
use super::part::{Taking, Told};
use crate::clock::{Clock, Moment};
use crate::error::{Error, Instance, InstanceState, Lost, LostFacts, LostReason};
use crate::hold::Terms;
use crate::lease;
use crate::owner::Owner;
use crate::quorum::{Action, Actions, Answer, Event, Outcome, Phase, Quorum, Rules};
use crate::session::{Claim, Turn};

/// One owner's hold on a lock of many instances.
///
/// Lock order: its state before anything of a client's.
pub(super) struct Whole {
    pub(super) lock: Arc<Inner>,
    pub(super) owner: Owner,
    terms: Terms,
    pub(super) clock: Clock,
    pub(super) acquired: Moment,
    state: Mutex<State>,
    pub(super) lost: CancellationToken,
}

pub(super) struct State {
    pub(super) quorum: Quorum,
    claims: SmallVec<[Option<Claim>; 5]>,
    /// Why an instance could not be had when it was last asked.
    causes: SmallVec<[Option<Error>; 5]>,
    /// Living claims: guards and forgotten ones.
    pub(super) count: u32,
    /// The claims among them that were taken without a lease.
    pub(super) watched: u32,
    /// The claims among them whose guards were forgotten, and whether those are watched.
    pub(super) forgotten: Vec<bool>,
    /// Orders whose answers nobody will bring.
    pub(super) dropped: Vec<(usize, u32)>,
    /// The client whose thread looks after it, and where it stands there.
    pub(super) keeper: usize,
    pub(super) turn: Option<Turn>,
    pub(super) told_lost: bool,
}

impl Whole {
    /// Begins to acquire: what is to be done for it.
    pub(super) fn begin(
        lock: &Arc<Inner>,
        owner: Owner,
        terms: &Terms,
        now: Moment,
    ) -> (Arc<Self>, Vec<Order>) {
        let parts = lock.parts().len();
        let max_until = terms.max_hold.map_or(Moment::NEVER, |bound| now + bound);
        let rules = lock.rules(terms, max_until);
        let (quorum, actions) = Quorum::begin(rules, now);
        let whole = Arc::new(Self {
            lock: lock.clone(),
            owner,
            terms: Terms {
                watched: false,
                max_hold: None,
                local: false,
                ..*terms
            },
            clock: lock.clock().clone(),
            acquired: now,
            state: Mutex::new(State {
                quorum,
                claims: (0..parts).map(|_| None).collect(),
                causes: (0..parts).map(|_| None).collect(),
                count: 0,
                watched: 0,
                forgotten: Vec::new(),
                dropped: Vec::new(),
                keeper: 0,
                turn: None,
                told_lost: false,
            }),
            lost: CancellationToken::new(),
        });
        let orders = whole.orders(&mut whole.state(), actions);
        (whole, orders)
    }

    /// Looks at the state, without a step.
    pub(super) fn see<T>(&self, look: impl FnOnce(&mut State, Moment) -> T) -> T {
        let now = self.clock.now();
        look(&mut self.state(), now)
    }

    /// Tells the quorum what happened: what is to be done about it.
    pub(super) fn step(self: &Arc<Self>, event: Event) -> Vec<Order> {
        let mut state = self.state();
        self.step_in(&mut state, event)
    }

    /// As [`Whole::step`], under the state's lock.
    pub(super) fn step_in(self: &Arc<Self>, state: &mut State, event: Event) -> Vec<Order> {
        let now = self.clock.now();
        let mut actions = Actions::new();
        for (member, round) in std::mem::take(&mut state.dropped) {
            let event = Event::Answered {
                member,
                round,
                answer: Answer::Failed,
            };
            actions.extend(state.quorum.step(event, now));
        }
        actions.extend(state.quorum.step(event, now));
        let orders = self.orders(state, actions);
        self.follow(state);
        orders
    }

    /// Tells the quorum what an instance answered.
    pub(super) fn take_in(self: &Arc<Self>, member: usize, round: u32, told: Told) -> Vec<Order> {
        let mut state = self.state();
        if told.claim.is_some() {
            state.claims[member] = told.claim;
        }
        if told.cause.is_some() {
            state.causes[member] = told.cause;
        }
        let event = Event::Answered {
            member,
            round,
            answer: told.answer,
        };
        let mut orders = self.step_in(&mut state, event);
        if !state.quorum.has(member)
            && let Some(unwanted) = state.claims[member].take()
        {
            orders.push(Order::GiveBack(unwanted));
        }
        orders
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The round is over: it is held from now on, by one claim. False if it was not won.
    pub(super) fn claim_first(self: &Arc<Self>, terms: &Terms) -> bool {
        let mut state = self.state();
        if !state.quorum.is_living() {
            return false;
        }
        state.count = 1;
        state.watched = u32::from(terms.watched);
        self.follow(&mut state);
        drop(state);
        let known: Arc<dyn Any + Send + Sync> = self.clone();
        let upkeep = &self.lock.home().core().upkeep;
        upkeep.know(self.owner, &self.lock.id, Arc::downgrade(&known));
        true
    }

    /// One claim more. False if it is not held any more.
    pub(super) fn claim_again(self: &Arc<Self>, terms: &Terms) -> bool {
        let mut state = self.state();
        let now = self.clock.now();
        if !state.quorum.is_valid(now) || state.count == 0 {
            return false;
        }
        state.count += 1;
        state.watched += u32::from(terms.watched);
        if let Some(bound) = terms.max_hold {
            state.quorum.bound(now + bound);
        }
        self.follow(&mut state);
        true
    }

    /// A call of its owner finds nothing of it any more.
    pub(super) fn be_unknown(self: &Arc<Self>) {
        let known: Arc<dyn Any + Send + Sync> = self.clone();
        let upkeep = &self.lock.home().core().upkeep;
        upkeep.know_no_more(self.owner, &self.lock.id, &known);
    }

    /// Nobody will bring the answer to this order.
    pub(super) fn note_dropped(self: &Arc<Self>, member: usize, round: u32) {
        let mut state = self.state();
        state.dropped.push((member, round));
        if state.quorum.is_living() {
            self.be_kept(&mut state, self.clock.now());
        }
    }

    /// Asks one instance.
    pub(super) async fn ask(&self, member: usize, question: &Question, until: Moment) -> Told {
        let part = &self.lock.parts()[member];
        let lease = self.state().quorum.rules().lease;
        match question {
            Question::Take => {
                let taking = Taking {
                    owner: self.owner,
                    terms: Terms {
                        lease,
                        ..self.terms
                    },
                    is_fenced: self.lock.is_fenced(),
                    max_lease: self.lock.longest_lease(),
                    until,
                };
                part.take(&taking).await
            }
            Question::Extend(hold) => part.extend(hold, lease, until).await,
            Question::Mark(hold, token) => part.mark(hold, *token, lease, until).await,
        }
    }

    /// Has nobody ask those anything more who were silent for the whole round. Known here and now: the
    /// next attempt may begin before their own calls notice that their time is over.
    pub(super) fn suspect_late(&self) {
        let state = self.state();
        let waited = Rules::patience(state.quorum.rules().lease);
        for (member, part) in self.lock.parts().iter().enumerate() {
            if state.quorum.outcome(member) == Outcome::Late {
                part.suspect(&Error::Timeout { waited });
            }
        }
    }

    /// How it was lost; `None` while it may be believed in. What is said stays true.
    pub(super) fn loss(self: &Arc<Self>) -> Option<Lost> {
        let mut state = self.state();
        let given_back = self.step_in(&mut state, Event::Look);
        let lost = self.loss_in(&state);
        drop(state);
        // What is dropped is given back in the background.
        drop(given_back);
        lost
    }

    /// As [`Whole::loss`], under the state's lock and after a step.
    pub(super) fn loss_in(&self, state: &State) -> Option<Lost> {
        let reason = match state.quorum.phase() {
            Phase::Lost(reason) => reason,
            Phase::Failed | Phase::Ended => LostReason::Released,
            Phase::Acquiring | Phase::Marking | Phase::Held | Phase::Jeopardy => return None,
        };
        Some(self.lost_as(reason, state))
    }

    pub(super) fn lost_as(&self, reason: LostReason, state: &State) -> Lost {
        let now = self.clock.now();
        let rules = state.quorum.rules();
        let valid_for = rules.lease - lease::drift(rules.lease).min(rules.lease);
        let renewed = state.quorum.deadline().minus(valid_for);
        Lost::new(LostFacts {
            reason,
            lock: self.lock.name().to_owned(),
            owner: self.owner.to_string(),
            held_for: now.since(self.acquired),
            renewed: now.since(renewed),
        })
    }

    /// What became of each instance.
    pub(super) fn instances(&self) -> Vec<Instance> {
        let now = self.clock.now();
        let state = self.state();
        let parts = self.lock.parts().iter().enumerate();
        parts
            .map(|(member, part)| {
                let cause = state.causes[member].clone();
                part.report(match state.quorum.outcome(member) {
                    Outcome::Untried => InstanceState::NotAsked,
                    Outcome::Held => InstanceState::Acquired,
                    Outcome::Busy(until) => InstanceState::HeldByAnother {
                        ttl: until.map(|until| until.since(now)),
                    },
                    Outcome::Unreachable => InstanceState::Unreachable {
                        cause: cause.unwrap_or(Error::Closed),
                    },
                    Outcome::Quarantined(until) => InstanceState::Quarantined {
                        left: until.since(now),
                    },
                    Outcome::Late => InstanceState::Late,
                    Outcome::Gone => InstanceState::Lost,
                })
            })
            .collect()
    }

    /// What the quorum's actions mean here.
    pub(super) fn orders(&self, state: &mut State, actions: Actions) -> Vec<Order> {
        let mut orders = Vec::with_capacity(actions.len());
        for action in actions {
            let (member, round, question) = match action {
                Action::Take { member, round } => (member, round, Question::Take),
                Action::Extend { member, round } => match &state.claims[member] {
                    Some(claim) => (member, round, Question::Extend(claim.hold().clone())),
                    None => continue,
                },
                Action::Mark {
                    member,
                    round,
                    token,
                } => match &state.claims[member] {
                    Some(claim) => (member, round, Question::Mark(claim.hold().clone(), token)),
                    None => continue,
                },
                Action::Release { member } => {
                    orders.extend(state.claims[member].take().map(Order::GiveBack));
                    continue;
                }
            };
            orders.push(Order::Ask {
                member,
                round,
                question,
                until: state.quorum.round_ends(),
            });
        }
        orders
    }
}
