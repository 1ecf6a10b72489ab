//! Sends a settlement once.

use std::time::Duration;

use super::Core;
use crate::key::LockKey;
use crate::script::{self, LoweredHold, SettleReply};
use crate::server::{Connection, Failure};

impl Core {
    /// Lowers the count of a hold to its target, on this connection. If the hold has ended, its lock stays for `rest`.
    pub(super) async fn lower(
        &self,
        on: &Connection,
        lowered: &LoweredHold<'_>,
        rest: Duration,
        limit: Duration,
    ) -> Result<SettleReply, Failure> {
        let lingers = lowered.target == 0 && !rest.is_zero();
        let answer = match lingers {
            true => script::linger_on(&self.server, on, lowered, rest, limit).await,
            false => script::settle(&self.server, on, lowered, limit).await,
        };
        if matches!(answer, Ok(SettleReply::Missing)) {
            believe_missing(on, lowered.key, lowered.target, rest, limit).await?;
        }
        answer
    }
}

/// Fails if a replica answered that a hold which was to be lowered is missing, or if the connection ended before the
/// server said that it is none. Behind an address that leads to the new master, a replica that is behind does not have
/// what that one granted. It answers only scripts that only read in this case, and refuses the others.
pub(super) async fn believe_missing(
    on: &Connection,
    key: &LockKey,
    target: u32,
    rest: Duration,
    limit: Duration,
) -> Result<(), Failure> {
    let only_reads = target > 0 || !rest.is_zero() || key.kind().is_freed_in_parts();
    if only_reads && on.leads_to_master(limit / 4).await? == Some(false) {
        return Err(Failure::of_replica());
    }
    Ok(())
}
