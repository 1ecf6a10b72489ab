//! The tokens of a fenced lock (design: FE1 and FE2), and the terms of an election (LE1).

use std::collections::BTreeMap;

use redis::Value;

use super::plan::TokensFrom;
use super::redis::Redis;

pub(super) struct Tokens {
    from: Option<TokensFrom>,
    /// Redisson's key of the last token.
    counter: String,
    /// The hold of the last grant, and its token. `None` once the field no longer exists.
    holder: Option<(String, u64)>,
    /// The largest token so far, of a hold of lockdog or of Redisson.
    last: u64,
    /// The counter was deleted since then, so that the holder's next answer has another token. Its client keeps the
    /// first.
    is_lost: bool,
    /// How many commands were executed.
    executed: u64,
}

/// A command that may issue a token, with the hold that has it then.
#[derive(Clone, Copy)]
pub(super) enum Granting<'a> {
    Acquire(&'a str),
    HandOver(&'a str),
}

impl<'a> Granting<'a> {
    pub(super) fn field(self) -> &'a str {
        match self {
            Self::Acquire(field) | Self::HandOver(field) => field,
        }
    }
}

/// The fields of a lock's hash, with their counts.
pub(super) type Counts = BTreeMap<String, i64>;

impl Tokens {
    /// The tokens of the lock with this name.
    pub(super) fn new(from: Option<TokensFrom>, name: &str) -> Self {
        Self {
            from,
            counter: format!("redisson_lock_token:{{{name}}}"),
            holder: None,
            last: 0,
            is_lost: false,
            executed: 0,
        }
    }

    /// Sometimes deletes the counter. A lock whose tokens start at the clock tolerates that, except for
    /// two grants at the same microsecond of the clock. The clock of a simulation has milliseconds
    /// only.
    pub(super) fn lose_counter(&mut self, redis: &mut Redis, now_ms: u64) -> bool {
        self.executed += 1;
        let is_due = self.from == Some(TokensFrom::Clock) && self.executed.is_multiple_of(7);
        let is_past = self.last < redis.clock_ms(now_ms) * 1_000;
        let lost = is_due && is_past && redis.exists(&self.counter, now_ms);
        if lost {
            redis.execute(&["DEL".to_owned(), self.counter.clone()], now_ms);
            self.is_lost = true;
        }
        lost
    }

    /// Remembers the counter after a command of Redisson. The next token of lockdog must be above the tokens that
    /// Redisson issued.
    pub(super) fn see_redissons(&mut self, redis: &Redis, now_ms: u64) {
        let counter = redis.text(&self.counter, now_ms);
        let issued = counter.and_then(|text| text.parse().ok());
        self.last = self.last.max(issued.unwrap_or(0));
    }

    /// The counter of the tokens, unless it is deleted.
    pub(super) fn counter(&self, redis: &Redis, now_ms: u64) -> Option<u64> {
        redis.text(&self.counter, now_ms)?.parse().ok()
    }

    /// The last token, and the hold that has it.
    pub(super) fn last(&self) -> Option<(&str, u64)> {
        self.holder
            .as_ref()
            .map(|(field, token)| (&**field, *token))
    }

    /// Checks the answer to a command. The arguments are the holders of its lock before and after it.
    /// True if it issued a token.
    pub(super) fn see(
        &mut self,
        command: Option<Granting<'_>>,
        answer: &Value,
        [before, after]: [&Counts; 2],
    ) -> Result<bool, String> {
        let is_there = |field: &str| after.contains_key(field);
        // A late copy of an acquire creates an ended hold again.
        let stayed = |field: &str| before.contains_key(field) && is_there(field);
        self.holder = self.holder.take().filter(|(field, _)| stayed(field));
        if self.from.is_none() {
            return Ok(false);
        }
        let (field, token) = match (command, answer) {
            (Some(Granting::Acquire(field)), Value::BulkString(token)) => (field, number(token)),
            (Some(Granting::HandOver(to)), Value::Array(answer)) => match &answer[..] {
                [_, Value::BulkString(token)] => (to, number(token)),
                _ => return Err(format!("a hand-over without a token: {answer:?}")),
            },
            _ => return Ok(false),
        };
        if !is_there(field) {
            return Err(format!("{field} has a token, and Redis does not have it"));
        }
        match &self.holder {
            Some((holder, known)) if holder == field && *known == token => Ok(false),
            Some((holder, known)) if holder == field && !self.is_lost => {
                Err(format!("{field} has the tokens {known} and {token}"))
            }
            _ if token <= self.last => Err(format!("token {token} comes after {}", self.last)),
            _ => {
                self.holder = Some((field.to_owned(), token));
                self.last = token;
                self.is_lost = false;
                Ok(true)
            }
        }
    }
}

fn number(text: &[u8]) -> u64 {
    let text = std::str::from_utf8(text).expect("a token is a text");
    text.parse().expect("a token is a number")
}
