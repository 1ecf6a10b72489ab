//! The checks of an election in addition to those of a fair lock (design: invariants LE1 and LE3).

use std::collections::{HashMap, HashSet};

use redis::Value;

use super::command::{FairCommand, KEY, LEADER_KEY};
use crate::election::Leader;
use crate::simulation::plan::TokensFrom;
use crate::simulation::redis::Redis;
use crate::simulation::tokens::{Counts, Tokens};

pub(super) struct Terms {
    tokens: Tokens,
    /// The field that each term was issued to.
    fields: HashMap<u64, String>,
    /// The value that a leader published last; `None` once it is deleted.
    published: Option<Published>,
    /// The holds that a late proclamation showed with the term that they had before a later one began.
    outdated: HashSet<String>,
    /// The server's answers to the question for the leader, with their times.
    answers: Vec<(u64, Option<Shown>)>,
}

struct Published {
    field: String,
    number: u64,
    /// The term and the value.
    text: (String, String),
}

/// A leader in the server's answer: the field, the term and the value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Shown {
    field: String,
    published: Option<(String, String)>,
}

impl Shown {
    /// The leader that the server would name now.
    pub(super) fn now(redis: &Redis, holders: &Counts, now_ms: u64) -> Option<Self> {
        let field = holders.keys().next()?.clone();
        let published = redis.text(LEADER_KEY, now_ms);
        let own = published
            .as_deref()
            .and_then(|published| published.strip_prefix(&field));
        let mut words = own.unwrap_or_default().splitn(4, ' ').skip(1);
        let (term, value) = (words.next(), words.nth(1));
        let published = term.zip(value);
        let published = published.map(|(term, value)| (term.to_owned(), value.to_owned()));
        Some(Self { field, published })
    }

    /// The term, if the leader published a value.
    pub(super) fn term(&self) -> Option<u64> {
        let (term, _) = self.published.as_ref()?;
        Some(term.parse().expect("a term is a number"))
    }

    pub(super) fn of(leader: Leader) -> Self {
        let published = leader.term.zip(leader.value);
        Self {
            field: leader.holder.field().to_owned(),
            published: published.map(|(term, value)| (term.to_string(), value)),
        }
    }
}

impl Terms {
    /// The state of an election, or of a fair lock, which has none.
    pub(super) fn new(is_election: bool) -> Self {
        Self {
            tokens: Tokens::new(is_election.then_some(TokensFrom::Clock), KEY),
            fields: HashMap::new(),
            published: None,
            outdated: HashSet::new(),
            answers: Vec::new(),
        }
    }

    /// Sometimes deletes the counter of the terms.
    pub(super) fn lose_counter(&mut self, redis: &mut Redis, now_ms: u64) -> bool {
        self.tokens.lose_counter(redis, now_ms)
    }

    /// Deletes the leader's value. True if there was one.
    pub(super) fn erase(&mut self, redis: &mut Redis, now_ms: u64) -> bool {
        self.published = None;
        let was = redis.exists(LEADER_KEY, now_ms);
        redis.execute(&["DEL".to_owned(), LEADER_KEY.to_owned()], now_ms);
        was
    }

    /// The hold that this term was issued to.
    pub(super) fn field_of(&self, term: u64) -> Option<&str> {
        self.fields.get(&term).map(String::as_str)
    }

    /// LE1. True if the command began a term.
    pub(super) fn see_grant(
        &mut self,
        command: &FairCommand<'_>,
        answer: &Value,
        holders: [&Counts; 2],
    ) -> Result<bool, String> {
        // A command that ends a leader's hold deletes its value. A late copy of the acquire makes the ended hold
        // again, for example after a force unlock, and not the value.
        let [before, after] = holders;
        let has_ended = |field: &str| before.contains_key(field) && !after.contains_key(field);
        self.published = self
            .published
            .take()
            .filter(|published| !has_ended(&published.field));
        let is_new = self.tokens.see(command.granting(), answer, holders)?;
        if let Some((field, term)) = self.tokens.last().filter(|_| is_new) {
            self.fields.insert(term, field.to_owned());
        }
        Ok(is_new)
    }

