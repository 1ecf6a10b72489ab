//! What a call on the Java side is about.

use serde_json::{Value, json};

/// A lock on the Java side: a name on the first server, or a lock of several.
#[derive(Clone, Debug)]
pub(crate) struct JavaLock {
    arguments: Value,
}

impl JavaLock {
    /// `new RedissonMultiLock(...)` of these names, each on the server with this number.
    pub(crate) fn multi<'a>(locks: impl IntoIterator<Item = (usize, &'a str)>) -> Self {
        Self::of_several("multi", locks)
    }

    /// `new RedissonMultiLock(...)` of these names, each from this method of `RedissonClient` on the server
    /// with this number.
    pub(crate) fn multi_of<'a>(locks: impl IntoIterator<Item = (usize, &'a str, &'a str)>) -> Self {
        let part =
            |(server, getter, name)| json!({ "server": server, "getter": getter, "name": name });
        let locks: Vec<Value> = locks.into_iter().map(part).collect();
        Self {
            arguments: json!({ "kind": "multi", "locks": locks }),
        }
    }

    /// `new RedissonRedLock(...)` of these names, each on the server with this number.
    pub(crate) fn red<'a>(locks: impl IntoIterator<Item = (usize, &'a str)>) -> Self {
        Self::of_several("red", locks)
    }

    /// The lock of this name that this method of `RedissonClient` gives, on the first server.
    pub(crate) fn from_getter(getter: &str, name: &str) -> Self {
        Self {
            arguments: json!({ "getter": getter, "name": name }),
        }
    }

    /// `getMultiLock(group, values)`, on the first server.
    pub(crate) fn of_values(group: &str, values: &[&str]) -> Self {
        Self {
            arguments: json!({ "name": group, "values": values }),
        }
    }

    fn of_several<'a>(kind: &str, locks: impl IntoIterator<Item = (usize, &'a str)>) -> Self {
        let part = |(server, name)| json!({ "server": server, "name": name });
        let locks: Vec<Value> = locks.into_iter().map(part).collect();
        Self {
            arguments: json!({ "kind": kind, "locks": locks }),
        }
    }

    /// The arguments of a call on it.
    pub(super) fn with(self, more: Value) -> Value {
        let mut arguments = self.arguments;
        if let (Value::Object(all), Value::Object(more)) = (&mut arguments, more) {
            all.extend(more);
        }
        arguments
    }
}

/// A name is a lock of the first server.
impl<T: AsRef<str> + ?Sized> From<&T> for JavaLock {
    fn from(name: &T) -> Self {
        Self {
            arguments: json!({ "name": name.as_ref() }),
        }
    }
}

impl From<&Self> for JavaLock {
    fn from(lock: &Self) -> Self {
        lock.clone()
    }
}
