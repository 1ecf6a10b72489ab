//! Lock names and kinds, and the keys and channels that Redisson derives from a name.

mod counters;
mod fingerprint;
mod hashed;
mod highway;
pub(crate) mod kind;
mod lock_group;
mod permit_id;
mod value;
mod waiting_list;

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::iter;
use std::sync::{Arc, LazyLock};

use crate::error::Error;
use crate::slot::slot;

pub(crate) use counters::{counted_by, pattern_of_counters};
pub use fingerprint::lock_hash;
use hashed::Hashed;
pub(crate) use kind::{Kind, Mode, QueueSide, QueueTimeouts, Script, WRITER};
use kind::{PLAIN, PermitKind};
pub(crate) use lock_group::LockGroup;
pub use permit_id::PermitId;
pub use value::Value;
pub(crate) use waiting_list::is_of_waiting_list;

/// The maximum length of a name in bytes, before and after the name mapper.
const LONGEST: usize = 512;

/// Maps a lock's name to its key.
pub(crate) type NameMapper = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Identifies a lock: its kind, the user's name for it, and its key in Redis. The channel of its
/// messages is derived from these.
///
/// It lives as long as the lock is held, so it stores little.
#[derive(Clone, Debug)]
pub(crate) struct LockKey {
    name: Box<str>,
    kind: &'static Kind,
    /// Hash of the kind and the key in Redis. It is stored because each acquire needs it several
    /// times.
    hash: u64,
    /// What most locks do not have.
    extras: Option<Arc<Extras>>,
}

/// What only some locks have.
#[derive(Clone, Debug, Default)]
struct Extras {
    /// The key in Redis, if a mapper made it of the name.
    mapped: Option<Box<str>>,
    /// The names of the group's values that it locks, sorted. Empty for other locks.
    values: Vec<String>,
    /// The group in which observers count it; `None` if it is in none.
    group: Option<Box<str>>,
    is_named_in_logs: bool,
}

/// A map from locks to values.
pub(crate) type ByKey<T> = HashMap<Arc<LockKey>, T, BuildHasherDefault<Hashed>>;

impl LockKey {
    /// Applies `mapper` before anything is derived from the name, as Redisson does.
    pub(crate) fn new(
        kind: &'static Kind,
        name: &str,
        mapper: Option<&NameMapper>,
    ) -> Result<Self, Error> {
        check("lock name", name)?;
        let mapped = mapper.map(|mapper| mapper(name).into_boxed_str());
        if let Some(mapped) = &mapped {
            check("mapped lock name", mapped)?;
        }
        let key = Self {
            name: name.into(),
            kind,
            hash: hash(kind, mapped.as_deref().unwrap_or(name), None),
            extras: None,
        };
        Ok(match mapped {
            Some(mapped) => key.with(|extras| extras.mapped = Some(mapped)),
            None => key,
        })
    }

    /// The same lock with other extras.
    fn with(mut self, change: impl FnOnce(&mut Extras)) -> Self {
        change(Arc::make_mut(self.extras.get_or_insert_default()));
        self
    }

    fn extra<T: ?Sized>(&self, of: impl FnOnce(&Extras) -> Option<&T>) -> Option<&T> {
        self.extras.as_deref().and_then(of)
    }

    /// The lock of these values of a group.
    pub(crate) fn of_values(self, values: &[Value]) -> Result<Self, Error> {
        let mut names: Vec<String> = values.iter().map(Value::name).collect();
        names.sort();
        names.dedup();
        if !(1..=MOST_VALUES).contains(&names.len()) {
            let why = format!("a lock has 1 to {MOST_VALUES} values, got={}", names.len());
            return Err(Error::invalid("values of a group", why));
        }
        let hash = hash(self.kind, self.key(), Some(&names));
        let key = self.with(|extras| extras.values = names);
        Ok(Self { hash, ..key })
    }

    /// The names of the group's values that it locks; empty for other locks.
    pub(crate) fn values(&self) -> &[String] {
        self.extra(|extras| Some(&*extras.values))
            .unwrap_or_default()
    }

    /// The locks of every kind under the same key. For the server they are one lock.
    pub(crate) fn of_every_kind(&self) -> impl Iterator<Item = Self> {
        let of_values = (!self.values().is_empty()).then(|| self.clone());
        let others = kind::ALL.into_iter().map(|kind| self.of_kind(kind));
        others.chain(of_values)
    }

    fn of_kind(&self, kind: &'static Kind) -> Self {
        let hash = hash(kind, self.key(), None);
        let key = match self.values() {
            [] => self.clone(),
            _ => self.clone().with(|extras| extras.values = Vec::new()),
        };
        Self { kind, hash, ..key }
    }

