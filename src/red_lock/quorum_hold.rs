//! What one owner holds, or is acquiring, on many instances.

use std::sync::{Arc, Weak};

use lockdog_quorum::{Action, Actions, Answer, Event, Phase, Quorum, Rules};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::config::RedLockConfig;
use super::deferred::Deferred;
use super::instance_acquire::InstanceAcquire;
use super::instance_answer::InstanceAnswer;
use super::judged_claim::JudgedClaim;
use super::query::{InstanceQuery, Query, Request};
use crate::clock::{Clock, Moment};
use crate::error::{Error, LostReason};
use crate::hold::Terms;
use crate::owner::Owner;
use crate::server::Addressee;
use crate::session::{Claim, TimerKey};

/// One owner's hold on a lock of many instances.
///
/// Lock order: the mutex of this state before any mutex of a client.
pub(super) struct QuorumHold {
    pub(super) me: Weak<Self>,
    pub(super) lock: Arc<RedLockConfig>,
    pub(super) owner: Owner,
    terms: Terms,
    pub(super) clock: Clock,
    pub(super) acquired: Moment,
    /// The server that each instance's acquire went to.
    pub(super) addressees: SmallVec<[Addressee; 5]>,
    /// The claim of each instance while the client checks whether its server may have lost data.
    judged: SmallVec<[JudgedClaim; 5]>,
    pub(super) state: Mutex<QuorumHoldState>,
    /// Notified after each step.
    pub(super) changed: Notify,
    pub(super) lost: CancellationToken,
}

pub(super) struct QuorumHoldState {
    pub(super) quorum: Quorum,
    pub(super) claims: SmallVec<[Option<Claim>; 5]>,
    /// Why an instance could not be acquired when it was last asked.
    pub(super) causes: SmallVec<[Option<Error>; 5]>,
    /// Living claims: those of guards, and forgotten ones.
    pub(super) count: u32,
    /// How many of these claims were taken without a fixed lease.
    pub(super) watched: u32,
    /// The claims whose guards were forgotten, with a flag for each: whether it is watched.
    pub(super) forgotten: Vec<bool>,
    /// The number of ended claims that left the instances to their leases.
    pub(super) left: u32,
    /// Queries that were dropped without an answer.
    pub(super) dropped: Vec<(usize, u32)>,
    /// The index of the client whose thread renews this hold. `turn` is its timer there.
    pub(super) renewer: usize,
    pub(super) turn: Option<TimerKey>,
    pub(super) reported_lost: bool,
    pub(super) reported_jeopardy: bool,
    /// An instance's client reports that its part of the hold is gone.
    pub(super) part_lost: bool,
    /// The reason, from the instance's client, of the loss after which too few instances are left.
    pub(super) part_lost_because: Option<LostReason>,
    /// What to do after the mutex is released.
    pub(super) deferred: Deferred,
}

impl QuorumHold {
    /// Begins to acquire. Returns the requests to execute.
    pub(super) fn begin(
        lock: &Arc<RedLockConfig>,
        owner: Owner,
        terms: &Terms,
        now: Moment,
    ) -> (Arc<Self>, Vec<Request>) {
        let instances = lock.instances().len();
        let max_until = terms.max_hold.map_or(Moment::NEVER, |bound| now + bound);
        let rules = lock.rules(terms, max_until);
        let (quorum, actions) = Quorum::begin(rules, now);
        let hold = Arc::new_cyclic(|me| Self {
            me: me.clone(),
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
            addressees: (0..instances).map(|_| Addressee::default()).collect(),
            judged: (0..instances).map(|_| JudgedClaim::default()).collect(),
            state: Mutex::new(QuorumHoldState {
                quorum,
                claims: (0..instances).map(|_| None).collect(),
                causes: (0..instances).map(|_| None).collect(),
                count: 0,
                watched: 0,
                forgotten: Vec::new(),
                left: 0,
                dropped: Vec::new(),
                renewer: 0,
                turn: None,
                reported_lost: false,
                reported_jeopardy: false,
                part_lost: false,
                part_lost_because: None,
                deferred: Deferred::default(),
            }),
            changed: Notify::new(),
            lost: CancellationToken::new(),
        });
        let requests = hold.requests(&mut hold.state(), actions);
        (hold, requests)
    }

