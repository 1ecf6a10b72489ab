//! Where our calls differ from the recorded ones on purpose. `docs/protocol.md` has the reasons.

/// One aspect of one step.
pub(super) struct Difference {
    pub(super) id: &'static str,
    pub(super) scenario: &'static str,
    pub(super) step: u64,
    pub(super) aspect: &'static str,
    pub(super) ours: &'static str,
}

const fn at(
    id: &'static str,
    (scenario, step): (&'static str, u64),
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

pub(super) const DIFFERENCES: &[Difference] = &[
    at(FREE, ("lists", 5), "published", "redisson_sc:{seats} <- 3"),
    at(FREE, ("lists", 6), "published", "redisson_sc:{seats} <- 5"),
    at(ZERO, ("lists", 7), "answer", "invalid"),
    at(EXPIRED, ("expiry", 6), "published", ""),
    at(
        EXPIRED,
        ("expiry", 6),
        "keys",
        "seats string 0 without ttl, {seats}:timeout zset {\"expired\": 3} without ttl",
    ),
    at(
        SWEEP,
        ("expiry", 7),
        "keys",
        "seats string 2 without ttl, {seats}:timeout zset {\"living\": 1} without ttl",
    ),
    at(SWEEP, ("expiry", 8), "published", ""),
    at(
        FREE,
        ("expiry_in_other_scripts", 6),
        "published",
        "redisson_sc:{seats} <- 2",
    ),
    at(
        FREE,
        ("expiry_in_other_scripts", 9),
        "published",
        "redisson_sc:{seats} <- 7",
    ),
    at(SWEEP, ("expiry_in_other_scripts", 10), "published", ""),
    at(SWEEP, ("expiry_in_other_scripts", 10), "keys", EXPIRED_7),
    at(FREE, ("expiry_in_other_scripts", 11), "published", ""),
    at(SWEEP, ("expiry_in_other_scripts", 11), "keys", EXPIRED_0),
    at(SWEEP, ("expiry_in_other_scripts", 12), "keys", EXPIRED_0),
    at(
        SWEEP,
        ("expiry_in_other_scripts", 13),
        "keys",
        EXPIRED_BELOW,
    ),
    at(FREE, ("waiter_wakes_by_expiry", 7), "published", ""),
    at(
        FREE,
        ("ttl_and_delete", 6),
        "published",
        "redisson_sc:{a}:seats <- 2",
    ),
    at(
        TTL,
        ("ttl_and_delete", 6),
        "keys",
        "{a}:seats string 2 with a ttl, {a}:seats:timeout zset {\"living\": 2} with a ttl",
    ),
];

const FREE: &str = "free-number-in-messages";
const ZERO: &str = "no-permits-of-zero";
const EXPIRED: &str = "expired-is-not-released";
const SWEEP: &str = "sweep-of-100";
const TTL: &str = "add-keeps-the-ttl";

const EXPIRED_7: &str =
    "seats string 7 without ttl, {seats}:timeout zset {\"expired\": 2} without ttl";
const EXPIRED_0: &str =
    "seats string 0 without ttl, {seats}:timeout zset {\"expired\": 2} without ttl";
const EXPIRED_BELOW: &str =
    "seats string -1 without ttl, {seats}:timeout zset {\"expired\": 2} without ttl";