    /// The mode of its holds, if it is one of the two kinds of a read/write lock.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.kind.mode
    }

    /// The same read/write lock in the other mode.
    pub(crate) fn partner(&self) -> Option<Self> {
        Some(self.of_kind(self.kind.mode?.other_kind()))
    }

    /// The lock whose key names the queue of this lock's waiters: the lock itself, or for a read lock the
    /// write lock. A hold on it keeps every other owner out.
    pub(crate) fn queue_key(&self) -> Cow<'_, Self> {
        match self.kind.mode {
            Some(Mode::Read) => self.partner().map_or(Cow::Borrowed(self), Cow::Owned),
            Some(Mode::Write) | None => Cow::Borrowed(self),
        }
    }

    /// The locks whose holds keep other owners from getting this one: the one that [`LockKey::queue_key`]
    /// returns, and for a write lock also the read lock.
    pub(crate) fn conflicting(&self) -> impl Iterator<Item = Cow<'_, Self>> {
        let reads = match self.kind.mode {
            Some(Mode::Write) => self.partner().map(Cow::Owned),
            Some(Mode::Read) | None => None,
        };
        iter::once(self.queue_key()).chain(reads)
    }

    /// Whether the key in Redis has one hold at a time: it exists only with that hold, and its TTL is that hold's
    /// lease.
    pub(crate) fn ends_with_its_hold(&self) -> bool {
        self.kind.mode.is_none() && self.kind.permits.is_none() && self.values().is_empty()
    }

    /// Fails if a cluster puts the key in a different slot than its channel and its other keys.
    pub(crate) fn check_slot(self) -> Result<Self, Error> {
        // All prefixed names have the same hash tag, so one check is enough for them.
        let is_one = |other: &str| slot(self.key()) == slot(other);
        let fields = self.mode().map(|_| self.timeout_of(""));
        // The braces of a latch's channel hide those of its name.
        let is_hidden = self.kind.is_latch && self.key().contains(['{', '}']);
        if !is_hidden
            && is_one(&self.register())
            && self.permits().is_none_or(|permits| is_one(&permits))
            && fields.is_none_or(|fields| is_one(&fields))
        {
            return Ok(self);
        }
        let why = "its braces put the lock and its channel into different slots of the cluster";
        Err(Error::invalid("lock name", why.to_owned()))
    }

    /// The key of a composite lock, which has an id and no key in Redis.
    pub(crate) fn of_several(id: &str) -> Self {
        Self {
            name: id.into(),
            kind: &PLAIN,
            hash: hash(&PLAIN, id, None),
            extras: None,
        }
    }

    /// The index of one of `parts`, the same for the same lock.
    pub(crate) fn part_of(&self, parts: usize) -> usize {
        // Uses bits that the hash map inside a part does not use for placing the entry.
        (self.hash >> 32) as usize % parts
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// The user's name for the lock.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The key in Redis.
    pub(crate) fn key(&self) -> &str {
        self.extra(|extras| extras.mapped.as_deref())
            .unwrap_or(&self.name)
    }

    /// The channel on which its releases are published; `None` if they are not.
    pub(crate) fn channel(&self) -> Option<String> {
        let prefix = self.kind.channel?;
        Some(match self.kind.is_latch {
            true => [prefix, "{", self.key(), "}"].concat(),
            false => prefixed(prefix, self.key()),
        })
    }

    /// The key that counts its fencing tokens, if its kind issues them. In a cluster it has the lock's
    /// slot.
    pub(crate) fn counter(&self) -> Option<String> {
        let counter = self.kind.counter?;
        Some(prefixed(counter.prefix, self.key()))
    }

    /// The key of the set that names its permits in use, if its kind has permits. In a cluster it has the
    /// lock's slot.
    pub(crate) fn permits(&self) -> Option<String> {
        Some(match self.kind.permits? {
            PermitKind::Leased => suffixed(self.key(), "timeout"),
            PermitKind::Counted => prefixed(LEDGER, self.key()),
        })
    }

    /// The key of a read hold's lease, Redisson's key for the first acquire of the hold with this field. In a
    /// cluster it has the lock's slot.
    pub(crate) fn timeout_of(&self, field: &str) -> String {
        self.timeout_of_acquire(field, 1)
    }

    /// The prefix, before the field, of the keys for the leases of read holds.
    pub(crate) fn before_fields(&self) -> String {
        suffixed(self.key(), "")
    }

    /// As [`LockKey::timeout_of`], for one of the acquires of the hold. Only Redisson writes the keys of later ones.
    pub(crate) fn timeout_of_acquire(&self, field: &str, acquire: u32) -> String {
        format!("{}{field}:rwlock_timeout:{acquire}", self.before_fields())
    }

    /// The key that announces a writer which waits for readers. In a cluster it has the lock's slot.
    pub(crate) fn announcement(&self) -> String {
        prefixed("lockdog_writer", self.key())
    }

    /// The keys of the queue on the server, if its kind has one: the list of the waiters, and for each of
    /// them the moments up to which Redisson and lockdog keep it. In a cluster they have the lock's slot.
    pub(crate) fn server_queue(&self) -> Option<[String; 3]> {
        let prefixes = [
            "redisson_lock_queue",
            "redisson_lock_timeout",
            "lockdog_fair",
        ];
        let is_on_server = self.kind.queue == QueueSide::Server;
        is_on_server.then(|| prefixes.map(|prefix| prefixed(prefix, self.key())))
    }

    /// The key with the value that the leader published, if holders of this kind publish one. The channel on
    /// which they publish has the same name. In a cluster the key has the lock's slot.
    pub(crate) fn proclaimed(&self) -> Option<String> {
        let is_published = self.kind.publishes_value;
        is_published.then(|| prefixed(kind::NEWS_PREFIX, self.key()))
    }

    /// A lock without a holder, whose channel is the one on which the leaders of this election publish values.
    pub(crate) fn news(&self) -> Self {
        self.of_kind(&kind::NEWS)
    }

    /// The key that marks a request of this id as done. In a cluster it has the lock's slot.
    pub(crate) fn mark(&self, request: &PermitId) -> String {
        format!("{}:{request}", prefixed(LEDGER, self.key()))
    }

    /// The key of the register: the largest fencing token that one server has seen for the lock. In
    /// a cluster it has the lock's slot.
    pub(crate) fn register(&self) -> String {
        prefixed("lockdog_token", self.key())
    }
}

