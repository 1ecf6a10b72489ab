//! Where we mean to differ from the recordings. Each id is a row of the table in
//! `docs/protocol.md`, which gives the reasons.

/// One aspect of one step in which we differ.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) id: &'static str,
    pub(super) scenario: &'static str,
    pub(super) step: usize,
    pub(super) aspect: &'static str,
    /// What is seen instead.
    pub(super) ours: &'static str,
}

/// The differences of one step.
pub(super) fn expected(scenario: &str, step: usize) -> Vec<&'static Difference> {
    DIFFERENCES
        .iter()
        .filter(|difference| difference.scenario == scenario && difference.step == step)
        .collect()
}

const fn of(
    id: &'static str,
    scenario: &'static str,
    step: usize,
    aspect: &'static str,
    ours: &'static str,
) -> Difference {
    Difference {
        id,
        scenario,
        step,
        aspect,
        ours,
    }
}

#[rustfmt::skip]
pub(super) const DIFFERENCES: &[Difference] = &[
    of("no-short-lease", "lease", 5, "answer", "invalid lease"),
    of("no-expire-calls", "expire", 2, "answer", "no such call"),
    of("no-expire-calls", "expire", 3, "answer", "no such call"),
    of("no-expire-calls", "expire", 4, "answer", "no such call"),
    of("no-expire-calls", "expire", 6, "answer", "no such call"),
    of("lease-of-the-call", "reentry_with_leases", 2, "keys", r#""orders" hash {<uuid1>:<t1>=2} ttl 30000 of step 2"#),
    of("lease-of-the-call", "lease_kept_by_the_object", 2, "keys", r#""orders" hash {<uuid1>:<t1>=2} ttl 9000 of step 2"#),
    of("lease-of-the-call", "lease_kept_by_the_object", 3, "keys", r#""orders" hash {<uuid1>:<t1>=2} ttl 9000 of step 2"#),
    of("lease-of-the-call", "lease_kept_by_the_object", 4, "keys", r#""orders" hash {<uuid1>:<t2>=1} ttl 9000 of step 4"#),
    of("lease-of-the-call", "lease_kept_by_the_object", 5, "keys", r#""orders" hash {<uuid1>:<t2>=1} ttl 9000 of step 4"#),
    of("lease-of-the-call", "lease_kept_by_the_object", 6, "answer", "void"),
    of("lease-of-the-call", "lease_kept_by_the_object", 6, "published", "redisson_lock__channel:{orders} <- 0"),
    of("reentry-keeps-the-longer", "reentry_with_leases", 4, "keys", r#""orders" hash {<uuid1>:<t1>=2} ttl 30000 of step 2"#),
    of("reentry-keeps-the-longer", "lease_under_watchdog", 8, "keys", r#""orders" hash {<uuid1>:<t1>=2} ttl 20000 of step 7"#),
    of("inner-unlock-leaves-ttl", "reentry", 4, "keys", r#""orders" hash {<uuid1>:<t1>=2} ttl 30000 of step 3"#),
    of("inner-unlock-leaves-ttl", "reentry", 5, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 30000 of step 3"#),
    of("inner-unlock-leaves-ttl", "reentry_with_leases", 3, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 30000 of step 2"#),
    of("inner-unlock-leaves-ttl", "reentry_with_leases", 5, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 30000 of step 2"#),
    of("inner-unlock-leaves-ttl", "lease_under_watchdog", 4, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 20000 of step 2"#),
    of("inner-unlock-leaves-ttl", "lease_under_watchdog", 5, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 20000 of step 2"#),
    of("inner-unlock-leaves-ttl", "lease_under_watchdog", 10, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 20000 of step 7"#),
    of("inner-unlock-leaves-ttl", "lease_under_watchdog", 11, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 20000 of step 7"#),
    of("renewal-never-shortens", "lease_under_watchdog", 3, "keys", r#""orders" hash {<uuid1>:<t1>=2} ttl 20000 of step 2"#),
    of("renewal-never-shortens", "lease_under_watchdog", 3, "renewals", ""),
    of("renewal-never-shortens", "lease_under_watchdog", 9, "keys", r#""orders" hash {<uuid1>:<t1>=2} ttl 20000 of step 7"#),
    of("renewal-never-shortens", "lease_under_watchdog", 9, "renewals", ""),
    of("handed-on-without-message", "many_waiters", 5, "published", ""),
    of("handed-on-without-message", "many_waiters", 7, "published", ""),
    of("one-renewal-a-period", "watchdog_timers_pile_up", 2, "renewals", "orders"),
    of("waits-are-bounded", "no_ttl", 5, "came back", "3: void"),
    of("waits-are-bounded", "no_ttl", 5, "keys", r#""orders" hash {<uuid2>:<t2>=1} ttl 60000 of step 5"#),
    of("waits-are-bounded", "no_ttl", 6, "answer", "1"),
    of("waits-are-bounded", "no_ttl", 6, "came back", ""),
    of("waits-are-bounded", "no_ttl", 6, "keys", r#""orders" hash {<uuid2>:<t2>=1} ttl 60000 of step 5"#),
    of("no-empty-name", "names", 9, "answer", "invalid lock name"),
    of("no-empty-name", "names", 9, "keys", ""),
    of("no-empty-name", "names", 10, "answer", "invalid lock name"),
    of("no-empty-name", "names", 10, "published", ""),
    of("shutdown-releases", "shutdown", 2, "published", "redisson_lock__channel:{orders} <- 0"),
    of("shutdown-releases", "shutdown", 2, "keys", ""),
    of("no-unlock-latch", "unlock_latch", 4, "answer", "nil"),
    of("no-unlock-latch", "unlock_latch", 4, "published", ""),
    of("no-unlock-latch", "unlock_latch", 4, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 30000 of step 3"#),
    of("no-unlock-latch", "unlock_latch", 5, "keys", r#""orders" hash {<uuid2>:<t2>=1} ttl 30000 of step 5"#),
    of("no-unlock-latch", "unlock_latch", 6, "answer", "nil"),
    of("no-unlock-latch", "unlock_latch", 6, "keys", r#""orders" hash {<uuid2>:<t2>=1} ttl 30000 of step 5"#),
    of("no-unlock-latch", "unlock_latch", 7, "keys", ""),
    of("reentry-keeps-the-longer", "spin_lock_lock_unlock", 2, "keys", r#""orders" hash {<uuid1>:<t1>=2} ttl 30000 of step 1"#),
    of("lease-of-the-call", "spin_lock_lock_unlock", 3, "keys", r#""orders" hash {<uuid1>:<t1>=3} ttl 30000 of step 3"#),
    of("inner-unlock-leaves-ttl", "spin_lock_lock_unlock", 4, "keys", r#""orders" hash {<uuid1>:<t1>=2} ttl 30000 of step 3"#),
    of("inner-unlock-leaves-ttl", "spin_lock_lock_unlock", 5, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 30000 of step 3"#),
    of("inner-unlock-leaves-ttl", "spin_lock_lease_of_failed_attempt", 4, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 30000 of step 2"#),
    of("kinds-exclude-each-other", "non_reentrant_lock_mixed_with_rlock", 2, "answer", "waits"),
    of("kinds-exclude-each-other", "non_reentrant_lock_mixed_with_rlock", 2, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 30000 of step 1"#),
    of("kinds-exclude-each-other", "non_reentrant_lock_mixed_with_rlock", 3, "came back", "2: void"),
    of("kinds-exclude-each-other", "non_reentrant_lock_mixed_with_rlock", 3, "published", "redisson_lock__channel:{orders} <- 0"),
    of("kinds-exclude-each-other", "non_reentrant_lock_mixed_with_rlock", 4, "answer", "waits"),
    of("kinds-exclude-each-other", "non_reentrant_lock_mixed_with_rlock", 5, "came back", "4: void"),
    of("kinds-exclude-each-other", "non_reentrant_lock_mixed_with_rlock", 5, "keys", r#""orders" hash {<uuid1>:<t1>=1} ttl 30000 of step 5"#),
    of("unlock-asks-only-for-its-own", "wrong_type", 3, "answer", "not held"),
    of("inner-unlock-leaves-ttl", "multi_lock_lock_unlock", 3, "keys", r#"s1 "orders" hash {<uuid1>:<t1>=1} ttl 30000 of step 2, s2 "orders" hash {<uuid2>:<t1>=1} ttl 30000 of step 2, s3 "orders" hash {<uuid3>:<t1>=1} ttl 30000 of step 2"#),
    of("inner-unlock-leaves-ttl", "multi_lock_leases", 5, "keys", r#"s1 "orders" hash {<uuid1>:<t1>=1} ttl 27000 of step 4, s2 "orders" hash {<uuid2>:<t1>=1} ttl 27000 of step 4, s3 "orders" hash {<uuid3>:<t1>=1} ttl 27000 of step 4"#),
    of("members-asked-at-once", "multi_lock_one_held_by_other", 2, "published", "s1 redisson_lock__channel:{orders} <- 0, s3 redisson_lock__channel:{orders} <- 0"),
    of("members-asked-at-once", "multi_lock_one_held_by_other", 3, "published", "s1 redisson_lock__channel:{orders} <- 0, s3 redisson_lock__channel:{orders} <- 0"),
    of("members-asked-at-once", "multi_lock_one_held_by_other", 4, "published", "s1 redisson_lock__channel:{orders} <- 0, s3 redisson_lock__channel:{orders} <- 0"),
    of("members-asked-at-once", "multi_lock_one_held_by_other", 4, "keys", r#"s2 "orders" hash {<uuid4>:<t2>=1} ttl 150000 of step 1"#),
    of("multi-unlock-ends-all", "multi_lock_one_hold_lost", 3, "published", "s1 redisson_lock__channel:{orders} <- 0, s3 redisson_lock__channel:{orders} <- 0"),
    of("multi-unlock-ends-all", "multi_lock_one_hold_lost", 3, "keys", ""),
    of("multi-unlock-ends-all", "multi_lock_one_hold_lost", 4, "answer", "not held"),
    of("multi-unlock-ends-all", "multi_lock_one_hold_lost", 4, "published", ""),
    of("no-name-across-slots", "cluster_odd_names", 1, "answer", "invalid lock name"),
    of("no-name-across-slots", "cluster_odd_names", 1, "keys", ""),
    of("no-name-across-slots", "cluster_odd_names", 2, "answer", "invalid lock name"),
    of("no-name-across-slots", "cluster_odd_names", 2, "keys", ""),
    of("no-name-across-slots", "cluster_odd_names", 3, "answer", "invalid lock name"),
    of("no-name-across-slots", "cluster_odd_names", 3, "keys", ""),
    of("no-name-across-slots", "cluster_odd_names", 4, "answer", "invalid lock name"),
    of("no-name-across-slots", "cluster_odd_names", 4, "keys", ""),
    of("no-name-across-slots", "cluster_odd_names", 5, "answer", "invalid lock name"),
    of("no-name-across-slots", "cluster_odd_names", 5, "keys", ""),
    of("no-name-across-slots", "cluster_odd_names", 6, "answer", "invalid lock name"),
    of("no-name-across-slots", "cluster_odd_names", 6, "keys", ""),
    of("no-name-across-slots", "cluster_odd_names", 7, "answer", "invalid lock name"),
    of("no-name-across-slots", "cluster_odd_names", 7, "keys", ""),
    of("no-name-across-slots", "cluster_odd_names", 8, "answer", "invalid lock name"),
    of("no-name-across-slots", "cluster_odd_names", 8, "keys", ""),
    of("no-name-across-slots", "cluster_odd_names", 9, "answer", "invalid lock name"),
    of("no-name-across-slots", "cluster_odd_names", 9, "keys", ""),
    of("no-name-across-slots", "cluster_odd_names", 10, "answer", "invalid lock name"),
    of("no-name-across-slots", "cluster_odd_names", 10, "keys", ""),
    of("no-name-across-slots", "cluster_odd_names", 11, "keys", r#"s1 "a{b}c" hash {<uuid1>:<t1>=1} ttl 60000 of step 11"#),
    of("no-name-across-slots", "cluster_odd_names", 12, "keys", ""),
];
