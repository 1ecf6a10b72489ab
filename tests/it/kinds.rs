//! The kinds of locks that lockdog shares with Redisson, and the tests that hold for several of them.

use lockdog::{Client, Lock, Value};

use crate::support::redisson::JavaLock;

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

    /// Redisson's lock of this name.
    pub(crate) fn java_lock(&self, name: &str) -> JavaLock {
        match self.java {
            of_values if of_values == GROUP.java => JavaLock::of_values(name, &VALUES),
            getter => JavaLock::from_getter(getter, name),
        }
    }

    /// The kind of a recorded object, or of the method that gave it.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        let mut all = ALL.iter().copied();
        all.find(|kind| [kind.object, kind.java].contains(&name))
    }
}

/// One line for each kind: the module of its tests, its value, and which groups of tests it is in besides
/// `every`. `ALL` and the tests of `each_kind` come from these lines.
macro_rules! list_of_kinds {
    ($then:ident $groups:tt) => {
        $crate::kinds::$then! { $groups
            plain PLAIN { reentrant: yes, without_modes: yes, reentrant_without_modes: yes, published: yes, whole_key: yes }
            spin SPIN { reentrant: yes, without_modes: yes, reentrant_without_modes: yes, published: no, whole_key: yes }
            non_reentrant NON_REENTRANT { reentrant: no, without_modes: yes, reentrant_without_modes: no, published: yes, whole_key: yes }
            fenced FENCED { reentrant: yes, without_modes: yes, reentrant_without_modes: yes, published: yes, whole_key: yes }
            fenced_from_one FENCED_FROM_ONE { reentrant: yes, without_modes: yes, reentrant_without_modes: yes, published: yes, whole_key: yes }
            fair FAIR { reentrant: yes, without_modes: yes, reentrant_without_modes: yes, published: no, whole_key: yes }
            non_reentrant_fair NON_REENTRANT_FAIR { reentrant: no, without_modes: yes, reentrant_without_modes: no, published: no, whole_key: yes }
            group GROUP { reentrant: yes, without_modes: no, reentrant_without_modes: no, published: yes, whole_key: no }
            write WRITE { reentrant: yes, without_modes: no, reentrant_without_modes: no, published: no, whole_key: yes }
        }
    };
}

pub(crate) const ALL: &[&Kind] = list_of_kinds!(values {});

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

pub(crate) static FAIR: Kind = Kind {
    object: "fair_lock",
    lock: |client, name| client.fair_lock(name),
    java: "getFairLock",
};

pub(crate) static NON_REENTRANT_FAIR: Kind = Kind {
    object: "non_reentrant_fair_lock",
    lock: |client, name| client.non_reentrant_fair_lock(name),
    java: "getNonReentrantFairLock",
};

pub(crate) static WRITE: Kind = Kind {
    object: "read_write_lock",
    lock: |client, name| client.read_write_lock(name).write().into(),
    java: "getReadWriteLock.writeLock",
};

/// Not in `ALL`, because its holders do not exclude each other.
pub(crate) static READ: Kind = Kind {
    object: "read_lock",
    lock: |client, name| client.read_write_lock(name).read().into(),
    java: "getReadWriteLock.readLock",
};

pub(crate) static GROUP: Kind = Kind {
    object: "faster_multi_lock",
    lock: |client, name| {
        let values = VALUES.map(|value| Value::kryo5(value).expect("it is short"));
        client.group_lock(name, values)
    },
    java: "getMultiLock",
};

/// What a lock of the group of this name has here.
pub(crate) const VALUES: [&str; 2] = ["Jack", "Mary"];

/// Makes a test for each kind out of each of these functions, which take the kind: `plain::<name>` and so
/// on. A number behind a name is that of the runtime's worker threads.
///
/// The functions are in groups: `every` is for all kinds, `reentrant` for those whose owner may acquire
/// them again, `without_modes` and `reentrant_without_modes` for those whose
/// hash has nothing but its holder, `published` for those whose releases are published, `whole_key` for those
/// whose key is the lock's alone.
macro_rules! each_kind {
    ($($groups:tt)*) => {
        $crate::kinds::list_of_kinds! { tests { $($groups)* } }
    };
}

/// As `each_kind`, for these kinds only: `some_kinds! { [plain PLAIN, spin SPIN] { <tests> } }`.
macro_rules! some_kinds {
    ([$($module:ident $kind:ident),*] $tests:tt) => {
        $(
            mod $module {
                $crate::kinds::tests_of_group! { yes $kind $tests }
            }
        )*
    };
}

macro_rules! values {
    ({} $($module:ident $kind:ident $is_in:tt)*) => { &[$(&$kind),*] };
}

macro_rules! tests {
    ($groups:tt $($module:ident $kind:ident $is_in:tt)*) => {
        $(
            mod $module {
                $crate::kinds::tests_of_kind! { $kind $is_in $groups }
            }
        )*
    };
}

macro_rules! tests_of_kind {
    ($kind:ident {
        reentrant: $is_reentrant:ident,
        without_modes: $is_without_modes:ident,
        reentrant_without_modes: $is_reentrant_without_modes:ident,
        published: $is_published:ident,
        whole_key: $has_whole_key:ident
    } {
        $(every: $every:tt)?
        $(without_modes: $without_modes:tt)?
        $(reentrant: $reentrant:tt)?
        $(reentrant_without_modes: $reentrant_without_modes:tt)?
        $(published: $published:tt)?
        $(whole_key: $whole_key:tt)?
    }) => {
        $($crate::kinds::tests_of_group! { yes $kind $every })?
        $($crate::kinds::tests_of_group! { $is_without_modes $kind $without_modes })?
        $($crate::kinds::tests_of_group! { $is_reentrant $kind $reentrant })?
        $($crate::kinds::tests_of_group! { $is_reentrant_without_modes $kind $reentrant_without_modes })?
        $($crate::kinds::tests_of_group! { $is_published $kind $published })?
        $($crate::kinds::tests_of_group! { $has_whole_key $kind $whole_key })?
    };
}

macro_rules! tests_of_group {
    (yes $kind:ident { $($test:ident $($threads:literal)?)* }) => {
        $(
            #[tokio::test $((flavor = "multi_thread", worker_threads = $threads))?]
            async fn $test() {
                super::$test(&crate::kinds::$kind).await;
            }
        )*
    };
    (no $kind:ident $tests:tt) => {};
}

pub(crate) use {
    each_kind, list_of_kinds, some_kinds, tests, tests_of_group, tests_of_kind, values,
};
