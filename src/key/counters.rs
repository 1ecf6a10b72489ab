//! The names of the counters of fencing tokens, without the locks that they count for.

use super::kind::FENCED;
use super::prefixed;

/// The keys of the locks that this counter counts for; none if the name is not that of a counter. The locks `b` and
/// `{b}` have one counter.
pub(crate) fn counted_by(counter: &str) -> Vec<&str> {
    let prefix = prefix();
    let name = counter
        .strip_prefix(prefix)
        .and_then(|it| it.strip_prefix(':'));
    let Some(name) = name else {
        return Vec::new();
    };
    let inner = name.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    let both = [inner, name.contains('{').then_some(name)];
    let counts = |lock: &&str| !lock.is_empty() && prefixed(prefix, lock) == counter;
    both.into_iter().flatten().filter(counts).collect()
}

/// A pattern of the counters of the locks whose keys match this pattern.
pub(crate) fn pattern_of_counters(locks: &str) -> String {
    let prefix = prefix();
    match locks {
        // Also those whose names have braces of their own.
        "*" => format!("{prefix}:*"),
        _ => prefixed(prefix, locks),
    }
}

fn prefix() -> &'static str {
    FENCED.counter.map_or("", |counter| counter.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;

    #[test]
    fn a_counter_leads_back_to_its_lock() {
        for name in ["orders", "a{b}c", "{b}", "{", "a}"] {
            let key = LockKey::new(&FENCED, name, None).unwrap();
            let counter = key.counter().unwrap();
            assert!(counted_by(&counter).contains(&name), "{name}");
        }
        assert_eq!(counted_by("redisson_lock_token:{b}"), ["b", "{b}"]);
        assert_eq!(
            counted_by("redisson_lock_token:{orders}"),
            ["orders", "{orders}"]
        );
        for other in [
            "orders",
            "redisson_lock_token",
            "redisson_lock_token:",
            "redisson_lock_token:b",
        ] {
            assert!(counted_by(other).is_empty(), "{other}");
        }
    }
}
