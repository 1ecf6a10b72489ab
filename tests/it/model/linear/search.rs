//! Whether a history of calls has an order in which a sequential object answers them the same way.
//!
//! The search is that of Wing and Gong, with four savings. A call that only reads is taken at once where its
//! answer fits. Calls without an answer come last, because most of them explain nothing. Of acquires without an
//! answer that differ in nothing but their hold, only the first is tried, because nothing is known of any of these
//! holds. And what was seen to fail is remembered, also by later attempts: an attempt that takes too long begins
//! again in another order.

use std::collections::HashSet;
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
        words: history.len().div_ceil(64),
        is_hasty: true,
        failed: HashSet::new(),
    };
    for attempt in 0..patience.attempts {
        // The first half only.
        if search.is_hasty && attempt * 2 >= patience.attempts {
            search.be_thorough();
        }
        match search.attempt(start, attempt, patience.steps) {
            Verdict::Undecided => {}
            // It has not tried everything.
            Verdict::Illegal if search.is_hasty => search.be_thorough(),
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

/// The calls that were taken, one bit for each.
type Taken = Vec<u64>;

struct Search<'a, S: Sequential> {
    history: &'a [Timed<S::Call>],
    /// Only calls that ended by then have to be explained.
    until: u64,
    /// Of calls whose outcome is unknown in the whole history: each of these acquires has its release, also without
    /// an answer, so one is as good as the other.
    twins: Vec<Option<usize>>,
    words: usize,
    /// A call without an answer is taken only where one with an answer needs it next.
    is_hasty: bool,
    /// No completion exists from this state after these calls in any order.
    failed: HashSet<(Taken, S)>,
}

/// A point at which one of several calls can be next.
struct Branch<S> {
    taken: Taken,
    state: S,
    /// What was not tried yet; the best is last.
    untried: Vec<(usize, S)>,
}

impl<S: Sequential> Search<'_, S> {
    fn be_thorough(&mut self) {
        self.is_hasty = false;
        self.failed.clear();
    }

    fn attempt(&mut self, start: &S, attempt: u64, mut steps: u64) -> Verdict {
        let ranks = self.ranks(attempt);
        let none = vec![0; self.words];
        let Some(first) = self.branch(none, start.clone(), &ranks) else {
            return Verdict::Legal;
        };
        let mut stack = vec![first];
        while let Some(branch) = stack.last_mut() {
            if steps == 0 {
                return Verdict::Undecided;
            }
            steps -= 1;
            let Some((call, state)) = branch.untried.pop() else {
                if let Some(Branch { taken, state, .. }) = stack.pop() {
                    self.failed.insert((taken, state));
                }
                continue;
            };
            let mut taken = branch.taken.clone();
            taken[call / 64] |= 1 << (call % 64);
            let known = (taken, state);
            if self.failed.contains(&known) {
                continue;
            }
            let (taken, state) = known;
            match self.branch(taken, state, &ranks) {
                Some(branch) => stack.push(branch),
                None => return Verdict::Legal,
            }
        }
        Verdict::Illegal
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
    fn branch(&self, mut taken: Taken, state: S, ranks: &[u64]) -> Option<Branch<S>> {
        let is_taken = |taken: &Taken, call: usize| taken[call / 64] >> (call % 64) & 1 == 1;
        loop {
            let open = |call: &usize| !is_taken(&taken, *call);
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
                let is_answered = self.end(call).is_some();
                match state.after(&self.history[call].call) {
                    // It can be taken now, whatever comes next.
                    Some(_) if is_answered && S::is_read(&self.history[call].call) => {
                        reads = Some(call);
                        break;
                    }
                    // A call without an answer and without an effect can be ignored.
                    Some(after) if is_answered || after != state => untried.push((call, after)),
                    _ => {}
                }
            }
            if self.is_hasty && reads.is_none() {
                let is_answered = |call: &usize| self.end(*call).is_some();
                let fits = |state: &S, call: usize| state.after(&self.history[call].call).is_some();
                let waiting: Vec<usize> = (0..self.history.len())
                    .filter(can_be_next)
                    .filter(|call| is_answered(call) && !fits(&state, *call))
                    .collect();
                untried.retain(|(call, after)| {
                    is_answered(call) || waiting.iter().any(|waits| fits(after, *waits))
                });
            }
            match reads {
                Some(call) => taken[call / 64] |= 1 << (call % 64),
                None => {
                    untried.sort_by_key(|(call, _)| std::cmp::Reverse(ranks[*call]));
                    return Some(Branch {
                        taken,
                        state,
                        untried,
                    });
                }
            }
        }
    }
}

/// Later than any end, in nanoseconds.
const UNANSWERED: u64 = 1 << 60;
