//! The facts that are compared after a step, as text.

use std::collections::{BTreeMap, HashMap};

/// The aspects of a step, each compared as one text. The last two are compared with several servers only:
/// which of them answered the call's queries, and which waited for their replicas.
pub(super) const ASPECTS: &[&str] = &[
    "answer",
    "came back",
    "published",
    "keys",
    "side keys",
    "renewals",
    "asked",
    "waits for replicas",
];

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts(BTreeMap<&'static str, String>);

impl Facts {
    pub(super) fn get(&self, aspect: &str) -> &str {
        self.0.get(aspect).map_or("", String::as_str)
    }

    /// An empty fact counts as none.
    pub(super) fn set(&mut self, aspect: &'static str, fact: impl Into<String>) {
        let fact = fact.into();
        if fact.is_empty() {
            self.0.remove(aspect);
        } else {
            self.0.insert(aspect, fact);
        }
    }
}

/// A key of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    /// The recorded name. Empty with a single server.
    pub(super) server: String,
    pub(super) key: String,
}

impl Place {
    pub(super) fn new(server: &str, key: &str) -> Self {
        Self {
            server: server.to_owned(),
            key: key.to_owned(),
        }
    }
}

/// A change of a key's expiry.
#[derive(Clone, Debug)]
pub(super) struct Expiry {
    pub(super) place: Place,
    pub(super) change: Change,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// A call set it to this number of milliseconds.
    Set(i64),
    /// The watchdog set it to this number of milliseconds.
    Renewed(i64),
    /// The watchdog queried the key, and left its expiry.
    Asked,
    /// On a replica: the expiry of the master.
    Replicated,
    Removed,
}

/// The expiry of every key: the value that was set last, and the step in which a call set it last. This is
/// the recording's "just set to 30 s" and "30 s less what has passed". No clock is read, so a slow machine
/// makes no difference.
#[derive(Clone, Debug, Default)]
pub(super) struct Expiries {
    keys: HashMap<Place, (i64, usize)>,
    /// The factor by which all times are longer than recorded.
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
        let key = expiry.place.clone();
        match expiry.change {
            Change::Set(A_DAY) if is_queue(&key.key) => {}
            Change::Set(ms) => {
                self.keys.insert(key, (ms, step));
            }
            Change::Renewed(ms) => {
                let set_in = self.keys.get(&key).map_or(step, |(_, step)| *step);
                self.keys.insert(key, (ms, set_in));
            }
            Change::Asked => {}
            Change::Replicated => {
                let at_master = Place::new(MASTER, &key.key);
                if let Some(expiry) = self.keys.get(&at_master).copied() {
                    self.keys.insert(key, expiry);
                }
            }
            Change::Removed => {
                self.keys.remove(&key);
            }
        }
    }

    pub(super) fn of(&self, place: &Place) -> Option<i64> {
        self.keys.get(place).map(|(ms, _)| *ms)
    }

    pub(super) fn text(&self, place: &Place) -> String {
        self.keys.get(place).map_or_else(
            || "no ttl".to_owned(),
            |(ms, step)| {
                let ms = ms * i64::from(self.slower.unwrap_or(1));
                format!("ttl {ms} of step {step}")
            },
        )
    }

    /// A missing key has no expiry.
    pub(super) fn keep(&mut self, places: &[Place]) {
        self.keys.retain(|place, _| places.contains(place));
    }
}

/// The keys that were renewed, and whether far too often. The count would depend on where a step ends
/// between two renewals. `recorded` writes a key in the form of the recording.
pub(super) fn renewals<'a>(
    expiries: impl Iterator<Item = &'a Expiry>,
    recorded: impl Fn(&str) -> String,
) -> String {
    let mut counts = BTreeMap::new();
    for Expiry { place, change } in expiries {
        if matches!(change, Change::Renewed(_) | Change::Asked) {
            *counts.entry(place).or_insert(0) += 1;
        }
    }
    let text = |(place, count): (&Place, &u32)| {
        let key = at(&place.server, &recorded(&place.key));
        match count {
            1..=6 => key,
            _ => format!("{key} far too often"),
        }
    };
    counts
        .iter()
        .map(|(place, count)| text((place, count)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The facts of one server.
pub(super) fn at(server: &str, text: &str) -> String {
    match server {
        "" => text.to_owned(),
        server => format!("{server} {text}"),
    }
}

pub(super) fn message_text(channel: &str, message: &str, sharded: bool) -> String {
    let how = if sharded { " in its shard" } else { "" };
    format!("{channel} <- {message}{how}")
}

/// One key of a server.
pub(super) fn key_text(server: &str, key: &str, kind: &str, content: &str, expiry: &str) -> String {
    at(server, &format!("{key:?} {kind} {content} {expiry}"))
}

pub(super) fn hash_text(fields: &BTreeMap<String, String>) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(field, value)| format!("{field}={value}"))
        .collect();
    format!("{{{}}}", fields.join(", "))
}

/// The waiters of a fair lock, in their order.
pub(super) fn list_text(items: &[String]) -> String {
    format!("[{}]", items.join(", "))
}

/// The places of waiters, each with the number of milliseconds for which it is valid after the lock's
/// lease, in hundreds of seconds. A slow machine makes no difference to that.
pub(super) fn places_text(places: &[(String, f64)]) -> String {
    let place = |(field, good_for): &(String, f64)| {
        let hundreds = (good_for / 100_000.0).round();
        // Not -0.
        format!("{field} for {}00 s", hundreds as i64)
    };
    let texts: Vec<String> = places.iter().map(place).collect();
    format!("{{{}}}", texts.join(", ").replace(" 000 s", " 0 s"))
}

/// The lock of a queue's key.
pub(super) fn lock_of(key: &str) -> &str {
    let (_, name) = key.split_once(':').expect("a prefix and a name");
    match name
        .strip_prefix('{')
        .and_then(|name| name.strip_suffix('}'))
    {
        Some(plain) if !plain.contains('{') => plain,
        _ => name,
    }
}

/// The keys that only lockdog has.
pub(super) fn is_side_key(key: &str) -> bool {
    key.starts_with("lockdog_")
}

/// The commands that read.
pub(super) const QUESTIONS: &[&str] = &["EXISTS", "HEXISTS", "HGET", "HGETALL", "PTTL"];

/// The server that a recorded replica follows.
pub(super) const MASTER: &str = "s1";

/// Whether it is a key of the queue of a fair lock. Redisson keeps it without a TTL; lockdog gives it a TTL
/// of a day, which is not compared. `docs/protocol.md` and `fair::scripts` describe it.
pub(super) fn is_queue(key: &str) -> bool {
    ["redisson_lock_queue:", "redisson_lock_timeout:"]
        .iter()
        .any(|it| key.starts_with(it))
}

const A_DAY: i64 = 24 * 60 * 60 * 1000;
