//! Strings and counters: fencing registers, permits.

use super::{Command, anywhere};
use crate::database::{Database, text};
use crate::keyspace::StoredValue;
use crate::number::{int_arg, integer};
use crate::reply::{CommandResult, Refusal, Reply};

pub(super) const COMMANDS: &[Command] = &[
    anywhere("append", 3, |database, _, args| {
        let value = database.keys().find_or_make::<Vec<u8>>(&args[1])?;
        value.extend_from_slice(&args[2]);
        Ok(Reply::Int(value.len() as i64))
    }),
    anywhere("decr", 2, |database, _, args| add(database, &args[1], -1)),
    anywhere("decrby", 3, |database, _, args| {
        let by = int_arg(&args[2])?.checked_neg();
        let by = by.ok_or_else(|| Refusal::new("ERR decrement would overflow"))?;
        add(database, &args[1], by)
    }),
    anywhere("get", 2, |database, _, args| get(database, &args[1])),
    anywhere("getdel", 2, |database, _, args| {
        let value = get(database, &args[1])?;
        database.keys().remove(&args[1]);
        Ok(value)
    }),
    anywhere("getset", 3, |database, _, args| {
        let before = get(database, &args[1])?;
        let value = StoredValue::String(args[2].clone());
        database.keys().put(&args[1], value, None);
        Ok(before)
    }),
    anywhere("incr", 2, |database, _, args| add(database, &args[1], 1)),
    anywhere("incrby", 3, |database, _, args| {
        add(database, &args[1], int_arg(&args[2])?)
    }),
    anywhere("mget", -2, |database, _, args| {
        let all = args[1..].iter();
        let found = all.map(|key| get(database, key).unwrap_or(Reply::Nil));
        Ok(Reply::Array(found.collect()))
    }),
    anywhere("psetex", 4, |database, _, args| set_for(database, args, 1)),
    anywhere("set", -3, set),
    anywhere("setex", 4, |database, _, args| {
        set_for(database, args, 1000)
    }),
    anywhere("setnx", 3, |database, _, args| {
        let keys = database.keys();
        let is_new = keys.entry(&args[1]).is_none();
        if is_new {
            keys.put(&args[1], StoredValue::String(args[2].clone()), None);
        }
        Ok(Reply::Int(i64::from(is_new)))
    }),
    anywhere("strlen", 2, |database, _, args| {
        let value = database.keys().find::<Vec<u8>>(&args[1])?;
        Ok(Reply::Int(value.map_or(0, |value| value.len() as i64)))
    }),
];

fn get(database: &mut Database, key: &[u8]) -> CommandResult {
    let value = database.keys().find::<Vec<u8>>(key)?;
    Ok(value.map_or(Reply::Nil, Reply::bulk))
}

fn add(database: &mut Database, key: &[u8], by: i64) -> CommandResult {
    let keys = database.keys();
    let count = match keys.find::<Vec<u8>>(key)? {
        None => 0,
        Some(value) => integer(value).ok_or_else(Refusal::not_an_integer)?,
    };
    let count = count
        .checked_add(by)
        .ok_or_else(|| Refusal::new("ERR increment or decrement would overflow"))?;
    *keys.find_or_make::<Vec<u8>>(key)? = count.to_string().into_bytes();
    Ok(Reply::Int(count))
}

/// SETEX and PSETEX; `unit` is the number of milliseconds in one unit of the argument.
fn set_for(database: &mut Database, args: &[Vec<u8>], unit: u64) -> CommandResult {
    let keys = database.keys();
    let until = expiry(args, &args[2], unit, keys.now())?;
    keys.put(&args[1], StoredValue::String(args[3].clone()), Some(until));
    Ok(Reply::OK)
}

fn set(database: &mut Database, _: Option<u64>, args: &[Vec<u8>]) -> CommandResult {
    let keys = database.keys();
    let (mut until, mut keeps, mut gets) = (None, false, false);
    let (mut only_new, mut only_old) = (false, false);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        let option = text(option).to_lowercase();
        match option.as_str() {
            "nx" if !only_old => only_new = true,
            "xx" if !only_new => only_old = true,
            "get" => gets = true,
            "keepttl" if until.is_none() => keeps = true,
            "ex" | "px" | "exat" | "pxat" if until.is_none() && !keeps => {
                let time = options.next().ok_or_else(Refusal::syntax)?;
                let unit = if option.starts_with("ex") { 1000 } else { 1 };
                let base = if option.ends_with("at") {
                    0
                } else {
                    keys.now()
                };
                until = Some(expiry(args, time, unit, base)?);
            }
            _ => return Err(Refusal::syntax()),
        }
    }
    let before = if gets {
        let value = keys.find::<Vec<u8>>(&args[1])?;
        value.map_or(Reply::Nil, Reply::bulk)
    } else {
        Reply::OK
    };
    let present = keys.entry(&args[1]).map(|entry| entry.until);
    if only_new && present.is_some() || only_old && present.is_none() {
        return Ok(if gets { before } else { Reply::Nil });
    }
    if keeps {
        until = present.flatten();
    }
    keys.put(&args[1], StoredValue::String(args[2].clone()), until);
    Ok(before)
}

fn expiry(args: &[Vec<u8>], time: &[u8], unit: u64, base: u64) -> Result<u64, Refusal> {
    let time = int_arg(time)?;
    let time = u64::try_from(time).ok().filter(|time| *time > 0);
    let until = time
        .and_then(|time| time.checked_mul(unit)?.checked_add(base))
        .filter(|until| i64::try_from(*until).is_ok());
    until.ok_or_else(|| {
        let command = text(&args[0]).to_lowercase();
        Refusal::new(format!("ERR invalid expire time in '{command}' command"))
    })
}
