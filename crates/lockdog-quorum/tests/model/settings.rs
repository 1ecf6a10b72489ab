//! The worlds to explore. Each small world has what one kind of fault needs, and no more: a world with
//! everything would be too large.

use std::sync::Arc;

use super::reached::Sight;
use super::setting::{LEASE, Setting, Spent};

pub(super) fn all() -> Vec<Setting> {
    vec![
        Setting {
            name: "late messages",
            cancels: true,
            ticks: 3,
            wanted: &[
                Sight::Won,
                Sight::SecondHolder,
                Sight::LateRequest,
                Sight::LateAnswer,
                Sight::LateGrant,
                Sight::LostByDeadline,
            ],
            ..plain()
        },
        Setting {
            name: "a third attempt",
            ticks: 0,
            limits: Spent { begun: 3, ..ONCE },
            wanted: &[Sight::SecondHolder, Sight::LateGrant],
            ..plain()
        },
        Setting {
            name: "doubled",
            tick: OVER,
            limits: Spent { doubled: 1, ..ONCE },
            wanted: &[
                Sight::SecondHolder,
                Sight::DoubledRequest,
                Sight::DoubledAnswer,
            ],
            ..plain()
        },
        Setting {
            name: "doubled, lengthened",
            ticks: 0,
            limits: Spent {
                doubled: 1,
                lengthened: 1,
                ..ONCE
            },
            wanted: &[Sight::DoubledRequest, Sight::DoubledAnswer, Sight::Healed],
            ..plain()
        },
        Setting {
            name: "no answers",
            limits: Spent { failed: 1, ..ONCE },
            ticks: 2,
            wanted: &[Sight::SecondHolder, Sight::Failure],
            ..plain()
        },
        Setting {
            name: "lengthened",
            limits: Spent {
                lengthened: 1,
                ..ONCE
            },
            ticks: 2,
            wanted: &[Sight::SecondHolder, Sight::Extended, Sight::Healed],
            ..plain()
        },
        Setting {
            name: "renewed",
            tick: THIRD,
            ticks: 2,
            limits: Spent { renewed: 1, ..ONCE },
            wanted: &[
                Sight::SecondHolder,
                Sight::Extended,
                Sight::Healed,
                Sight::Jeopardy,
                Sight::LateAnswer,
            ],
            ..plain()
        },
        Setting {
            name: "renewed, longer once",
            tick: THIRD,
            longer: 2 * LEASE,
            limits: Spent {
                renewed: 1,
                lengthened: 1,
                ..ONCE
            },
            wanted: &[Sight::Extended, Sight::Healed, Sight::Jeopardy],
            ..plain()
        },
        Setting {
            name: "restarted",
            tick: OVER / 2,
            ticks: 2,
            limits: Spent {
                restarted: 1,
                ..ONCE
            },
            wanted: &[
                Sight::SecondHolder,
                Sight::Restart,
                Sight::Quarantined,
                Sight::Rejoined,
            ],
            ..plain()
        },
        Setting {
            name: "restarted, renewed",
            tick: OVER / 2,
            limits: Spent {
                restarted: 1,
                renewed: 1,
                ..ONCE
            },
            wanted: &[
                Sight::SecondHolder,
                Sight::Quarantined,
                Sight::Extended,
                Sight::Healed,
                Sight::LostByAnswers,
            ],
            ..plain()
        },
        Setting {
            name: "masked, 3 of 3",
            masked: 1,
            ticks: 2,
            limits: Spent {
                lost: 1,
                lengthened: 1,
                ..ONCE
            },
            wanted: &[Sight::SecondHolder, Sight::EarlyLoss, Sight::LostByAnswers],
            ..plain()
        },
        Setting {
            name: "masked, 3 of 4",
            instances: 4,
            masked: 1,
            tick: OVER,
            limits: Spent { lost: 1, ..ONCE },
            wanted: &[Sight::SecondHolder, Sight::EarlyLoss],
            ..plain()
        },
        Setting {
            name: "fenced",
            fenced: true,
            registers: [2, 1, 1, 0],
            tick: OVER,
            wanted: &[Sight::SecondHolder, Sight::Token, Sight::Conflict],
            ..plain()
        },
        Setting {
            name: "fenced, lengthened",
            fenced: true,
            ticks: 0,
            limits: Spent {
                lengthened: 1,
                ..ONCE
            },
            wanted: &[Sight::SecondHolder, Sight::Token, Sight::Healed],
            ..plain()
        },
        Setting {
            name: "fenced, doubled",
            fenced: true,
            ticks: 0,
            limits: Spent { doubled: 1, ..ONCE },
            wanted: &[
                Sight::SecondHolder,
                Sight::Token,
                Sight::DoubledRequest,
                Sight::DoubledAnswer,
            ],
            ..plain()
        },
        Setting {
            name: "fenced, restarted",
            fenced: true,
            tick: OVER,
            limits: Spent {
                restarted: 1,
                ..ONCE
            },
            wanted: &[
                Sight::SecondHolder,
                Sight::Token,
                Sight::Rejoined,
                Sight::UntrustedLook,
            ],
            ..plain()
        },
    ]
}

pub(super) fn plain() -> Setting {
    Setting {
        name: "",
        instances: 3,
        masked: 0,
        fenced: false,
        registers: [0; 4],
        cancels: false,
        longer: LEASE,
        tick: HALF,
        ticks: 1,
        limits: ONCE,
        wanted: &[],
        reached: Arc::default(),
    }
}

/// One acquisition of each client, or two of one client.
pub(super) const ONCE: Spent = Spent {
    begun: 2,
    renewed: 0,
    lengthened: 0,
    failed: 0,
    doubled: 0,
    restarted: 0,
    lost: 0,
};

/// Two of these steps pass the deadline of a lease and its end on an instance, but not the lease by the
/// client's own clock: so a deadline without drift is too late.
pub(super) const HALF: u64 = LEASE_MS * 497 / 1000;

/// After each of these steps another round of extension is due.
pub(super) const THIRD: u64 = LEASE_MS * 334 / 1000;

/// Longer than every lease and every quarantine.
const OVER: u64 = LEASE_MS * 1030 / 1000;

const LEASE_MS: u64 = LEASE.as_millis() as u64;
