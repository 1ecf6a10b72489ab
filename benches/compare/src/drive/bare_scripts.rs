//! What the bare protocol of each kind sends: two scripts, their keys and their arguments.
//!
//! Those of the re-entrant lock make the calls that Redisson's make (its latch apart) in the same order:
//! seven in a pair. For the other kinds, and for each kind of W14, they are lockdog's own scripts.

use redis::{Cmd, Value};

use crate::protocol::Request;

/// The kinds that `raw` knows.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Fair,
    Fenced,
    Lock,
    /// lockdog's plain lock. A non-reentrant lock sends the same.
    Plain,
    Read,
    Semaphore,
    /// The plain lock without messages.
    Spin,
}

/// The digests of a kind's scripts.
pub(crate) struct Digests {
    pub(crate) acquire: String,
    pub(crate) unlock: String,
}

/// What one owner takes.
pub(crate) struct Named {
    kind: Kind,
    pub(crate) name: String,
    /// Beside the name.
    keys: Vec<String>,
    channel: String,
    /// Of the waiting clients, which a release looks at.
    list: String,
    owner: String,
}

impl Kind {
    pub(crate) fn of(request: &Request) -> Self {
        match (request.workload.as_str(), request.api.as_deref()) {
            ("W8c", _) => Self::Fair,
            ("W9a", _) => Self::Read,
            ("W11c", _) => Self::Semaphore,
            ("W14", Some("fenced")) => Self::Fenced,
            ("W14", Some("spin")) => Self::Spin,
            ("W14", _) => Self::Plain,
            _ => Self::Lock,
        }
    }

    /// To acquire, and to unlock.
    pub(crate) const fn scripts(self) -> [&'static str; 2] {
        match self {
            Self::Fair => [FAIR, END_FAIR],
            Self::Fenced => [FENCED, END_PLAIN],
            Self::Lock => [ACQUIRE, UNLOCK],
            Self::Plain | Self::Spin => [PLAIN, END_PLAIN],
            Self::Read => [READ, END_READ],
            Self::Semaphore => [TAKE_PERMITS, RELEASE_PERMITS],
        }
    }
}

impl Named {
    /// The number is the owner's own.
    pub(crate) fn new(kind: Kind, name: &str, number: u64) -> Self {
        let owner = format!("5e7a9f3c-26d1-4b8e-9c40-d1f6a83b2e75:{number}.1");
        let (keys, channel) = match kind {
            Kind::Fair => (
                vec![
                    format!("redisson_lock_queue:{{{name}}}"),
                    format!("redisson_lock_timeout:{{{name}}}"),
                    format!("lockdog_fair:{{{name}}}"),
                ],
                "redisson_lock__channel",
            ),
            Kind::Fenced => (
                vec![format!("redisson_lock_token:{{{name}}}")],
                "redisson_lock__channel",
            ),
            Kind::Lock | Kind::Plain | Kind::Spin => (Vec::new(), "redisson_lock__channel"),
            Kind::Read => (
                vec![
                    format!("lockdog_writer:{{{name}}}"),
                    format!("{}{owner}:rwlock_timeout:1", before_fields(name)),
                ],
                "redisson_rwlock",
            ),
            Kind::Semaphore => (vec![format!("lockdog_ledger:{{{name}}}")], "redisson_sc"),
        };
        Self {
            kind,
            name: name.to_owned(),
            keys,
            channel: format!("{channel}:{{{name}}}"),
            list: format!("lockdog_waiters:{{{name}}}"),
            owner,
        }
    }

    pub(crate) fn acquire(&self, digests: &Digests) -> Cmd {
        let mut command = self.evaluate(&digests.acquire);
        match self.kind {
            // A first hold. It takes no place in the queue.
            Kind::Fair => command
                .arg((&self.owner, 1, LEASE_MS, FAIR_WAIT_MS, FAIR_ABSENCE_MS))
                .arg(("try", &self.channel, "publish")),
            Kind::Fenced => command.arg((&self.owner, 1, LEASE_MS, "clock")),
            Kind::Lock => command.arg(LEASE_MS).arg(&self.owner),
            Kind::Plain | Kind::Spin => command.arg((&self.owner, 1, LEASE_MS)),
            // A first hold for the lease. It has no partner, has not waited yet, and announces nothing.
            Kind::Read => command.arg((&self.owner, 1, LEASE_MS, "read")).arg((
                "",
                0,
                0,
                self.before_fields(),
            )),
            Kind::Semaphore => command.arg((&self.owner, 1)),
        };
        command
    }

