//! The names of the counters of fencing tokens, without the locks that they count for.

use super::kind::FENCED;
use super::prefixed;

/// The key of the lock that this counter counts for; `None` if the name is not that of a counter.
pub(crate) fn counted_by(counter: &str) -> Option<&str> {
    let prefix = FENCED.counter?.prefix;
    let name = counter.strip_prefix(prefix)?.strip_prefix(':')?;
    let inner = name.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    let is_tag = |inner: &&str| prefixed(prefix, inner) == counter;
    Some(inner.filter(is_tag).unwrap_or(name))
}

/// A pattern of the counters of the locks whose keys match this pattern.
pub(crate) fn pattern_of_counters(locks: &str) -> String {
    let prefix = FENCED.counter.map_or("", |counter| counter.prefix);
    match locks {
        // Also those whose names have braces of their own.
        "*" => format!("{prefix}:*"),
        _ => prefixed(prefix, locks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;

    #[test]
    fn a_counter_leads_back_to_its_lock() {
        for name in ["orders", "a{b}c", "{b}", "{", "a}"] {
            let key = LockKey::new(&FENCED, name, None).unwrap();
            assert_eq!(counted_by(&key.counter().unwrap()), Some(name), "{name}");
        }
        assert_eq!(counted_by("orders"), None);
        assert_eq!(counted_by("redisson_lock_token"), None);
    }
}
