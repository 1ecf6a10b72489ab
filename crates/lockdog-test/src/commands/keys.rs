//! Keys of any type, and their expiry.

use super::{Command, anywhere, is};
use crate::database::{Database, text};
use crate::glob;
use crate::number::int_arg;
use crate::reply::{CommandResult, Refusal, Reply};

pub(super) const COMMANDS: &[Command] = &[
    anywhere("dbsize", 1, |database, _, _| {
        Ok(Reply::Int(database.keys().names().len() as i64))
    }),
    anywhere("del", -2, |database, _, args| remove(database, args)),
    anywhere("exists", -2, |database, _, args| {
        let keys = database.keys();
        let found = args[1..].iter().filter(|key| keys.entry(key).is_some());
        Ok(Reply::Int(found.count() as i64))
    }),
    anywhere("expire", -3, |database, _, args| {
        expire(database, args, 1000, false)
    }),
    anywhere("expireat", -3, |database, _, args| {
        expire(database, args, 1000, true)
    }),
    anywhere("flushall", -1, |database, _, _| {
        for keyspace in database.keyspaces() {
            keyspace.clear();
        }
        Ok(Reply::OK)
    }),
    anywhere("flushdb", -1, |database, _, _| {
        database.keys().clear();
        Ok(Reply::OK)
    }),
    anywhere("keys", 2, |database, _, args| {
        let mut names = database.keys().names();
        names.retain(|name| glob::matches(&args[1], name));
        Ok(Reply::bulks(names))
    }),
    anywhere("persist", 2, |database, _, args| {
        let entry = database.keys().entry(&args[1]);
        let had = entry.is_some_and(|entry| entry.until.take().is_some());
        Ok(Reply::Int(i64::from(had)))
    }),
    anywhere("pexpire", -3, |database, _, args| {
        expire(database, args, 1, false)
    }),
    anywhere("pexpireat", -3, |database, _, args| {
        expire(database, args, 1, true)
    }),
    anywhere("pttl", 2, |database, _, args| {
        Ok(Reply::Int(left(database, &args[1], |ms| ms)))
    }),
    anywhere("scan", -2, scan),
    anywhere("ttl", 2, |database, _, args| {
        Ok(Reply::Int(left(database, &args[1], |ms| (ms + 500) / 1000)))
    }),
    anywhere("type", 2, |database, _, args| {
        let entry = database.keys().entry(&args[1]);
        let kind = entry.map_or("none", |entry| entry.kind());
        Ok(Reply::Status(kind.into()))
    }),
    anywhere("unlink", -2, |database, _, args| remove(database, args)),
];

fn remove(database: &mut Database, args: &[Vec<u8>]) -> CommandResult {
    let keys = database.keys();
    let removed = args[1..].iter().filter(|key| keys.remove(key));
    Ok(Reply::Int(removed.count() as i64))
}

fn left(database: &mut Database, key: &[u8], rounded: fn(i64) -> i64) -> i64 {
    let keys = database.keys();
    let now = keys.now();
    match keys.entry(key) {
        None => -2,
        Some(entry) => entry
            .until
            .map_or(-1, |until| rounded((until - now) as i64)),
    }
}

/// EXPIRE and its variants; `unit` is the number of milliseconds in one unit of the argument.
fn expire(
    database: &mut Database,
    args: &[Vec<u8>],
    unit: i64,
    is_absolute: bool,
) -> CommandResult {
    let keys = database.keys();
    let now = keys.now() as i64;
    let base = if is_absolute { 0 } else { now };
    let conditions = Conditions::read(&args[3..])?;
    let until = int_arg(&args[2])?
        .checked_mul(unit)
        .and_then(|time| base.checked_add(time));
    let Some(until) = until else {
        let command = text(&args[0]).to_lowercase();
        let line = format!("ERR invalid expire time in '{command}' command");
        return Err(Refusal::new(line));
    };
    let Some(entry) = keys.entry(&args[1]) else {
        return Ok(Reply::Int(0));
    };
    if !conditions.allow(entry.until, until) {
        return Ok(Reply::Int(0));
    }
    match u64::try_from(until) {
        Ok(until) if until as i64 > now => entry.until = Some(until),
        _ => drop(keys.remove(&args[1])),
    }
    Ok(Reply::Int(1))
}

#[derive(Default)]
struct Conditions {
    only_without: bool,
    only_with: bool,
    only_later: bool,
    only_sooner: bool,
}

impl Conditions {
    fn read(words: &[Vec<u8>]) -> Result<Self, Refusal> {
        let mut read = Self::default();
        for word in words {
            match text(word).to_lowercase().as_str() {
                "nx" => read.only_without = true,
                "xx" => read.only_with = true,
                "gt" => read.only_later = true,
                "lt" => read.only_sooner = true,
                _ => {
                    let line = format!("ERR Unsupported option {}", text(word));
                    return Err(Refusal::new(line));
                }
            }
        }
        if read.only_without && (read.only_with || read.only_later || read.only_sooner) {
            let line = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(Refusal::new(line));
        }
        if read.only_later && read.only_sooner {
            let line = "ERR GT and LT options at the same time are not compatible";
            return Err(Refusal::new(line));
        }
        Ok(read)
    }

    /// A key without an expiry counts as one that expires last.
    fn allow(&self, present: Option<u64>, until: i64) -> bool {
        let present = present.map(|until| until as i64);
        !(self.only_without && present.is_some()
            || self.only_with && present.is_none()
            || self.only_later && present.is_none_or(|present| until <= present)
            || self.only_sooner && present.is_some_and(|present| until >= present))
    }
}

/// All keys in one page.
fn scan(database: &mut Database, _: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    check_cursor(&args[1])?;
    let filter = Filter::read(&args[2..], true)?;
    let keys = database.keys();
    let mut names = keys.names();
    names.retain(|name| filter.has(name));
    if let Some(kind) = filter.kind {
        names.retain(|name| keys.entry(name).is_some_and(|it| is(kind, it.kind())));
    }
    Ok(page(names))
}

/// What SCAN and HSCAN look for.
#[derive(Default)]
pub(super) struct Filter<'a> {
    pattern: Option<&'a [u8]>,
    /// The type of the keys.
    kind: Option<&'a [u8]>,
}

impl<'a> Filter<'a> {
    pub(super) fn read(words: &'a [Vec<u8>], of_keys: bool) -> Result<Self, Refusal> {
        let mut read = Self::default();
        let mut options = words.chunks_exact(2);
        for option in &mut options {
            let value = option[1].as_slice();
            if is(&option[0], "match") {
                read.pattern = Some(value);
            } else if is(&option[0], "type") && of_keys {
                read.kind = Some(value);
            } else if !is(&option[0], "count") || int_arg(value)? < 1 {
                return Err(Refusal::syntax());
            }
        }
        if !options.remainder().is_empty() {
            return Err(Refusal::syntax());
        }
        Ok(read)
    }

    /// Whether the pattern matches.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| glob::matches(pattern, name))
    }
}

pub(super) fn check_cursor(text: &[u8]) -> Result<(), Refusal> {
    let cursor = int_arg(text).map(drop);
    cursor.map_err(|_| Refusal::new("ERR invalid cursor"))
}

/// The only page of a scan.
pub(super) fn page<T: AsRef<[u8]>>(items: impl IntoIterator<Item = T>) -> Reply {
    Reply::Array(vec![Reply::bulk("0"), Reply::bulks(items)])
}