    /// Passes an event to the quorum's core. Returns the requests to execute.
    pub(super) fn step(self: &Arc<Self>, event: Event) -> Vec<Request> {
        let mut state = self.state();
        self.step_locked(&mut state, event)
    }

    /// As [`QuorumHold::step`], with the state already locked.
    pub(super) fn step_locked(
        self: &Arc<Self>,
        state: &mut QuorumHoldState,
        event: Event,
    ) -> Vec<Request> {
        let now = self.clock.now();
        let mut actions = Actions::new();
        let part_lost = std::mem::take(&mut state.part_lost);
        for (member, round) in std::mem::take(&mut state.dropped) {
            let event = Event::Answered {
                member,
                round,
                answer: Answer::Failed,
            };
            actions.append(&state.quorum.step(event, now));
        }
        // Before the event, so that a new round acquires the lost instances; and after it, for instances
        // that the event added.
        if part_lost {
            self.report_lost_instances(state, now, &mut actions);
        }
        actions.append(&state.quorum.step(event, now));
        if part_lost {
            self.report_lost_instances(state, now, &mut actions);
        }
        let mut requests = self.requests(state, actions);
        self.follow(state);
        if let Phase::Lost(_) = state.quorum.phase() {
            // These releases are deferred: no call waits for them, and they must be done before an owner
            // is notified of the loss.
            let given_back =
                requests.extract_if(.., |request| matches!(request, Request::GiveBack(..)));
            state.deferred.given_back.extend(given_back);
        }
        requests
    }

    /// Passes an instance's answer to the quorum's core.
    pub(super) fn process_answer(
        self: &Arc<Self>,
        member: usize,
        round: u32,
        answer: InstanceAnswer,
    ) -> Vec<Request> {
        if let Some(claim) = &answer.claim {
            // Called without the state's mutex: a hold that is lost already notifies the dependant immediately.
            claim.hold().add_dependant(self.me.clone());
        }
        // Dropped after the mutex of the state is released: the end of a claim may report a loss.
        let _earlier;
        let mut state = self.state();
        let is_last = state.quorum.is_of_last_take(member, round);
        let mut given_back = None;
        if is_last && answer.claim.is_some() {
            _earlier = std::mem::replace(&mut state.claims[member], answer.claim);
        } else if let Some(claim) = answer.claim {
            // The quorum's core gave this request up. The claim that is kept for this instance is of a
            // later request, which may have re-entered the hold of this one.
            let kept = state.claims[member].as_ref();
            if !kept.is_some_and(|kept| Arc::ptr_eq(kept.hold(), claim.hold())) {
                claim.hold().remove_dependant(self.me.as_ptr().cast());
            }
            given_back = Some(Request::GiveBack(member, claim));
        }
        if answer.cause.is_some() {
            state.causes[member] = answer.cause;
        }
        let event = Event::Answered {
            member,
            round,
            answer: answer.answer,
        };
        let mut requests = self.step_locked(&mut state, event);
        requests.extend(given_back);
        if !state.quorum.has(member) {
            requests.extend(self.give_up(&mut state, member));
        }
        requests
    }

    /// The round is won: the hold has its first claim from now on. False if the round was not won.
    pub(super) fn claim_first(self: &Arc<Self>, terms: &Terms) -> bool {
        let mut state = self.state();
        if !state.quorum.is_living() {
            return false;
        }
        state.count = 1;
        state.watched = u32::from(terms.watched);
        self.follow(&mut state);
        true
    }

