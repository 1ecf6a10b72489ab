//! How a replay shows fencing tokens.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::kinds::{FENCED, Kind};

/// Redisson's tokens are 1, 2, 3, and so are those of our kind that counts from one. A token from the
/// server's clock is shown as its rank among the tokens of the replay: the smallest has rank 1. So each
/// token compares with the recorded one, and a token that is smaller than an earlier one has a wrong rank.
#[derive(Debug)]
pub(super) enum Tokens {
    FromOne,
    ByClock(RefCell<BTreeSet<u64>>),
}

impl Tokens {
    /// For a scenario with locks of this kind.
    pub(super) fn of(kind: &'static Kind) -> Self {
        if std::ptr::eq(kind, &FENCED) {
            Self::ByClock(RefCell::default())
        } else {
            Self::FromOne
        }
    }

    /// An answer of [`Call::make`](super::calls::Call::make) in the form of the recording.
    pub(super) fn in_answer(&self, answer: &str) -> String {
        match answer.strip_prefix(ANSWER) {
            Some(token) => self.shown(token),
            None => answer.to_owned(),
        }
    }

    /// A token, or 0 for none.
    pub(super) fn shown(&self, token: &str) -> String {
        let (Self::ByClock(seen), Ok(number)) = (self, token.parse::<u64>()) else {
            return token.to_owned();
        };
        if number == 0 {
            return token.to_owned();
        }
        if number < CLOCK {
            return format!("{number}, not from the clock");
        }
        let mut seen = seen.borrow_mut();
        seen.insert(number);
        seen.range(..=number).count().to_string()
    }
}

pub(super) fn answer(token: u64) -> String {
    format!("{ANSWER}{token}")
}

pub(super) fn is_counter(key: &str) -> bool {
    key.starts_with(COUNTERS)
}

/// The counter of the lock with this name, which has no braces.
pub(super) fn counter(lock: &str) -> String {
    format!("{COUNTERS}{{{lock}}}")
}

/// Before a token, to distinguish it from other numbers.
const ANSWER: &str = "token ";

const COUNTERS: &str = "redisson_lock_token:";

/// No server's clock is before the year 2001, in microseconds.
const CLOCK: u64 = 1_000_000_000_000_000;
