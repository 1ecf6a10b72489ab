//! The permissions that the client's user needs.

use std::borrow::Cow;

use super::inspection::Inspection;

/// A permission that the client uses.
pub(super) struct Need {
    /// The rule that grants it.
    pub(super) rule: &'static str,
    /// The consequence of not having it.
    pub(super) loss: Cow<'static, str>,
    /// A complete command that changes nothing, whatever the server contains. Words are separated
    /// by single spaces. `KEY` in a word stands for an unused key, `CHANNEL` for an unused channel.
    pub(super) words: &'static str,
}

impl Need {
    /// Whether the command contains this word.
    pub(super) fn uses(&self, word: &str) -> bool {
        self.words.split(' ').any(|it| it == word)
    }

    /// The keys and channels in the command whose names depend on those of the locks.
    pub(super) fn places(&self) -> impl Iterator<Item = &'static str> {
        let words = self.words.split(' ');
        words.filter(|word| word.contains(KEY) || *word == CHANNEL)
    }
}

/// What this client needs on this server: each rule once.
pub(super) fn needs(inspection: &Inspection<'_>) -> Vec<Need> {
    let mut needs = needs_of_client(inspection);
    for kind in inspection.expected.kinds() {
        for words in kind.commands.iter().copied().flatten() {
            let rule = words.split(' ').next().unwrap_or_default();
            let loss = format!("no {}", kind.name);
            match needs.iter_mut().find(|need| need.rule == rule) {
                Some(need) => need.loss.to_mut().push_str(&format!(", {loss}")),
                None => needs.push(Need {
                    rule,
                    loss: loss.into(),
                    words,
                }),
            }
        }
    }
    needs
}

/// What the client needs for locks of every kind.
fn needs_of_client(inspection: &Inspection<'_>) -> Vec<Need> {
    let expected = inspection.expected;
    let is_needed = |need: &Need| match need.rule {
        "publish" | "pubsub|numsub" => !inspection.is_sharded,
        "spublish" => inspection.is_sharded,
        // If the server refuses it, the client assumes that the server has no sharded messages.
        SHARDED => inspection.is_cluster,
        "subscribe" | "unsubscribe" => expected.listens && !inspection.is_sharded,
        "ssubscribe" | "sunsubscribe" => expected.listens && inspection.is_sharded,
        "asking" | "cluster|nodes" | "cluster|slots" => inspection.is_cluster,
        "client|setname" => expected.client_name.is_some() && !expected.by_pool,
        "wait" => expected.waits,
        "waitaof" => expected.on_disk.is_some(),
        "time" => expected.quarantine_on_server || expected.is_fenced(),
        "hset" | "hmget" => expected.quarantine_on_server,
        "get" | "set" => expected.is_fenced(),
        _ => true,
    };
    NEEDS.into_iter().filter(is_needed).collect()
}

const fn need(rule: &'static str, words: &'static str, loss: &'static str) -> Need {
    Need {
        rule,
        loss: Cow::Borrowed(loss),
        words,
    }
}

/// `docs/security.md` has the same list. A command that would write has invalid arguments, which
/// the server detects only after it has checked the permission.
const NEEDS: [Need; 34] = [
    need(
        "eval",
        "eval SCRIPT 0",
        "no lock once the server forgot the scripts",
    ),
    need("evalsha", RUN_NONE, NO_LOCK),
    need("exists", "exists KEY", NO_LOCK),
    need("hincrby", "hincrby KEY f x", NO_LOCK),
    need("hdel", "hdel KEY f", NO_LOCK),
    need("pexpire", "pexpire KEY x", NO_LOCK),
    need("hget", "hget KEY f", NO_REENTRY),
    need("pttl", "pttl KEY", NO_REENTRY),
    need("hexists", "hexists KEY f", "no renewal"),
    need(
        "hgetall",
        "hgetall KEY",
        "no holder() and no force_unlock()",
    ),
    need("del", "del KEY", "no force_unlock()"),
    need("publish", "publish CHANNEL x", NO_MESSAGES),
    need("spublish", "spublish CHANNEL x", NO_MESSAGES),
    need("pubsub|numsub", "pubsub numsub x", UNDETECTED),
    need(
        SHARDED,
        "pubsub shardnumsub x",
        "messages use other channels than those of other clients",
    ),
    need("subscribe", "subscribe CHANNEL", POLLS),
    need("unsubscribe", "unsubscribe CHANNEL", POLLS),
    need("ssubscribe", "ssubscribe CHANNEL", POLLS),
    need("sunsubscribe", "sunsubscribe CHANNEL", POLLS),
    need("cluster|nodes", "cluster nodes", NO_LOCK),
    need(
        "cluster|slots",
        "cluster slots",
        "the nodes' host names are not known",
    ),
    need("asking", "asking", "calls wait while a slot is moved"),
    need(
        "ping",
        "ping",
        "the connection for messages is reopened every ten seconds",
    ),
    need("client|id", "client id", SILENT_STAYS),
    need("client|kill", KILL_NONE, SILENT_STAYS),
    need(
        "client|setname",
        "client setname NAME",
        "CLIENT LIST shows no name",
    ),
    need(
        "info",
        "info server",
        "a server that lost its data, or is a replica, is not detected",
    ),
    need(
        "wait",
        "wait 0 1",
        "locks do not wait for replicas, and none is granted with ReplicaAck::Require",
    ),
    // With these arguments it waits for no disk and no replica.
    need(
        "waitaof",
        "waitaof 0 0 1",
        "no lock with ReplicaAck::RequireAof",
    ),
    need(
        "time",
        "time",
        "no lock with quarantine_on_server, no RedLock with fencing tokens",
    ),
    need("get", "get lockdog_token:{KEY}", NO_TOKEN),
    need("set", "set lockdog_token:{KEY} x px x", NO_TOKEN),
    need("hmget", "hmget lockdog:epoch id", NO_QUARANTINE),
    need("hset", "hset lockdog:epoch id x y", NO_QUARANTINE),
];

const RUN_NONE: &str = "evalsha 0000000000000000000000000000000000000000 0";
/// An id that no connection has. Some servers treat 0 as "any id".
const KILL_NONE: &str = "client kill id 9223372036854775807";

const NO_LOCK: &str = "no lock at all";
const NO_QUARANTINE: &str = "no lock with quarantine_on_server";
pub(super) const SHARDED: &str = "pubsub|shardnumsub";
const NO_TOKEN: &str = "no RedLock with fencing tokens";
const NO_REENTRY: &str = "no wait for a busy lock, re-entry, renewal or multi lock";
const POLLS: &str = "waiters of this client only poll";
const NO_MESSAGES: &str = "waiters of other clients get no release messages";
const UNDETECTED: &str = "waiters of other clients are not detected";
const SILENT_STAYS: &str = "a connection that does not answer is not closed";

pub(super) const KEY: &str = "KEY";
pub(super) const CHANNEL: &str = "CHANNEL";
pub(super) const SCRIPT: &str = "SCRIPT";
pub(super) const NAME: &str = "NAME";
pub(super) const EPOCH: &str = "lockdog:epoch";
