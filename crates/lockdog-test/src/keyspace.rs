//! The keys of one database, with expiry in milliseconds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::reply::Refusal;

/// All keys, sorted by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyspace {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Milliseconds since 1970. It does not advance while a command or script runs, as in Redis.
    now: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: StoredValue,
    /// The last millisecond in which the key exists.
    pub(crate) until: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum StoredValue {
    /// In insertion order, as Redis keeps small hashes.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    List(VecDeque<Vec<u8>>),
    Set(BTreeSet<Vec<u8>>),
    Sorted(BTreeMap<Vec<u8>, f64>),
    String(Vec<u8>),
}

/// A type of value, for typed access to a key.
pub(crate) trait ValueKind: Default {
    fn wrap(self) -> StoredValue;
    fn of(value: &mut StoredValue) -> Option<&mut Self>;
    fn is_empty(&self) -> bool;
}

impl Keyspace {
    pub(crate) fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// The key's entry, unless it has expired.
    pub(crate) fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let is_over = |entry: &Entry| entry.until.is_some_and(|until| self.now > until);
        if self.entries.get(key).is_some_and(is_over) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    /// The value of this type under a key; `None` if the key does not exist.
    pub(crate) fn find<K: ValueKind>(&mut self, key: &[u8]) -> Result<Option<&mut K>, Refusal> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => K::of(&mut entry.value)
                .map(Some)
                .ok_or_else(Refusal::wrong_type),
        }
    }

    /// The value of this type under a key, created if the key does not exist. If the value may be empty
    /// afterwards, [`Keyspace::prune`] the key.
    pub(crate) fn find_or_make<K: ValueKind>(&mut self, key: &[u8]) -> Result<&mut K, Refusal> {
        self.entry(key);
        let entry = self.entries.entry(key.to_vec()).or_insert_with(|| Entry {
            value: K::default().wrap(),
            until: None,
        });
        K::of(&mut entry.value).ok_or_else(Refusal::wrong_type)
    }

    /// Removes the key if its value is empty.
    pub(crate) fn prune<K: ValueKind>(&mut self, key: &[u8]) {
        if let Ok(Some(value)) = self.find::<K>(key)
            && value.is_empty()
        {
            self.entries.remove(key);
        }
    }

    /// Replaces whatever value the key has.
    pub(crate) fn put(&mut self, key: &[u8], value: StoredValue, until: Option<u64>) {
        self.entries.insert(key.to_vec(), Entry { value, until });
    }

    /// Removes the key; returns whether it existed.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let was = self.entry(key).is_some();
        self.entries.remove(key);
        was
    }

    /// The names of all existing keys.
    pub(crate) fn names(&mut self) -> Vec<Vec<u8>> {
        let now = self.now;
        self.entries
            .retain(|_, entry| entry.until.is_none_or(|until| now <= until));
        self.entries.keys().cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

impl Entry {
    /// The type of its value, as Redis names it.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            StoredValue::Hash(_) => "hash",
            StoredValue::List(_) => "list",
            StoredValue::Set(_) => "set",
            StoredValue::Sorted(_) => "zset",
            StoredValue::String(_) => "string",
        }
    }
}

macro_rules! kinds {
    ($($variant:ident $kind:ty;)*) => {
        $(impl ValueKind for $kind {
            fn wrap(self) -> StoredValue {
                StoredValue::$variant(self)
            }

            fn of(value: &mut StoredValue) -> Option<&mut Self> {
                match value {
                    StoredValue::$variant(found) => Some(found),
                    _ => None,
                }
            }

            fn is_empty(&self) -> bool {
                self.is_empty()
            }
        })*
    };
}

kinds! {
    Hash Vec<(Vec<u8>, Vec<u8>)>;
    List VecDeque<Vec<u8>>;
    Set BTreeSet<Vec<u8>>;
    Sorted BTreeMap<Vec<u8>, f64>;
}

/// An empty string is a value too.
impl ValueKind for Vec<u8> {
    fn wrap(self) -> StoredValue {
        StoredValue::String(self)
    }

    fn of(value: &mut StoredValue) -> Option<&mut Self> {
        match value {
            StoredValue::String(found) => Some(found),
            _ => None,
        }
    }

    fn is_empty(&self) -> bool {
        false
    }
}
