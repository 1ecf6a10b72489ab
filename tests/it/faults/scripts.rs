//! The script of a command, which is sent by its digest or as a text.

use std::sync::LazyLock;

pub(crate) trait Matches: Fn(&[String]) -> bool + Clone + Send + Sync + 'static {}

impl<F: Fn(&[String]) -> bool + Clone + Send + Sync + 'static> Matches for F {}

pub(crate) fn acquire() -> impl Matches {
    let (alone, contending) = (script(ACQUIRE), script(&CONTEND));
    move |args: &[String]| alone(args) || contending(args)
}

/// An acquire with this target count.
pub(crate) fn acquire_to(target: u32) -> impl Matches {
    let (alone, contending) = (to(ACQUIRE, target), to(&CONTEND, target));
    move |args: &[String]| alone(args) || contending(args)
}

/// An unlock with this target count.
pub(crate) fn unlock_to(target: u32) -> impl Matches {
    to(UNLOCK, target)
}

pub(crate) fn renew() -> impl Matches {
    script(RENEW)
}

pub(crate) fn settle() -> impl Matches {
    script(SETTLE)
}

pub(crate) fn transfer() -> impl Matches {
    script(TRANSFER)
}

pub(crate) fn force_unlock() -> impl Matches {
    script(FORCE_UNLOCK)
}

/// Acquires and unlocks of several callers in one command.
pub(crate) fn batch() -> impl Matches {
    script(&BATCH)
}

/// `CLIENT KILL ID ..`, which closes an abandoned connection.
pub(crate) fn kill() -> impl Matches {
    |args: &[String]| args.len() == 4 && args[..3] == ["CLIENT", "KILL", "ID"]
}

/// The name of the script or command, for a readable list of the sent commands.
pub(crate) fn name(args: &[String]) -> String {
    if acquire()(args) {
        return "acquire".to_owned();
    }
    for (name, text) in ALL {
        if script(text)(args) {
            return name.to_owned();
        }
    }
    args[0].to_ascii_lowercase()
}

pub(crate) fn texts() -> impl Iterator<Item = &'static str> {
    let texts = ALL.into_iter().map(|(_, text)| text);
    texts.chain([CONTEND.as_str(), BATCH.as_str()])
}

fn script(text: &'static str) -> impl Matches {
    let digest = redis::Script::new(text).get_hash().to_owned();
    move |args: &[String]| {
        args.get(1)
            .is_some_and(|given| *given == digest || given == text)
    }
}

fn to(text: &'static str, target: u32) -> impl Matches {
    let is_script = script(text);
    // The command, the script, the number of keys, the key, the field, the target.
    move |args: &[String]| is_script(args) && args[5] == target.to_string()
}

/// The acquire of a client that waits, as the client sends it.
static CONTEND: LazyLock<String> = LazyLock::new(|| {
    let text = include_str!("../../../lua/lock/contend.lua");
    format!("{}{text}", function("acquire", ACQUIRE))
});
/// Acquires and unlocks of several callers, as the client sends them.
static BATCH: LazyLock<String> = LazyLock::new(|| {
    let text = include_str!("../../../lua/lock/batch.lua");
    let (acquire, unlock) = (function("acquire", ACQUIRE), function("unlock", UNLOCK));
    format!("{acquire}{unlock}{text}")
});

fn function(name: &str, text: &str) -> String {
    format!("local function {name}(KEYS, ARGV)\n{text}\nend\n")
}

const ACQUIRE: &str = include_str!("../../../lua/lock/acquire.lua");
const FORCE_UNLOCK: &str = include_str!("../../../lua/lock/force_unlock.lua");
const RENEW: &str = include_str!("../../../lua/lock/renew.lua");
const SETTLE: &str = include_str!("../../../lua/lock/settle.lua");
pub(crate) const TRANSFER: &str = include_str!("../../../lua/lock/transfer.lua");
const UNLOCK: &str = include_str!("../../../lua/lock/unlock.lua");

const ALL: [(&str, &str); 6] = [
    ("acquire", ACQUIRE),
    ("force_unlock", FORCE_UNLOCK),
    ("renew", RENEW),
    ("settle", SETTLE),
    ("transfer", TRANSFER),
    ("unlock", UNLOCK),
];
