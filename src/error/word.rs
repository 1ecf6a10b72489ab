//! The word for an error in spans.

use super::Error;

impl Error {
    /// The variant, as a word that does not change: `docs/logs.md` lists them.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::AlreadyHeld(_) => "already_held",
            Self::Closed => "closed",
            Self::Invalid { .. } => "invalid",
            Self::Lost(_) => "lost",
            Self::NoQuorum(_) => "no_quorum",
            Self::NotHeld(_) => "not_held",
            Self::NotReplicated(_) => "not_replicated",
            Self::PermitNotInUse { .. } => "permit_not_in_use",
            Self::Refused { .. } => "refused",
            Self::Timeout { .. } => "timeout",
            Self::TooManyWaiters { .. } => "too_many_waiters",
            Self::Unavailable { .. } => "unavailable",
            Self::Unconfirmed { .. } => "unconfirmed",
            Self::UnlockUnconfirmed(_) => "unlock_unconfirmed",
            Self::WouldDeadlock { .. } => "would_deadlock",
        }
    }
}
