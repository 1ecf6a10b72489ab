//! What Redisson waits for after it acquired a lock: `slavesSyncTimeout` and `checkLockSyncedSlaves`.

use std::time::Duration;

use lockdog::config::{ReplicaAck, Replicas};

use super::rule::{Section, Setting};
use super::walk::Found;
use crate::error::ConfigError;
use crate::note::Note;
use crate::value::SettingValue;

/// The replicas to wait for; `None` for lockdog's default.
pub(super) fn ack(
    found: &Found<'_>,
    command_timeout: Option<Duration>,
    notes: &mut Vec<Note>,
) -> Result<Option<ReplicaAck>, ConfigError> {
    let limit = command_timeout.unwrap_or(Duration::from_secs(3));
    let synced = found.in_top.get(&Setting::SlavesSyncTimeout);
    let checked = found.in_top.get(&Setting::CheckLockSyncedSlaves);
    let time = synced.map(|value| value.number(1..=A_DAY)).transpose()?;
    let is_checked = checked.map(SettingValue::boolean).transpose()?;
    let (time, is_checked) = (time.flatten(), is_checked.flatten());
    if time.is_none() && is_checked.is_none() {
        return Ok(None);
    }
    if found.section == Section::Single {
        for value in [synced, checked].into_iter().flatten() {
            let text = "no replica is waited for with singleServerConfig, as in Redisson";
            notes.push(value.ignored(text));
        }
        return Ok(None);
    }
    let time = Duration::from_millis(time.unwrap_or(1000));
    let timeout = time.min(limit);
    if let Some(value) = synced {
        notes.push(if time > limit {
            let most = "because an answer has no longer than `timeout`";
            value.differs(format!("replica_ack(..): {timeout:?}, {most}"))
        } else {
            value.mapped(format!("replica_ack(..): {timeout:?}"))
        });
    }
    let best_effort = ReplicaAck::best_effort().timeout(timeout);
    let Some(value) = checked else {
        return Ok(Some(best_effort));
    };
    if is_checked == Some(true) {
        let text = "replica_ack(ReplicaAck::require(Replicas::Count(1))): without a connected replica no \
                    lock is granted; Redisson grants it then. Set false to grant it";
        notes.push(value.differs(text));
        let required = ReplicaAck::require(Replicas::Count(1));
        return Ok(Some(required.timeout(timeout)));
    }
    notes.push(value.mapped("replica_ack(ReplicaAck::best_effort())"));
    Ok(Some(best_effort))
}

const A_DAY: u64 = 24 * 60 * 60 * 1000;
