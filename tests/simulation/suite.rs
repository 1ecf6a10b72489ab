//! A simulation: how it draws plans, runs them, and reports a failing seed.

use std::fmt::Debug;

use parking_lot::Mutex;

use super::redis::Redis;
use super::seeds;

/// The result of a run.
pub(super) struct RunOutcome<S> {
    pub(super) violation: Option<String>,
    pub(super) seen: S,
    pub(super) trace: Vec<String>,
}

/// The parts of a simulation whose plans are `P`, and which counts the occurred cases in `S`.
pub(super) struct Simulation<P, S> {
    /// The module of its test.
    pub(super) module: &'static str,
    pub(super) draw: fn(u64) -> P,
    pub(super) smaller: fn(&P) -> Vec<P>,
    /// Runs a plan, traced or not, on a server that is reset first. Returns the server for the next run.
    pub(super) run: fn(&P, Redis, bool) -> (RunOutcome<S>, Redis),
    pub(super) add: fn(&mut S, &S),
}

impl<P: Debug, S: Default + Debug + Send> Simulation<P, S> {
    /// Runs this number of seeds, or the seeds that the environment selects, and fails at the first
    /// violation. Returns the number of seeds, and the cases that occurred in them; `None` for a single
    /// seed, in which few cases occur.
    pub(super) fn no_seed_fails(&self, seeds: u64) -> Option<(u64, S)> {
        if let Some(seed) = seeds::number("LOCKDOG_SEED") {
            let (outcome, _) = (self.run)(&(self.draw)(seed), Redis::new(), false);
            if outcome.violation.is_some() {
                self.fail(seed);
            }
            return None;
        }
        let seeds = seeds::number("LOCKDOG_SEEDS").unwrap_or(seeds);
        let total = Mutex::new(S::default());
        let failed = seeds::first_failure(seeds, Redis::new, |seed, redis| {
            let (outcome, redis) = (self.run)(&(self.draw)(seed), redis, false);
            (self.add)(&mut total.lock(), &outcome.seen);
            (outcome.violation.is_some(), redis)
        });
        if let Some(seed) = failed {
            self.fail(seed);
        }
        let seen = total.into_inner();
        println!("{seeds} seeds: {seen:?}");
        Some((seeds, seen))
    }

    /// Prints everything about a failing seed and ends the test.
    fn fail(&self, seed: u64) -> ! {
        let mut redis = Some(Redis::new());
        let mut outcome_of = |plan: &P, traced| {
            let (outcome, back) = (self.run)(plan, redis.take().unwrap_or_else(Redis::new), traced);
            redis = Some(back);
            outcome
        };
        let plan = seeds::shrink((self.draw)(seed), self.smaller, |plan| {
            outcome_of(plan, false).violation.is_some()
        });
        let outcome = outcome_of(&plan, true);
        let what = outcome.violation.unwrap_or_default();
        panic!(
            "{what}\n{}\nthe shortest plan found: {plan:#?}\nreplay with LOCKDOG_SEED={seed} cargo \
             test {}",
            outcome.trace.join("\n"),
            self.module
        );
    }
}
