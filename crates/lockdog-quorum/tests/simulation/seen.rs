//! How often runs met the events that they should test: a simulation without faults proves nothing.

/// Defines the list of all events together with their names.
macro_rules! sights {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An event worth meeting.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(super) enum Sight {
            $($(#[$doc])* $name,)*
        }

        impl Sight {
            const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

sights! {
    /// Requests and replies that took longer than the answer limit.
    Late,
    Doubled,
    Dropped,
    /// A `Take` that arrived after the client had learned that its effects are undone.
    Orphan,
    /// Commands sent again on a new connection, whose first sending may have arrived.
    SentAgain,
    Suspect,
    /// A request to acquire whose caller stopped, and such a request that the core gave up.
    Left,
    GivenUp,
    Grant,
    /// A round was lost after some of the instances had been acquired.
    Collision,
    WokenByMessage,
    /// An acquire that its caller gave up.
    Cancelled,
    Reentry,
    Jeopardy,
    Recovery,
    /// An instance that was lost, or never acquired, was acquired by a round of extension.
    Heal,
    LostByDeadline,
    LostToClearNoes,
    LostToMaxHold,
    LostByItsDriver,
    FixedLeaseRanOut,
    FrozenLongerThanLease,
    DiedHolding,
    CrashKept,
    CrashEmpty,
    CrashTruncated,
    QuarantinedByClient,
    QuarantinedByServer,
    /// A grant of an instance was released, because the instance had restarted meanwhile.
    GivenBackInQuarantine,
    ExtendedInQuarantine,
    /// An instance lost the lock of a living holder early, and the loss was masked.
    EarlyLoss,
    ClockStep,
    TokenShown,
    TokenConflict,
    /// A token was in conflict with a quorum, and a larger one was tried.
    TokenRaised,
    UntrustedRegister,
    /// Too many instances restarted, so the clocks decided.
    TokenByClocks,
    /// The resource refused a late holder.
    StaleWriteRefused,
}

/// How often each event was seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    counts: [u64; Sight::ALL.len()],
    pub(super) events: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            counts: [0; Sight::ALL.len()],
            events: 0,
        }
    }
}

impl Seen {
    pub(super) fn saw(&mut self, sight: Sight) {
        self.counts[sight as usize] += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.events += other.events;
    }

    /// Events that were seen less often than `least`.
    pub(super) fn rarer_than(&self, least: u64) -> Vec<Sight> {
        let rare = |sight: &Sight| self.counts[*sight as usize] < least;
        Sight::ALL.iter().copied().filter(rare).collect()
    }

    pub(super) fn table(&self) -> String {
        let rows = Sight::ALL.iter().zip(self.counts);
        rows.map(|(sight, count)| format!("{count:>10}  {sight:?}\n"))
            .collect()
    }
}