    /// Whether the leader has a term that is not the newest: a late copy of the acquire began its hold again, and after
    /// the counter was deleted, a late copy of its proclamation came.
    pub(super) fn is_outdated(&self, leader: &Shown) -> bool {
        self.outdated.contains(&leader.field)
    }

    /// LE3: a leader's value exists as long as its field is in the hash, and the counter is not above its term. No
    /// proclamation changes the counter.
    pub(super) fn see_proclaimed(
        &mut self,
        command: &FairCommand<'_>,
        answer: &Value,
        holders: &Counts,
        had_value: bool,
        redis: &Redis,
        now_ms: u64,
    ) -> Result<bool, String> {
        let FairCommand::Proclaim {
            field,
            term,
            number,
            value,
        } = *command
        else {
            return Ok(false);
        };
        let is_published = *answer == Value::Int(1);
        let own_term: u64 = term.parse().expect("a term is a number");
        let counter = self.tokens.counter(redis, now_ms);
        let is_over = counter.is_some_and(|last| last > own_term);
        if is_published == (is_over || !holders.contains_key(field)) {
            let state = format!("{holders:?}, the counter is {counter:?}");
            return Err(format!("{command:?} was answered {answer:?}: {state}"));
        }
        let began = self.tokens.last().map_or(0, |(_, last)| last);
        if is_published && own_term < began {
            self.outdated.insert(field.to_owned());
        }
        if !had_value {
            // Its time had ended.
            self.published = None;
        }
        let is_newer =
            |published: &Published| published.field == field && published.number > number;
        if !is_published || self.published.as_ref().is_some_and(is_newer) {
            return Ok(false);
        }
        self.published = Some(Published {
            field: field.to_owned(),
            number,
            text: (term.to_owned(), value.to_owned()),
        });
        Ok(true)
    }

    /// LE3: the named leader is in the hash, and published the value that the answer has. The answer
    /// has its value while its client counts it as the leader. True if the answer has the value.
    pub(super) fn see_leader(
        &mut self,
        answer: &Value,
        holders: &Counts,
        believed: &[String],
        now: u64,
    ) -> Result<bool, String> {
        let shown = match answer {
            Value::Nil => None,
            Value::Array(parts) => match &parts[..] {
                [Value::BulkString(field), Value::Int(_)] => Some(Shown {
                    field: text(field),
                    published: None,
                }),
                [
                    Value::BulkString(field),
                    Value::Int(_),
                    Value::BulkString(published),
                ] => {
                    let published = text(published);
                    let mut words = published.splitn(3, ' ').map(str::to_owned);
                    let (term, value) = (words.next(), words.nth(1));
                    Some(Shown {
                        field: text(field),
                        published: term.zip(value),
                    })
                }
                _ => return Err(format!("who leads is {answer:?}")),
            },
            // The server does not have the script.
            _ => return Ok(false),
        };
        self.answers.push((now, shown.clone()));
        let Some(Shown { field, published }) = shown else {
            return match holders.is_empty() {
                true => Ok(false),
                false => Err(format!("no leader is shown, and {holders:?} leads")),
            };
        };
        if !holders.contains_key(&field) {
            return Err(format!("{field} is named, and {holders:?} leads"));
        }
        let own = self
            .published
            .as_ref()
            .filter(|published| published.field == field);
        let own = own.map(|published| &published.text);
        let may_be_over = published.is_none() && !believed.contains(&field);
        match published.as_ref() == own || may_be_over {
            true => Ok(published.is_some()),
            false => Err(format!(
                "{field} published {own:?}, and {published:?} is shown"
            )),
        }
    }

    /// LE3: a call that began at this time returned an answer that the server gave since then.
    pub(super) fn is_answer_since(&self, began: u64, leader: &Option<Shown>) -> bool {
        let mut since = self.answers.iter().rev().take_while(|(at, _)| *at >= began);
        since.any(|(_, answer)| answer == leader)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
