//! The kinds of locks that lockdog shares with Redisson, and the tests that hold for several of them.

use lockdog::{Client, Lock};

/// One kind of lock.
#[derive(Debug)]
pub(crate) struct Kind {
    /// What the recordings in `tests/golden` call it.
    pub(crate) object: &'static str,
    /// Our handle of the lock with this name.
    lock: fn(&Client, &str) -> Lock,
    /// The method of `RedissonClient` for it.
    pub(crate) java: &'static str,
}

impl Kind {
    pub(crate) fn lock(&self, client: &Client, name: &str) -> Lock {
        (self.lock)(client, name)
    }

    /// The kind of a recorded object, or of the method that gave it.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        let mut all = ALL.iter().copied();
        all.find(|kind| [kind.object, kind.java].contains(&name))
    }
}

pub(crate) const ALL: &[&Kind] = &[
    &PLAIN,
    &SPIN,
    &NON_REENTRANT,
    &FENCED,
    &FENCED_FROM_ONE,
    &WRITE,
];

pub(crate) static PLAIN: Kind = Kind {
    object: "rlock",
    lock: |client, name| client.lock(name),
    java: "getLock",
};

pub(crate) static SPIN: Kind = Kind {
    object: "spin_lock",
    lock: |client, name| client.spin_lock(name),
    java: "getSpinLock",
};

pub(crate) static NON_REENTRANT: Kind = Kind {
    object: "non_reentrant_lock",
    lock: |client, name| client.non_reentrant_lock(name),
    java: "getNonReentrantLock",
};

pub(crate) static FENCED: Kind = Kind {
    object: "fenced_lock",
    lock: |client, name| client.fenced_lock(name),
    java: "getFencedLock",
};

pub(crate) static FENCED_FROM_ONE: Kind = Kind {
    object: "fenced_lock_from_one",
    lock: |client, name| client.fenced_lock_from_one(name),
    java: "getFencedLock",
};

pub(crate) static WRITE: Kind = Kind {
    object: "read_write_lock",
    lock: |client, name| client.read_write_lock(name).write().into(),
    java: "getReadWriteLock.writeLock",
};

/// Makes a test for each kind out of each of these functions, which take the kind: `plain::<name>` and so
/// on. A number behind a name is that of the runtime's worker threads.
///
/// The functions stand in groups, and the lines below say which groups a kind is in: `every` has them all,
/// `reentrant` those whose owner may acquire them once more, `without_modes` those
/// whose hash has nothing but its holder, `published` those whose releases are
/// published.
macro_rules! each_kind {
    (
        $(every: { $($every:tt)* })?
        $(without_modes: { $($bare:tt)* })?
        $(reentrant: { $($reentrant:tt)* })?
        $(reentrant_without_modes: { $($bare_reentrant:tt)* })?
        $(published: { $($published:tt)* })?
    ) => {
        $crate::kinds::of_kind! { plain PLAIN $($($every)*)? $($($bare)*)? $($($reentrant)*)? $($($bare_reentrant)*)? $($($published)*)? }
        $crate::kinds::of_kind! { spin SPIN $($($every)*)? $($($bare)*)? $($($reentrant)*)? $($($bare_reentrant)*)? }
        $crate::kinds::of_kind! { fenced FENCED $($($every)*)? $($($bare)*)? $($($reentrant)*)? $($($bare_reentrant)*)? $($($published)*)? }
        $crate::kinds::of_kind! { write WRITE $($($every)*)? $($($reentrant)*)? }
        $crate::kinds::of_kind! { non_reentrant NON_REENTRANT $($($every)*)? $($($bare)*)? $($($published)*)? }
    };
}

macro_rules! of_kind {
    ($module:ident $kind:ident $($test:ident $($threads:literal)?)*) => {
        mod $module {
            $(
                #[tokio::test $((flavor = "multi_thread", worker_threads = $threads))?]
                async fn $test() {
                    super::$test(&crate::kinds::$kind).await;
                }
            )*
        }
    };
}

pub(crate) use {each_kind, of_kind};
