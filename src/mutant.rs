//! Defects that tests must find.
//!
//! Built with `--cfg lockdog_mutants`, the engine has the one defect that the environment variable
//! `LOCKDOG_MUTANT` names. Other builds contain none of this. `tests/mutants` runs the tests
//! against each defect.

/// True if this defect is switched on.
macro_rules! mutant {
    ($name:literal) => {
        cfg!(lockdog_mutants) && crate::mutant::is_wanted($name)
    };
}

#[cfg(not(lockdog_mutants))]
pub(crate) const fn is_wanted(_name: &str) -> bool {
    false
}

#[cfg(lockdog_mutants)]
pub(crate) fn is_wanted(name: &str) -> bool {
    use std::sync::LazyLock;
    static WANTED: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("LOCKDOG_MUTANT").ok());
    WANTED.as_deref() == Some(name)
}

/// Lowers the count by one at each run.
#[cfg(lockdog_mutants)]
pub(crate) const UNLOCK_BY_DECREMENT: &str = r"
local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if left > 0 then
    return 0
end
if redis.call('hdel', KEYS[1], ARGV[1]) == 1 and left == 0 then
    redis.pcall(ARGV[4], ARGV[3], '0')
    return 1
end
return nil
";

/// Deletes the key without checking its holder.
#[cfg(lockdog_mutants)]
pub(crate) const BLIND_FORCE_UNLOCK: &str = r"
local freed = redis.call('del', KEYS[1])
redis.pcall(ARGV[3], ARGV[2], '0')
return freed
";
