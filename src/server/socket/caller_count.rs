//! How many callers of a connection wait for an answer.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many callers wait for an answer. A caller counts until its future is dropped, so a future that is not polled
/// any more counts forever. [`CallerCount::restart`] forgets it; where nothing restarts the count, a single caller
/// beside such a future takes part in a gathering, too.
#[derive(Default)]
pub(super) struct CallerCount {
    /// The upper half says how often the count was restarted, the lower half is the count. In one number, so that a
    /// caller of an earlier count can never lower the current one.
    state: AtomicU64,
}

/// A caller that waits for the answer to its command. It counts until this is dropped.
pub(super) struct CountedCaller<'a> {
    count: &'a CallerCount,
    /// The state right after it was counted.
    state: u64,
}

impl CallerCount {
    pub(super) fn add(&self) -> CountedCaller<'_> {
        let before = self.state.fetch_add(1, Ordering::Relaxed);
        CountedCaller {
            count: self,
            state: before + 1,
        }
    }

    /// Begins again with zero.
    pub(super) fn restart(&self) {
        self.change(|state| Some(((state >> HALF) + 1) << HALF));
    }

    fn change(&self, new: impl Fn(u64) -> Option<u64>) {
        let mut state = self.state.load(Ordering::Relaxed);
        while let Some(new) = new(state) {
            let changed =
                self.state
                    .compare_exchange_weak(state, new, Ordering::Relaxed, Ordering::Relaxed);
            match changed {
                Ok(_) => return,
                Err(current) => state = current,
            }
        }
    }
}

impl CountedCaller<'_> {
    /// How many callers there were at its beginning, with this one.
    pub(super) fn position(&self) -> u64 {
        self.state & LOWER
    }
}

impl Drop for CountedCaller<'_> {
    fn drop(&mut self) {
        let own = self.state >> HALF;
        // A restart has forgotten it.
        let is_counted = |state: u64| state >> HALF == own;
        self.count
            .change(|state| is_counted(state).then(|| state - 1));
    }
}

const HALF: u32 = 32;
const LOWER: u64 = (1 << HALF) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_from_before_a_restart_does_not_lower_the_count() {
        let count = CallerCount::default();
        let [first, second] = [count.add(), count.add()];
        assert_eq!((first.position(), second.position()), (1, 2));
        drop(first);
        let third = count.add();
        assert_eq!(third.position(), 2);
        count.restart();
        let fourth = count.add();
        assert_eq!(fourth.position(), 1);
        drop((second, third));
        assert_eq!(count.add().position(), 2);
        drop(fourth);
        assert_eq!(count.add().position(), 1);
    }
}
