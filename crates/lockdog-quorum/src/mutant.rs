//! Defects that tests must find.
//!
//! Built with `--cfg lockdog_mutants`, the engine has the one defect that the environment variable
//! `LOCKDOG_MUTANT` names. Built without, none of this exists. `tests/mutants` runs the tests against
//! each defect.

/// True if this defect is enabled.
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
