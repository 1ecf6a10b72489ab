//! How often runs came by what they are there to try: a simulation without faults proves nothing.

/// Makes the list of all along with the names.
macro_rules! sights {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something worth having been through.
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
    /// Requests and replies that took longer than an instance is waited for.
    Late,
    Doubled,
    Dropped,
    /// A `Take` that arrived after the client had been told that what it did is undone.
    Orphan,
    /// Commands sent again on a new connection, whose first sending may have arrived.
    SentAgain,
    Suspect,
    /// A request to acquire whose caller stopped, and one of them that the core gave up.
    Left,
    GivenUp,
    Grant,
    /// A round was lost, and some of the instances had been had.
    Collision,
    WokenByMessage,
    /// An acquire that its caller gave up.
    Cancelled,
    Reentry,
    Jeopardy,
    Recovery,
    /// An instance that was lost, or never had, was taken by a round of extension.
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
    /// What an instance granted was given back, because it came back meanwhile.
    GivenBackInQuarantine,
    ExtendedInQuarantine,
    /// The lock of a living holder was lost early on an instance, and masked.
    EarlyLoss,
    ClockStep,
    TokenShown,
    TokenConflict,
    /// A token was in the way of a quorum, and a larger one was tried.
    TokenRaised,
    UntrustedRegister,
    /// Too many instances came back, so that the clocks had to do.
    TokenByClocks,
    /// The resource refused a holder that came late.
    StaleWriteRefused,
}

/// How often each was seen.
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

    /// What was seen less often than `least`.
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
