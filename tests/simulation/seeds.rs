//! Runs seeds on every core, and finds the shortest failing plan.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

/// The number in this environment variable, if it is set.
pub(crate) fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().expect("a seed is a number"))
}

/// Runs seeds from 0 on until one fails, and returns that seed, if any. Each thread passes the value of
/// `new` from run to run.
pub(crate) fn first_failure<S>(
    seeds: u64,
    new: impl Fn() -> S + Sync,
    run: impl Fn(u64, S) -> (bool, S) + Sync,
) -> Option<u64> {
    let next = AtomicU64::new(0);
    let failed = Mutex::new(None);
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..threads {
            scope.spawn(|| {
                let mut state = new();
                while failed.lock().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let (fails, back) = run(seed, state);
                    state = back;
                    if fails {
                        failed.lock().get_or_insert(seed);
                    }
                }
            });
        }
    });
    failed.into_inner()
}

/// The shortest failing plan that removing one thing at a time leads to.
pub(crate) fn shrink<P>(
    mut plan: P,
    smaller: impl Fn(&P) -> Vec<P>,
    mut fails: impl FnMut(&P) -> bool,
) -> P {
    while let Some(shorter) = smaller(&plan).into_iter().find(|plan| fails(plan)) {
        plan = shorter;
    }
    plan
}