    /// Adds a claim. False if it is not held any more.
    pub(super) fn claim_again(self: &Arc<Self>, terms: &Terms) -> bool {
        let mut state = self.state();
        let requests = self.collect_work(&mut state);
        let now = self.clock.now();
        if !state.quorum.is_valid(now) || state.count == 0 {
            drop(state);
            self.delegate(requests);
            return false;
        }
        state.count += 1;
        state.watched += u32::from(terms.watched);
        if terms.watched {
            state.quorum.let_renew();
        }
        if let Some(bound) = terms.max_hold {
            state.quorum.bound(now + bound);
        }
        self.follow(&mut state);
        drop(state);
        self.delegate(requests);
        true
    }

    /// Records that the answer to this request will not come.
    pub(super) fn note_dropped(self: &Arc<Self>, member: usize, round: u32) {
        let mut state = self.state();
        state.dropped.push((member, round));
        let began = state.quorum.began();
        state.causes[member] = Some(match self.lock.instances()[member].core().ensure_open() {
            Ok(()) => Error::timeout(self.clock.now().since(began)),
            Err(closed) => closed,
        });
        if state.quorum.is_living() {
            self.schedule(&mut state, self.clock.now());
        }
    }

    /// Asks one instance.
    pub(super) async fn ask(&self, asked: &InstanceQuery, until: Moment) -> InstanceAnswer {
        let instance = &self.lock.instances()[asked.member];
        let lease = asked.lease;
        match &asked.question {
            Query::Take => {
                let taking = InstanceAcquire {
                    owner: self.owner,
                    terms: Terms {
                        lease,
                        ..self.terms
                    },
                    is_fenced: self.lock.is_fenced(),
                    max_lease: self.lock.longest_lease(),
                    until,
                    addressee: self.addressees[asked.member].clone(),
                    round: asked.round,
                    judged: &self.judged[asked.member],
                };
                instance.take(&taking).await
            }
            Query::Extend(hold) => {
                let answer = instance.extend(hold, lease, until).await;
                self.notify_extended(instance.core(), &answer);
                answer
            }
            Query::Mark(hold, token) => instance.mark(hold, *token, lease, until).await,
        }
    }

    /// Takes the claim on an instance out, to be released.
    fn give_up(&self, state: &mut QuorumHoldState, member: usize) -> Option<Request> {
        let Some(claim) = state.claims[member].take() else {
            // The caller may have got a grant and not be polled any more, before it accepted the claim.
            let claim = self.judged[member].give_up()?;
            return Some(Request::GiveBack(member, claim));
        };
        claim.hold().remove_dependant(self.me.as_ptr().cast());
        Some(Request::GiveBack(member, claim))
    }

    /// Translates the actions of the quorum's core into requests.
    pub(super) fn requests(&self, state: &mut QuorumHoldState, actions: Actions) -> Vec<Request> {
        let mut requests = Vec::with_capacity(actions.len());
        // Requests that follow from an answer after the end of its round get a time limit of their own.
        let (now, lease) = (self.clock.now(), state.quorum.lease());
        let until = match state.quorum.round_ends() {
            ends if ends > now => ends,
            _ => now + Rules::answer_limit(lease),
        };
        for &action in actions.iter() {
            let (member, round, question) = match action {
                Action::Take { member, round } => (member, round, Query::Take),
                Action::Extend { member, round } => match &state.claims[member] {
                    Some(claim) => (member, round, Query::Extend(claim.hold().clone())),
                    None => continue,
                },
                Action::Mark {
                    member,
                    round,
                    token,
                } => match &state.claims[member] {
                    Some(claim) => (member, round, Query::Mark(claim.hold().clone(), token)),
                    None => continue,
                },
                Action::Release { member } => {
                    requests.extend(self.give_up(state, member));
                    continue;
                }
            };
            let asked = InstanceQuery {
                member,
                round,
                question,
                lease,
            };
            requests.push(Request::Ask { asked, until });
        }
        requests
    }
}
