//! The tokens of a fenced lock (design: FE1 and FE2).

use redis::Value;

use super::command::SimulatedCommand;
use super::keys::Hash;
use super::observer::KEY;
use super::plan::TokensFrom;
use super::redis::Redis;

pub(super) struct Tokens {
    from: Option<TokensFrom>,
    /// Who has the lock by the last grant, and the token of that. `None` once the field is not there any more.
    holder: Option<(String, u64)>,
    last: u64,
    /// The counter was deleted since then, so that the holder's next answer has another token. Its client keeps the
    /// first.
    is_lost: bool,
    /// How many commands were executed.
    executed: u64,
}

impl Tokens {
    pub(super) fn new(from: Option<TokensFrom>) -> Self {
        Self {
            from,
            holder: None,
            last: 0,
            is_lost: false,
            executed: 0,
        }
    }

    /// Sometimes deletes the counter, which a lock whose tokens begin at the clock survives. Two grants at one
    /// microsecond of the clock it does not survive, and the clock of a simulation has milliseconds only.
    pub(super) fn lose_counter(&mut self, redis: &mut Redis, now_ms: u64) -> bool {
        self.executed += 1;
        let is_due = self.from == Some(TokensFrom::Clock) && self.executed.is_multiple_of(7);
        let is_past = self.last < redis.clock_ms(now_ms) * 1_000;
        let lost = is_due && is_past && redis.exists(&counter(), now_ms);
        if lost {
            redis.execute(&["DEL".to_owned(), counter()], now_ms);
            self.is_lost = true;
        }
        lost
    }

    /// Checks what a command answered. True if it issued a token.
    pub(super) fn see(
        &mut self,
        command: &SimulatedCommand<'_>,
        answer: &Value,
        [before, after]: [Option<&Hash>; 2],
    ) -> Result<bool, String> {
        let is_in = |hash: Option<&Hash>, field: &str| {
            hash.is_some_and(|hash| hash.counts.contains_key(field))
        };
        let is_there = |field: &str| is_in(after, field);
        // A late copy of an acquire begins anew what has ended.
        let stayed = |field: &str| is_in(before, field) && is_there(field);
        self.holder = self.holder.take().filter(|(field, _)| stayed(field));
        if self.from.is_none() {
            return Ok(false);
        }
        let (field, token) = match (command, answer) {
            (
                SimulatedCommand::Count {
                    field,
                    acquires: true,
                    ..
                },
                Value::BulkString(token),
            ) => (*field, number(token)),
            (SimulatedCommand::Transfer { to, .. }, Value::Array(answer)) => match &answer[..] {
                [_, Value::BulkString(token)] => (*to, number(token)),
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

/// Redisson's key of the last token.
fn counter() -> String {
    format!("redisson_lock_token:{{{KEY}}}")
}
