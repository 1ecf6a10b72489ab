//! The acquire of one instance.

use std::time::Duration;

use super::judged_claim::JudgedClaim;
use crate::clock::Moment;
use crate::hold::Terms;
use crate::owner::Owner;
use crate::server::Addressee;

/// What an instance is asked for in a first round, or when it is re-acquired.
pub(super) struct InstanceAcquire<'a> {
    pub(super) owner: Owner,
    pub(super) terms: Terms,
    pub(super) is_fenced: bool,
    /// The longest lease that any client asks of these instances.
    pub(super) max_lease: Duration,
    /// The client waits for the answer until this moment.
    pub(super) until: Moment,
    /// Receives the server of each sending.
    pub(super) addressee: Addressee,
    pub(super) round: u32,
    /// Keeps the claim while its server is judged.
    pub(super) judged: &'a JudgedClaim,
}
