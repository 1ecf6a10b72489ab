//! Whether a history of calls has an order in which a sequential object answers them the same way.
//!
//! The search is that of Wing and Gong, with four savings:
//!
//! - A call that only reads is taken at once where its answer fits.
//! - A call without an answer is taken only directly before a call that needs it. Nothing is lost: no end
//!   requires it earlier, so in any order it can change places with a next call that does not need it.
//! - Of acquires without an answer that differ in nothing but their hold, only the first is tried, because
//!   nothing is known of any of these holds.
//! - What was seen to fail is remembered, also by later attempts: an attempt that takes too long begins again in
//!   another order. What failed also fails with fewer calls without an answer left.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use crate::support::Dice;

/// An object that executes one call after the other.
pub(super) trait Sequential: Clone + Debug + Eq + Hash {
    /// A call together with its answer.
    type Call: Clone + Debug + PartialEq;

    /// The object after the call. `None` if it does not answer like that.
    fn after(&self, call: &Self::Call) -> Option<Self>;

    /// The number under the name of the object, if it begins with one.
    fn number(&self) -> Option<u32> {
        None
    }

    /// An acquire without its hold.
    fn acquires(_call: &Self::Call) -> Option<Self::Call> {
        None
    }

    /// Whether a call with this answer changes nothing, whatever the object is like.
    fn is_read(call: &Self::Call) -> bool;
}

/// A call, and when it was under way.
#[derive(Clone, Debug)]
pub(super) struct Timed<C> {
    pub(super) call: C,
    pub(super) began: u64,
    /// `None` if its outcome is unknown: it takes effect at any time after its begin, or never.
    pub(super) ended: Option<u64>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Legal,
    Illegal,
    /// No attempt came to an end.
    Undecided,
}

/// How long the search may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) attempts: u64,
    /// Of each attempt.
    pub(super) steps: u64,
}

pub(super) const PATIENCE: Patience = Patience {
    attempts: 40,
    steps: 5_000,
};

/// Judges a history of an object that is like `start` before.
pub(super) fn judge<S: Sequential>(
    start: &S,
    history: &[Timed<S::Call>],
    patience: Patience,
) -> Verdict {
    judge_until(start, history, u64::MAX, patience)
}

/// Judges the beginning of a history: calls that end after `until` count as calls without an answer. If a history is
/// legal, each beginning of it is, too.
pub(super) fn judge_until<S: Sequential>(
    start: &S,
    history: &[Timed<S::Call>],
    until: u64,
    patience: Patience,
) -> Verdict {
    let mut search = Search {
        history,
        until,
        twins: twins::<S>(history),
        positions: positions(history),
        answered: vec![0; history.len().div_ceil(64)],
        failed: HashMap::new(),
    };
    for call in 0..history.len() {
        if search.end(call).is_some() {
            take(&mut search.answered, call);
        }
    }
    for attempt in 0..patience.attempts {
        match search.attempt(start, attempt, patience.steps) {
            Verdict::Undecided => {}
            verdict => return verdict,
        }
    }
    Verdict::Undecided
}

/// For each acquire without an answer the last one before it that differs in nothing but its hold.
fn twins<S: Sequential>(history: &[Timed<S::Call>]) -> Vec<Option<usize>> {
    let acquires = |call: usize| match history[call].ended {
        None => S::acquires(&history[call].call),
        Some(_) => None,
    };
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|call| history[*call].began);
    let mut twins = vec![None; history.len()];
    for (at, call) in order.iter().enumerate() {
        if let Some(own) = acquires(*call) {
            let before = order[..at].iter().rev();
            twins[*call] = before
                .copied()
                .find(|it| acquires(*it).as_ref() == Some(&own));
        }
    }
    twins
}

/// The place of each call in the order of their begins.
fn positions<C>(history: &[Timed<C>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|call| history[*call].began);
    let mut positions = vec![0; history.len()];
    for (position, call) in order.into_iter().enumerate() {
        positions[call] = position;
    }
    positions
}

/// Calls, one bit for each.
type Calls = Vec<u64>;

fn take(calls: &mut Calls, call: usize) {
    calls[call / 64] |= 1 << (call % 64);
}

fn has(calls: &Calls, call: usize) -> bool {
    calls[call / 64] >> (call % 64) & 1 == 1
}

fn is_subset(some: &Calls, of: &Calls) -> bool {
    some.iter().zip(of).all(|(some, of)| some & !of == 0)
}

/// A call without an answer that was taken last, and the object before it.
type Unanswered<S> = Option<(usize, S)>;

struct Search<'a, S: Sequential> {
    history: &'a [Timed<S::Call>],
    /// Only calls that ended by then have to be explained.
    until: u64,
    /// Of calls whose outcome is unknown in the whole history: each of these acquires has its release, also without
    /// an answer, so one is as good as the other.
    twins: Vec<Option<usize>>,
    positions: Vec<usize>,
    /// The calls that have to be explained.
    answered: Calls,
    /// No completion exists after these calls with an answer, from this object, with this call taken last: and that
    /// although no more than these calls without an answer were taken.
    failed: HashMap<(Calls, S, Unanswered<S>), Vec<Calls>>,
}

/// A point at which one of several calls can be next.
struct Branch<S> {
    taken: Calls,
    state: S,
    last: Unanswered<S>,
    /// What was not tried yet; the best is last.
    untried: Vec<(usize, S)>,
}

