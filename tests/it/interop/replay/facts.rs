//! What is compared after a step, as text.

use std::collections::{BTreeMap, HashMap};

/// The aspects of a step, each compared as one text.
pub(super) const ASPECTS: &[&str] = &["answer", "came back", "published", "keys", "renewals"];

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts(BTreeMap<&'static str, String>);

impl Facts {
    pub(super) fn get(&self, aspect: &str) -> &str {
        self.0.get(aspect).map_or("", String::as_str)
    }

    pub(super) fn set(&mut self, aspect: &'static str, fact: impl Into<String>) {
        self.0.insert(aspect, fact.into());
    }
}

/// What happened to a key's expiry.
#[derive(Clone, Debug)]
pub(super) struct Expiry {
    pub(super) key: String,
    pub(super) change: Change,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// By a call, to so many milliseconds.
    Set(i64),
    /// By the watchdog, to so many milliseconds.
    Renewed(i64),
    /// The watchdog asked, and left the expiry as it was.
    Asked,
    Removed,
}

/// The expiry of every key: what it was last set to, and in which step a call last set it.
///
/// That is what the recording's "just set to 30 s" and "30 s less what has passed" mean, without a
/// look at any clock: a slow machine makes no difference to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Expiries {
    keys: HashMap<String, (i64, usize)>,
    /// How many times longer everything is said to be than it was.
    slower: Option<u32>,
}

impl Expiries {
    pub(super) fn slowed(times: u32) -> Self {
        let slower = Some(times);
        Self {
            slower,
            ..Self::default()
        }
    }

    pub(super) fn apply(&mut self, step: usize, expiry: &Expiry) {
        let key = expiry.key.clone();
        match expiry.change {
            Change::Set(ms) => {
                self.keys.insert(key, (ms, step));
            }
            Change::Renewed(ms) => {
                let set_in = self.keys.get(&key).map_or(step, |(_, step)| *step);
                self.keys.insert(key, (ms, set_in));
            }
            Change::Asked => {}
            Change::Removed => {
                self.keys.remove(&key);
            }
        }
    }

    pub(super) fn of(&self, key: &str) -> Option<i64> {
        self.keys.get(key).map(|(ms, _)| *ms)
    }

    pub(super) fn text(&self, key: &str) -> String {
        self.keys.get(key).map_or_else(
            || "no ttl".to_owned(),
            |(ms, step)| {
                let ms = ms * i64::from(self.slower.unwrap_or(1));
                format!("ttl {ms} of step {step}")
            },
        )
    }

    /// A key that is gone has no expiry left to tell of.
    pub(super) fn keep(&mut self, keys: &[String]) {
        self.keys.retain(|key, _| keys.contains(key));
    }
}

/// How often each key was renewed: which ones at all, and whether far too often.
///
/// A count would depend on where a step ends between two renewals.
pub(super) fn renewals<'a>(expiries: impl Iterator<Item = &'a Expiry>) -> String {
    let mut counts = BTreeMap::new();
    for Expiry { key, change } in expiries {
        if matches!(change, Change::Renewed(_) | Change::Asked) {
            *counts.entry(key).or_insert(0) += 1;
        }
    }
    let text = |(key, count): (&String, &u32)| match count {
        1..=6 => key.clone(),
        _ => format!("{key} far too often"),
    };
    counts
        .iter()
        .map(|(key, count)| text((key, count)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// One key of the server.
pub(super) fn key_text(name: &str, kind: &str, content: &str, expiry: &str) -> String {
    format!("{name:?} {kind} {content} {expiry}")
}

pub(super) fn hash_text(fields: &BTreeMap<String, String>) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(field, value)| format!("{field}={value}"))
        .collect();
    format!("{{{}}}", fields.join(", "))
}
