//! Several commands as one, and its answer as theirs. See `lua/lock/batch.lua`.

use std::sync::LazyLock;

use redis::{Arg, Cmd, Value};

use crate::key::Script;
use crate::key::kind::{BATCH, PLAIN};

/// A command that may be a part of a batch.
pub(super) struct BatchItem {
    script: &'static BatchScript,
    /// The key and the arguments, one after the other.
    texts: Vec<u8>,
    /// Where each of them ends.
    ends: [usize; 1 + MOST_ARGS],
}

/// A script that `lua/lock/batch.lua` can run.
pub(super) struct BatchScript {
    script: &'static LazyLock<Script>,
    /// The name in the batch.
    name: &'static str,
    /// The number of its arguments.
    args: usize,
}

static SCRIPTS: [BatchScript; 2] = [
    BatchScript {
        script: PLAIN.scripts.acquire,
        name: "a",
        args: 3,
    },
    BatchScript {
        script: PLAIN.scripts.unlock,
        name: "u",
        args: 5,
    },
];

/// The script of a command that may be a part of a batch.
pub(super) fn script_of(command: &Cmd) -> Option<&'static BatchScript> {
    let mut args = command.args_iter();
    // A whole script follows an error, and everything else is rare.
    let Some((Arg::Simple(b"EVALSHA"), Arg::Simple(digest))) = args.next().zip(args.next()) else {
        return None;
    };
    let is = |it: &&BatchScript| it.script.digest().as_bytes() == digest;
    let script = SCRIPTS.iter().find(is)?;
    // The number of keys, the key, and the arguments.
    (args.len() == 2 + script.args).then_some(script)
}

impl BatchItem {
    /// A command that calls this script. `None` if it has to be sent by itself.
    pub(super) fn new(script: &'static BatchScript, command: &Cmd) -> Option<Self> {
        let (mut texts, mut ends) = (Vec::with_capacity(TYPICAL_SIZE), [0; 1 + MOST_ARGS]);
        for (end, arg) in ends.iter_mut().zip(command.args_iter().skip(3)) {
            let Arg::Simple(text) = arg else { return None };
            texts.extend_from_slice(text);
            *end = texts.len();
        }
        Some(Self {
            script,
            texts,
            ends,
        })
    }

    /// The command by itself.
    pub(super) fn command(&self) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.script.script.digest()).arg(1);
        for text in self.texts() {
            command.arg(text);
        }
        command
    }

    /// The key, and then the arguments of the script.
    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends);
        let ranges = begins.zip(self.ends).take(1 + self.script.args);
        ranges.map(|(begin, end)| &self.texts[begin..end])
    }
}

/// The command that runs all of these. `whole`: with the text of the script, for a server that does not know
/// it.
pub(super) fn command(items: &[BatchItem], whole: bool) -> Cmd {
    let (name, script) = match whole {
        true => ("EVAL", BATCH.text()),
        false => ("EVALSHA", BATCH.digest()),
    };
    let size: usize = items.iter().map(|item| item.texts.len() + 1).sum();
    let parts = 3 + items.len() * (2 + MOST_ARGS);
    let mut command = Cmd::with_capacity(parts, size + script.len() + 16);
    command.arg(name).arg(script).arg(items.len());
    for item in items {
        command.arg(item.texts().next());
    }
    for item in items {
        command.arg(item.script.name);
        for text in item.texts().skip(1) {
            command.arg(text);
        }
        for _ in item.script.args..MOST_ARGS {
            command.arg("");
        }
    }
    command
}

/// What the answer to a batch says to each of its parts.
pub(super) enum BatchAnswer {
    /// The answer of each part, in order; `None` for a part that failed and did nothing.
    Each(Vec<Option<Value>>),
    /// The server refused the batch, and ran nothing of it.
    Refused(BatchRefusal),
    /// The server refuses every script now. This is its answer to each part.
    RefusedAll(Value),
    /// No script of lockdog answers that.
    Unexpected,
}

/// Why a server refused a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BatchRefusal {
    /// It does not know the script.
    UnknownScript,
    /// Batches will always be refused: the keys have to be in one slot, the user lacks a permission, or a proxy does
    /// not support the command.
    Always,
    /// Something that may pass.
    Now,
}

/// Reads the answer to a batch of this many parts.
pub(super) fn read(answer: Value, parts: usize) -> BatchAnswer {
    match answer {
        Value::Array(answers) if answers.len() == parts => {
            let each = answers.into_iter().map(|answer| match answer {
                Value::BulkString(text) if text == FAILED => None,
                answer => Some(answer),
            });
            BatchAnswer::Each(each.collect())
        }
        // Its data may be older, or those of another server. A refusal that the callers do not see is one that the
        // check of the server's identity does not see either.
        Value::ServerError(error) if matches!(error.code(), "LOADING" | "MASTERDOWN") => {
            BatchAnswer::RefusedAll(Value::ServerError(error))
        }
        Value::ServerError(error) => BatchAnswer::Refused(match error.code() {
            "NOSCRIPT" => BatchRefusal::UnknownScript,
            // What passes has a code of its own.
            "CROSSSLOT" | "ERR" | "NOPERM" => BatchRefusal::Always,
            _ => BatchRefusal::Now,
        }),
        _ => BatchAnswer::Unexpected,
    }
}

/// How many arguments `lua/lock/batch.lua` expects for each part, in addition to the name of its script.
const MOST_ARGS: usize = 5;
/// What the script answers for a part that failed.
const FAILED: &[u8] = b"!";
/// The size for which memory is allocated at first, in bytes.
const TYPICAL_SIZE: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_that_does_not_pass_ends_the_batches() {
        for (error, expected) in [
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                BatchRefusal::Always,
            ),
            (
                "ERR all keys must map to the same node",
                BatchRefusal::Always,
            ),
            (
                "NOPERM No permissions to access a key",
                BatchRefusal::Always,
            ),
            ("NOSCRIPT No matching script", BatchRefusal::UnknownScript),
            ("BUSY Redis is busy running a script", BatchRefusal::Now),
            ("MOVED 1 other:6379", BatchRefusal::Now),
        ] {
            let answer = redis::parse_redis_value(format!("-{error}\r\n").as_bytes());
            match read(answer.unwrap(), 2) {
                BatchAnswer::Refused(refusal) => assert_eq!(refusal, expected, "{error}"),
                _ => panic!("{error} is a refusal"),
            }
        }
    }
}