/// Two keys are the same lock if their kind, their key in Redis and their values are the same.
impl PartialEq for LockKey {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.key() == other.key() && self.values() == other.values()
    }
}

impl Eq for LockKey {}

impl Hash for LockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

fn hash(kind: &Kind, key: &str, values: Option<&[String]>) -> u64 {
    // A random secret, so that an outsider cannot choose names with equal hashes.
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SECRET.hash_one((kind.name, key, values))
}

fn check(what: &'static str, name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::invalid(what, "it is empty".to_owned()));
    }
    if name.len() > LONGEST {
        return Err(Error::invalid(
            what,
            format!("it must be at most {LONGEST} bytes, got={}", name.len()),
        ));
    }
    Ok(())
}

/// How many values of a group one lock may have. A script goes through all of them.
const MOST_VALUES: usize = 256;

const LEDGER: &str = "lockdog_ledger";

/// Redisson's prefixed name. The name becomes the hash tag, unless it contains one.
fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        [prefix, ":", name].concat()
    } else {
        [prefix, ":{", name, "}"].concat()
    }
}

/// Redisson's suffixed name. The name becomes the hash tag, unless it contains one.
fn suffixed(name: &str, suffix: &str) -> String {
    if name.contains('{') {
        [name, ":", suffix].concat()
    } else {
        ["{", name, "}:", suffix].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(name: &str) -> String {
        let key = LockKey::new(&PLAIN, name, None).unwrap();
        key.channel().expect("its releases are published")
    }

    #[test]
    fn channel_names_match_redisson() {
        assert_eq!(channel("orders"), "redisson_lock__channel:{orders}");
        assert_eq!(channel("{a}:b"), "redisson_lock__channel:{a}:b");
        assert_eq!(channel("a}b"), "redisson_lock__channel:{a}b}");
        assert_eq!(channel("my lock"), "redisson_lock__channel:{my lock}");
    }

    #[test]
    fn the_channel_of_a_latch_is_always_in_braces() {
        let latch = |name| LockKey::new(&kind::LATCH, name, None).unwrap();
        let channel = |name| latch(name).channel().expect("it has one");
        assert_eq!(
            channel("start"),
            "redisson_countdownlatch__channel__{start}"
        );
        assert_eq!(
            channel("{a}:b"),
            "redisson_countdownlatch__channel__{{a}:b}"
        );
        assert!(latch("start").check_slot().is_ok());
        for braces in ["{a}:b", "a}b", "{", "a{b"] {
            assert!(latch(braces).check_slot().is_err(), "{braces}");
        }
    }

    #[test]
    fn a_waiting_list_has_the_name_of_the_channel_with_another_prefix() {
        for name in ["orders", "{a}:b", "a}b"] {
            for kind in [&PLAIN, &kind::NON_REENTRANT, &kind::FENCED] {
                let key = LockKey::new(kind, name, None).unwrap();
                let (channel, list) = (key.channel().unwrap(), key.waiting_list().unwrap());
                let of_channel = channel.strip_prefix("redisson_lock__channel").unwrap();
                assert_eq!(list.strip_prefix("lockdog_waiters"), Some(of_channel));
                assert!(is_of_waiting_list(&list) && !is_of_waiting_list(&channel));
            }
        }
        for kind in [
            &kind::SPIN,
            &kind::FAIR,
            &kind::READ,
            &kind::GROUP,
            &kind::LATCH,
        ] {
            let key = LockKey::new(kind, "orders", None).unwrap();
            assert_eq!(key.waiting_list(), None, "{}", kind.name);
        }
    }

    #[test]
    fn a_register_has_the_hash_tag_of_its_lock() {
        let register = |name| LockKey::new(&PLAIN, name, None).unwrap().register();
        assert_eq!(register("orders"), "lockdog_token:{orders}");
        assert_eq!(register("{a}:b"), "lockdog_token:{a}:b");
    }

    #[test]
    fn a_counter_is_named_as_redisson_names_it_and_has_the_hash_tag_of_its_lock() {
        let counter = |name| LockKey::new(&kind::FENCED, name, None).unwrap().counter();
        let orders = "redisson_lock_token:{orders}";
        assert_eq!(counter("orders").as_deref(), Some(orders));
        let braces = "redisson_lock_token:{a}:b";
        assert_eq!(counter("{a}:b").as_deref(), Some(braces));
        let plain = LockKey::new(&PLAIN, "orders", None).unwrap();
        assert_eq!(plain.counter(), None);
    }

    #[test]
    fn the_keys_of_a_read_hold_are_named_as_redisson_names_them() {
        let read = |name| LockKey::new(&kind::READ, name, None).unwrap();
        let orders = read("orders");
        assert_eq!(orders.timeout_of("u:1"), "{orders}:u:1:rwlock_timeout:1");
        assert_eq!(
            read("{a}:b").timeout_of("u:1"),
            "{a}:b:u:1:rwlock_timeout:1"
        );
        assert_eq!(orders.announcement(), "lockdog_writer:{orders}");
        let channel = "redisson_rwlock:{orders}";
        assert_eq!(orders.channel().as_deref(), Some(channel));
    }

    #[test]
    fn the_two_kinds_of_a_read_write_lock_are_partners_with_one_queue() {
        let key = |kind| LockKey::new(kind, "orders", None).unwrap();
        let (read, write) = (key(&kind::READ), key(&kind::WRITE));
        assert!(read.partner().unwrap() == write && write.partner().unwrap() == read);
        assert!(*read.queue_key() == write && *write.queue_key() == write);
        let conflicting =
            |key: &LockKey| key.conflicting().map(Cow::into_owned).collect::<Vec<_>>();
        assert!(conflicting(&read).iter().eq([&write]));
        assert!(conflicting(&write).iter().eq([&write, &read]));
        let plain = key(&PLAIN);
        assert!(plain.partner().is_none() && *plain.queue_key() == plain);
        assert!(conflicting(&plain).iter().eq([&plain]));
    }

    #[test]
    fn the_mapper_is_applied_before_the_channel_is_derived() {
        let mapper: NameMapper = Arc::new(|name| format!("app:{name}"));
        let key = LockKey::new(&PLAIN, "orders", Some(&mapper)).unwrap();
        assert_eq!(key.name(), "orders");
        assert_eq!(key.key(), "app:orders");
        let channel = "redisson_lock__channel:{app:orders}";
        assert_eq!(key.channel().as_deref(), Some(channel));
    }

    #[test]
    fn locks_of_two_kinds_under_one_key_are_distinct() {
        let key = |kind| LockKey::new(kind, "orders", None).unwrap();
        let (plain, other) = (key(&PLAIN), key(&kind::OTHER));
        assert!(plain != other && plain.hash != other.hash);
        assert!(plain == key(&PLAIN));
    }

    #[test]
    fn empty_and_oversized_names_are_refused() {
        assert!(LockKey::new(&PLAIN, "", None).is_err());
        assert!(LockKey::new(&PLAIN, &"x".repeat(513), None).is_err());
        assert!(LockKey::new(&PLAIN, &"x".repeat(512), None).is_ok());
        let mapper: NameMapper = Arc::new(|_| String::new());
        assert!(LockKey::new(&PLAIN, "x", Some(&mapper)).is_err());
    }
}