    pub(crate) fn unlock(&self, digests: &Digests) -> Cmd {
        let mut command = match self.kind {
            Kind::Lock => evaluate(&digests.unlock, 2),
            // Without the counter of a fenced lock.
            Kind::Fenced | Kind::Plain | Kind::Spin => evaluate(&digests.unlock, 1),
            Kind::Fair | Kind::Read | Kind::Semaphore => self.evaluate(&digests.unlock),
        };
        match self.kind {
            // It has no place in the queue.
            Kind::Fair => command
                .arg((&self.owner, 0, &self.channel, "publish"))
                .arg((FAIR_WAIT_MS, 0)),
            Kind::Lock => {
                command
                    .arg((&self.name, &self.channel))
                    .arg(("0", LEASE_MS, &self.owner))
            }
            Kind::Fenced | Kind::Plain => command
                .arg((&self.name, &self.owner, 0, &self.channel))
                .arg(("publish", &self.list)),
            Kind::Spin => command.arg((&self.name, &self.owner, 0, "", "publish", "")),
            Kind::Read => command
                .arg((&self.owner, 0, &self.channel, "publish"))
                .arg(("read", self.before_fields(), LEASE_MS)),
            // Nothing is in doubt, and the client knows of one permit.
            Kind::Semaphore => command.arg((&self.owner, 0, &self.channel, "publish", 0, 1)),
        };
        command
    }

    /// Why it was not granted; none if it was.
    pub(crate) fn refusal(&self, answer: &Value) -> Option<String> {
        match (self.kind, answer) {
            (Kind::Fair | Kind::Lock | Kind::Plain | Kind::Read | Kind::Spin, Value::Nil) => None,
            // The token.
            (Kind::Fenced, Value::BulkString(_)) => None,
            (Kind::Semaphore, Value::Array(parts)) if parts.first() == Some(&Value::Int(1)) => None,
            (_, answer) => Some(format!("{} is not granted: {answer:?}", self.name)),
        }
    }

    /// With all its keys.
    fn evaluate(&self, digest: &str) -> Cmd {
        let mut command = evaluate(digest, 1 + self.keys.len());
        command.arg(&self.name).arg(&self.keys);
        command
    }

    fn before_fields(&self) -> String {
        before_fields(&self.name)
    }
}

fn before_fields(name: &str) -> String {
    format!("{{{name}}}:")
}

pub(crate) fn evaluate(digest: &str, keys: usize) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(digest).arg(keys);
    command
}

const LEASE_MS: u32 = 30_000;
/// The client's defaults.
const FAIR_WAIT_MS: u32 = 300_000;
const FAIR_ABSENCE_MS: u32 = 10_000;

const ACQUIRE: &str = r"
local ours = redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1
if not ours then
    return redis.call('pttl', KEYS[1])
end
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil
";

const UNLOCK: &str = r"
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
    return nil
end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return 1
";

const FAIR: &str = include_str!("../../../../lua/fair/acquire.lua");
const END_FAIR: &str = include_str!("../../../../lua/fair/unlock.lua");
const FENCED: &str = include_str!("../../../../lua/fenced/acquire.lua");
const PLAIN: &str = include_str!("../../../../lua/lock/acquire.lua");
const END_PLAIN: &str = include_str!("../../../../lua/lock/unlock.lua");
const READ: &str = include_str!("../../../../lua/read_write/acquire.lua");
const END_READ: &str = include_str!("../../../../lua/read_write/unlock.lua");
const TAKE_PERMITS: &str = include_str!("../../../../lua/semaphore/acquire.lua");
const RELEASE_PERMITS: &str = include_str!("../../../../lua/semaphore/release.lua");
