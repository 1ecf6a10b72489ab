//! A write for a `WAIT` that follows it.

use std::iter;

use smallvec::SmallVec;

use super::more_keys::{values, with_more};
use super::{Arg, TimedCommand};
use crate::clock::Moment;
use crate::key::LockKey;
use crate::observe::CommandKind;
use crate::server::{Connection, PendingWrite, Server, Unacknowledged};

/// Waits until the replicas have acknowledged the grant of a hold on this connection, as far as the
/// setting requires it. See `lua/lock/touch.lua`.
pub(crate) async fn acknowledge(
    server: &Server,
    key: &LockKey,
    field: &str,
    on: &Connection,
    until: Moment,
) -> Result<(), Unacknowledged> {
    let script = key.kind().scripts.touch;
    let permits = key.permits();
    let keys = with_more(key, permits.as_slice());
    let args: SmallVec<[Arg<'_>; 2]> = iter::once(Arg::Text(field))
        .chain(values(key).take(1))
        .collect();
    let touch = script.command(true, &keys, &args);
    let timed = TimedCommand::begin(server, CommandKind::Touch);
    let written = PendingWrite::new(touch, on);
    let acknowledged = server.acknowledge(written, until).await;
    timed.end(&acknowledged);
    acknowledged
}
