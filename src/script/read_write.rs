//! What the scripts of a read/write lock get in addition to those of other locks.

use std::sync::LazyLock;
use std::time::Duration;

use redis::Value;

use super::{Arg, ScriptCall};
use crate::key::{LockKey, Mode, Script};
use crate::observe::CommandKind;
use crate::server::{Failure, Sent, Server, TimeBox};

/// The further arguments of an acquire of a read or write hold.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    /// The field of the same owner's hold in the other mode; empty if it has none.
    pub(crate) partner: String,
    pub(crate) modes: ModeOptions,
    /// How long the announcement of a writer that has to wait is kept.
    pub(crate) announced: Duration,
}

/// How an acquire treats the holders and waiters in the other mode.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModeOptions {
    /// How long the caller of a read has waited. The read waits for an announced writer until the end of the
    /// pause in which its call began. `None`: the read ignores announced writers.
    pub(crate) gives_way: Option<Duration>,
    /// A write that has to wait is announced.
    pub(crate) announces: bool,
    /// A write takes over from its owner's read hold.
    pub(crate) upgrades: bool,
}

impl Sharing {
    /// The arguments behind those that each acquire has.
    pub(super) fn args<'a>(&'a self, mode: Mode, before_fields: &'a str) -> [Arg<'a>; 5] {
        let ModeOptions {
            gives_way,
            announces,
            upgrades,
        } = self.modes;
        let announced = match announces {
            true => u64::try_from(self.announced.as_millis()).unwrap_or(u64::MAX),
            false => 0,
        };
        let flag = match (mode, gives_way) {
            (Mode::Read, None) => Arg::Text("-1"),
            (Mode::Read, Some(waited)) => {
                Arg::Number(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX))
            }
            (Mode::Write, _) => Arg::Number(u64::from(upgrades)),
        };
        [
            Arg::Text(mode.name()),
            Arg::Text(&self.partner),
            flag,
            Arg::Number(announced),
            Arg::Text(before_fields),
        ]
    }
}

/// The fields and counts of the readers whose leases are not over, one after the other. See
/// `lua/read_write/readers.lua`.
pub(crate) async fn readers(
    server: &Server,
    key: &LockKey,
    time: TimeBox,
    sent: &mut Sent,
) -> Result<Value, Failure> {
    static SCRIPT: LazyLock<Script> =
        LazyLock::new(|| Script::new(include_str!("../../lua/read_write/readers.lua")));
    let before_fields = key.before_fields();
    let call = ScriptCall {
        kind: CommandKind::Query,
        script: &SCRIPT,
        keys: &[key.key()],
        args: &[Arg::Text(&before_fields)],
    };
    call.through(server, time, sent).await
}

/// The keys behind the lock's own: the announcement, and for a read hold its timeout key.
pub(super) fn more_keys(key: &LockKey, mode: Mode, field: &str) -> [Option<String>; 2] {
    let timeout = (mode == Mode::Read).then(|| key.timeout_of(field));
    [Some(key.announcement()), timeout]
}