impl<S: Sequential> Search<'_, S> {
    fn attempt(&mut self, start: &S, attempt: u64, mut steps: u64) -> Verdict {
        let ranks = self.ranks(attempt);
        let none = vec![0; self.answered.len()];
        let Some(first) = self.branch(none, start.clone(), None, &ranks) else {
            return Verdict::Legal;
        };
        let mut stack = vec![first];
        while let Some(branch) = stack.last_mut() {
            if steps == 0 {
                return Verdict::Undecided;
            }
            steps -= 1;
            let Some((call, state)) = branch.untried.pop() else {
                if let Some(branch) = stack.pop() {
                    self.remember(branch);
                }
                continue;
            };
            let mut taken = branch.taken.clone();
            take(&mut taken, call);
            let is_answered = has(&self.answered, call);
            let last = (!is_answered).then(|| (call, branch.state.clone()));
            match self.branch(taken, state, last, &ranks) {
                Some(branch) if self.has_failed(&branch) => {}
                Some(branch) => stack.push(branch),
                None => return Verdict::Legal,
            }
        }
        Verdict::Illegal
    }

    /// The calls with an answer, and those without.
    fn divided(&self, taken: &Calls) -> (Calls, Calls) {
        let both = taken.iter().zip(&self.answered);
        both.map(|(taken, answered)| (taken & answered, taken & !answered))
            .unzip()
    }

    fn remember(&mut self, branch: Branch<S>) {
        let (answered, unanswered) = self.divided(&branch.taken);
        let key = (answered, branch.state, branch.last);
        let failed = self.failed.entry(key).or_default();
        failed.retain(|more| !is_subset(&unanswered, more));
        failed.push(unanswered);
    }

    fn has_failed(&self, branch: &Branch<S>) -> bool {
        let (answered, unanswered) = self.divided(&branch.taken);
        let has = |last: Unanswered<S>| {
            let key = (answered.clone(), branch.state.clone(), last);
            let failed = self.failed.get(&key).into_iter().flatten();
            failed
                .into_iter()
                .any(|fewer| is_subset(fewer, &unanswered))
        };
        // With no call taken last, more can be next.
        has(None) || (branch.last.is_some() && has(branch.last.clone()))
    }

    /// The order in which calls are tried: by their ends, from attempt to attempt more or less shuffled. Those that
    /// have no answer are last.
    fn ranks(&self, attempt: u64) -> Vec<u64> {
        let mut dice = Dice::of(attempt.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
        let most = self.history.iter().filter_map(|call| call.ended).max();
        // Up to the length of the whole history.
        let noise = 1 + (most.unwrap_or(0) >> (9 - attempt % 10));
        let rank = |call: usize| match (self.end(call), attempt) {
            (Some(ended), 0) => ended,
            (Some(ended), _) => ended + dice.roll(noise),
            (None, _) => UNANSWERED + dice.roll(UNANSWERED),
        };
        (0..self.history.len()).map(rank).collect()
    }

    /// When the call had its answer.
    fn end(&self, call: usize) -> Option<u64> {
        let ended = self.history[call].ended;
        ended.filter(|at| *at <= self.until)
    }

    /// What can be next. `None` if all calls with an answer were taken.
    fn branch(
        &self,
        mut taken: Calls,
        state: S,
        mut last: Unanswered<S>,
        ranks: &[u64],
    ) -> Option<Branch<S>> {
        loop {
            let open = |call: &usize| !has(&taken, *call);
            let first_end = (0..self.history.len())
                .filter(open)
                .filter_map(|call| self.end(call))
                .min()?;
            let has_open_twin = |call: usize| self.twins[call].is_some_and(|twin| open(&twin));
            let can_be_next = |call: &usize| {
                open(call) && self.history[*call].began <= first_end && !has_open_twin(*call)
            };
            let mut untried = Vec::new();
            let mut reads = None;
            for call in (0..self.history.len()).filter(can_be_next) {
                let Some(after) = state.after(&self.history[call].call) else {
                    continue;
                };
                let is_answered = has(&self.answered, call);
                // It can be taken now, whatever comes next.
                if is_answered && S::is_read(&self.history[call].call) {
                    reads = Some(call);
                    break;
                }
                // A call without an answer and without an effect can be ignored.
                if (is_answered || after != state) && !self.is_in_vain(&last, call, &after) {
                    untried.push((call, after));
                }
            }
            match reads {
                Some(call) => {
                    take(&mut taken, call);
                    // It did not fit before that call.
                    last = None;
                }
                None => {
                    untried.sort_by_key(|(call, _)| std::cmp::Reverse(ranks[*call]));
                    return Some(Branch {
                        taken,
                        state,
                        last,
                        untried,
                    });
                }
            }
        }
    }

    /// Whether the call without an answer that was taken last need not be directly before this one: this one undoes
    /// it, or the two lead to the same object in the other order.
    fn is_in_vain(&self, last: &Unanswered<S>, call: usize, after: &S) -> bool {
        let Some((last, before)) = last else {
            return false;
        };
        let is_answered = has(&self.answered, call);
        if !is_answered && after == before {
            return true;
        }
        let first = before.after(&self.history[call].call);
        let both = first.and_then(|state| state.after(&self.history[*last].call));
        // Of two without an answer, one order is tried.
        let is_other_tried = is_answered || self.positions[call] < self.positions[*last];
        is_other_tried && both.as_ref() == Some(after)
    }
}

/// Later than any end, in nanoseconds.
const UNANSWERED: u64 = 1 << 60;
